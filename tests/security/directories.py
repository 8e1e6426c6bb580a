"""A directory of users and queue managers in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    QueueManager,
    User,
    WorkgroupDirectory,
)
from qmnode.structures.guid import Guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts
from qmnode.structures.security_descriptor import Sid

GROUP = Sid.from_text("S-1-5-21-1-2-3-513")
MISSING = DirectoryOperationError(DirectoryOperationResult.OBJECT_NOT_FOUND, "there is no such object")


@dataclass
class FakeDirectory(WorkgroupDirectory):
    """Users and queue managers by identifier."""

    certificates: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    signing_keys: dict[bytes, bytes] = field(default_factory=dict)
    groups: tuple[bytes, ...] = (GROUP.write(),)
    fault: DirectoryOperationError | None = None
    reads: int = 0
    hold: asyncio.Event | None = None
    user_identifier: Guid | None = None

    async def read_directory(self, object_type: Any, filters: Any = (), attributes: Any = None, **_: Any) -> Any:
        self.reads += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.fault is not None:
            raise self.fault
        (condition,) = filters
        found = self.certificates if object_type is User else self.signing_keys
        if condition.value not in found:
            raise MISSING
        if object_type is User:
            listed = user_certificates(*self.certificates[condition.value])
            return User(name="alice", identifier=self.user_identifier, certificates=listed)
        assert object_type is QueueManager
        keys = self.signing_keys[condition.value]  # either kind, where whoever reads looks for both
        return QueueManager(computer_name="HERE", public_signing_key_list=keys, public_signing_keys=keys)

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        return self.groups


def user_certificates(*encoded: bytes) -> bytes:
    entries = (
        MqUserSignCert(digest=bytes(16), identifier=Guid(b"certificate 16 b"), certificate=each) for each in encoded
    )
    return MqUserSignCerts(certificates=tuple(entries)).write()
