"""Signs messages that applications want authenticated: at sending, with their user's key (MS-MQQB 3.1.7.1.4).

The specification signs when a message leaves. But then a queue would hold the request to sign for a user, and anyone
able to write into the queue could get a signature. Here only messages sent by the user at the other end of the socket
are signed.
"""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from qmnode.directory.port import Directory, WorkgroupDirectory
from qmnode.model.message import DEFAULTS
from qmnode.model.ports import Clock, PutSignature
from qmnode.model.stored_message import PREFIX_SIZE, with_properties_place
from qmnode.security.outcomes import Signer
from qmnode.security.protector import OutgoingSecurity, level_for
from qmnode.security.signers import Signers
from qmnode.settings.security import SecuritySettings
from qmnode.structures.message_security import AuthenticationLevel, HashAlgorithm
from qmnode.structures.packet_view import DIRECT, Sections
from qmnode.structures.security_header import SecurityFlags

_AT_ONCE: Final = 8
"""Signatures made before other tasks may run: each takes 0.1 to 0.3 ms and blocks the interpreter."""
_UNASKED: Final = HashAlgorithm(DEFAULTS["hash_algorithm"])
"""The value in messages that ask for no particular hash algorithm: the settings then choose it."""
"""The place in a stored value's prefix of the offset of the MessagePropertiesHeader."""


class MessageSigning:
    """A :class:`~qmnode.model.ports.Signing` with the settings of one node."""

    def __init__(self, settings: SecuritySettings, directory: Directory | None, clock: Clock) -> None:
        self.signers = Signers(settings, directory or WorkgroupDirectory())
        self._security = OutgoingSecurity(settings)
        self._hash = settings.hash_algorithm
        self._clock = clock
        self._turn = asyncio.Lock()

    async def sign(
        self, values: Sequence[tuple[bytes, int]], user_id: int | None, *, local: bool
    ) -> list[PutSignature | None]:
        """Sign the messages as the port describes."""
        async with self._turn:  # in the order of the calls, which is that of the messages in their queue
            signer = await self.signers.of(os.geteuid() if user_id is None else user_id, self._clock.time())
            signed: list[PutSignature | None] = []
            for number, (value, level) in enumerate(values, 1):
                signed.append(self._signature(value, level, signer, local) if level else None)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            return signed

    def _signature(self, value: bytes, number: int, signer: Signer, local: bool) -> PutSignature | None:
        level = AuthenticationLevel(number)
        sections = self._sections(value)
        if not local and sections.to == DIRECT:
            return None  # MS-MQQB 5.1: messages to a direct name leave unsigned
        signature = self._security.signature(sections, signer, level)
        # A message for a local queue has arrived, with a signature that this node knows to be right (3.1.5.8.3).
        flags = SecurityFlags.of(AU=1, AS=level_for(sections, level)) if local else 0
        return partial(self._with_signature, signer, signature, flags)

    def _sections(self, value: bytes) -> Sections:
        sections = Sections(value[PREFIX_SIZE:])
        if sections.hash_algorithm != _UNASKED or self._hash == _UNASKED:
            return sections
        return Sections(sections.with_hash_algorithm(self._hash))

    def _with_signature(self, signer: Signer, signature: bytes, flags: int, value: bytes) -> bytes:
        sections = self._sections(value)
        packet = self._security.with_signature(sections, signer, signature, flags)
        # Nothing behind the MessagePropertiesHeader grew, except in messages to several queues.
        grown = len(packet) - len(sections.packet)
        if sections.is_several:
            grown = Sections(packet).properties_at - sections.properties_at
        return with_properties_place(value, PREFIX_SIZE + sections.properties_at + grown) + packet
