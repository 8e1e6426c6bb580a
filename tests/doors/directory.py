"""A directory in which one user is in a group."""

from __future__ import annotations

from tests.doors.expectation import DOMAIN, MEMBER
from tests.security.directories import FakeDirectory


class Groups(FakeDirectory):
    """The member is in the group until it leaves, the others are in none."""

    left = False

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        return (DOMAIN.group.write(),) if security_identifier == MEMBER.write() and not self.left else ()
