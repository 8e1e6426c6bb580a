"""Who a remote caller is to the access check, while the directory answers and while it does not."""

from __future__ import annotations

import pytest

from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult
from qmnode.errors import MessageQueuingError
from qmnode.security.principals import Principals
from qmnode.settings.security import SecuritySettings
from qmnode.structures.security_descriptor import Sid
from tests.security.directories import GROUP, FakeDirectory

ALICE = "S-1-5-21-7-8-9-1001"


class Groups(FakeDirectory):
    """One whose groups cannot be read."""

    def __init__(self, result: DirectoryOperationResult) -> None:
        super().__init__()
        self.problem = DirectoryOperationError(result, "it says why")

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        raise self.problem


def principals(directory: FakeDirectory) -> Principals:
    settings = SecuritySettings(account_security_identifiers={"alice": ALICE})
    return Principals(settings, directory)


async def test_a_caller_has_the_groups_that_the_directory_says() -> None:
    assert {Sid.from_text(ALICE), GROUP} <= (
        await principals(FakeDirectory()).of_remote_user("CONTOSO\\alice")
    ).token.sids


async def test_while_the_groups_are_not_known_nothing_is_allowed() -> None:
    """An access list may deny a group what it allows everybody."""
    away = principals(Groups(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED))
    with pytest.raises(MessageQueuingError, match=r"MQ_ERROR_NO_DS.*it says why"):
        await away.of_remote_user("alice")
    assert GROUP not in (await away.of_remote_user("")).token.sids  # nobody in particular is in no group


async def test_a_caller_whom_only_this_node_knows_is_in_no_group() -> None:
    token = (await principals(Groups(DirectoryOperationResult.OBJECT_NOT_FOUND)).of_remote_user("alice")).token
    assert Sid.from_text(ALICE) in token.sids
    assert GROUP not in token.sids
