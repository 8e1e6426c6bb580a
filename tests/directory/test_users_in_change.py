"""Changes of other objects make no user be read again, and a certificate that is gone is believed no more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.port import LdapPort, PortSettings
from qmnode.directory.port import Queue, QueueManager
from qmnode.security.errors import MessageRefusedError
from qmnode.security.sender_identity import SenderClaim, SenderDirectory, parse_certificate
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import SenderIdentifierType
from tests.directory.test_port import count_requests
from tests.lab.groups import Groups
from tests.lab.waiting import eventually
from tests.security.directories import user_certificates
from tests.security.messages import NOW, certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from qmnode.structures.guid import Guid

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers
LIFETIME = SecuritySettings().user_cert_lifetime / 1000


class Users:
    """Users of a directory as a node knows them, and what the node has heard."""

    def __init__(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        settings = PortSettings(directory=directory.connection.settings, watch_interval=0.1, fresh_for=0)
        self.port = LdapPort(settings, DirectoryCache(None))
        self.senders = SenderDirectory(self.port, SecuritySettings())
        self.heard: list[Guid | None] = []
        self._directory, self._groups = directory, Groups(directory, fresh_name)
        self.port.watch(self._hear)

    def _hear(self, identifier: Guid | None) -> None:
        self.senders.forget_users(identifier)
        self.heard.append(identifier)

    def user(self, *numbers: int) -> tuple[str, list[SenderClaim]]:
        """A new user with certificates, and the claims of messages that are signed with these."""
        dn, identifier = self._groups.user()
        self.register(dn, *numbers)
        certificates = [parse_certificate(certificate(1024, number)) for number in numbers]
        return dn, [SenderClaim(SenderIdentifierType.SID, identifier, one) for one in certificates]

    def register(self, dn: str, *numbers: int) -> None:
        """Exactly these certificates from now on."""
        packed = user_certificates(*(certificate(1024, number) for number in numbers))
        values = (packed,) if numbers else ()
        self._directory.connection.modify(dn, (Change(ChangeKind.REPLACE, "mSMQSignCertificates", values),))


@pytest.fixture
async def users(directory: EnterpriseDirectory, fresh_name: Named) -> AsyncIterator[Users]:
    opened = Users(directory, fresh_name)
    await eventually(lambda: None in opened.heard, "the feed of changes has begun")
    yield opened
    await opened.senders.close()
    await opened.port.close()


@pytest.mark.parametrize("rounds", [1, pytest.param(60, marks=pytest.mark.soak)])
async def test_a_known_user_is_not_read_again_while_others_change(
    users: Users, directory: EnterpriseDirectory, fresh_name: Named, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await asyncio.to_thread(directory.queue_managers.add, QueueManager(computer_name=fresh_name("NODE")))
    claims = [claim for _ in range(3) for claim in users.user(0)[1]]
    other, _ = users.user(1)
    for claim in claims:
        await users.senders.confirm(claim, NOW)
    await eventually(lambda: node.identifier in users.heard, "the node is heard of")
    for claim in claims:
        await users.senders.confirm(claim, NOW)
    requests, messages, changes = count_requests(users.port, monkeypatch), 0, 0

    async def after(_: object, identifier: Guid | None) -> None:
        nonlocal messages, changes
        await eventually(lambda: identifier in users.heard, "the change is heard of")
        changes += 1
        users.heard.clear()
        for claim in claims:
            messages += 1
            await users.senders.confirm(claim, NOW)

    for number in range(rounds):
        users.heard.clear()
        queue = Queue(pathname=f"{node.computer_name}\\orders{number}")
        made = await asyncio.to_thread(directory.queues.add, queue)
        await after(made, made.identifier)
        await after(
            await asyncio.to_thread(directory.queues.modify, replace(made, label="x"), ("label",)), made.identifier
        )
        await after(await asyncio.to_thread(directory.queues.delete, made), made.identifier)
        await asyncio.to_thread(users.register, other, number % 2 + 2)
        await after(None, directory.users.at(other).identifier)
    print(f"{len(requests)} reads of the directory for {messages} messages and {changes} changes")
    assert requests == []


async def test_one_of_two_certificates_that_is_gone_counts_at_once(users: Users) -> None:
    dn, (first, second) = users.user(0, 1)
    for claim in (first, second):
        await users.senders.confirm(claim, NOW)
    await asyncio.to_thread(users.register, dn, 1)
    await eventually(lambda: users.senders.cached(first, NOW) is None, "the user is asked for again")
    with pytest.raises(MessageRefusedError):
        await users.senders.confirm(first, NOW)
    await users.senders.confirm(second, NOW)


async def test_the_last_certificate_of_a_user_counts_at_once_or_after_its_lifetime(
    users: Users, directory: EnterpriseDirectory
) -> None:
    """Active Directory reports no user that loses the last one: its objects are watched for having any."""
    dn, (claim,) = users.user(0)
    await users.senders.confirm(claim, NOW)
    await asyncio.to_thread(users.register, dn)
    later = NOW
    if directory.connection.dialect.gives_guid:
        later += LIFETIME + 1
    else:
        await eventually(lambda: users.senders.cached(claim, NOW) is None, "the user is asked for again")
    with pytest.raises(MessageRefusedError):
        await users.senders.confirm(claim, later)
