"""Users of the directory log in with their passwords: SASL PLAIN, checked by a bind at real directory servers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from proton.utils import LinkDetached
from pydantic import ValidationError
from structlog.testing import capture_logs

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.directory.settings import ServerKind
from qmnode.amqp.principals import AMQP_HEADER
from qmnode.errors import ConfigurationError
from qmnode.password_attempts import Attempts
from qmnode.settings.amqp import AmqpSettings
from qmnode.structures.security_descriptor import EVERYONE, Acl, QueueAccess, SecurityDescriptor, Sid, allow
from tests.amqp.conftest import SECRET, Door, amqp_message, connected, in_thread, open_door
from tests.amqp.raw import CLOSE, OPEN, frame, plain
from tests.amqp.test_admission import codes
from tests.lab.groups import Groups
from tests.lab.silence import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

OPENLDAP = pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], indirect=True, ids=["slapd"])
PASSWORD = "Kornblume 7 äöü"
SEND_ONLY = QueueAccess.MQSEC_WRITE_MESSAGE


@dataclass
class Person:
    """A user of the directory, in one group."""

    name: str
    dn: str
    sid: Sid
    group: Sid


@pytest.fixture
def person(directory: EnterpriseDirectory, fresh_name: Callable[[str], str]) -> Person:
    groups = Groups(directory, fresh_name)
    dn, identifier = groups.user()
    _, group = groups.group(dn)
    let_in(directory, dn, PASSWORD)
    return Person(dn.partition(",")[0].partition("=")[2], dn, Sid.parse(identifier), Sid.parse(group))


def let_in(directory: EnterpriseDirectory, dn: str, password: str, *, enabled: bool = True) -> None:
    connection = directory.connection
    for name, values in connection.dialect.password(password).items():
        connection.modify(dn, [Change(ChangeKind.REPLACE, name, tuple(values))])
    if connection.dialect.gives_guid:
        control = b"512" if enabled else b"514"
        connection.modify(dn, [Change(ChangeKind.REPLACE, "userAccountControl", (control,))])


@asynccontextmanager
async def opened(
    path: Path, server: DirectoryServer, port: PortSettings | None = None, **amqp: Any
) -> AsyncIterator[Door]:
    found = LdapPort(port or PortSettings(directory=server.settings), DirectoryCache(None))
    try:
        async with open_door(path, found, directory_passwords=True, **amqp) as door:
            yield door
    finally:
        await found.close()


async def outcome(door: Door, user: str, password: str) -> int:
    (code,) = await codes(door, plain(user, password), AMQP_HEADER + frame(OPEN) + CLOSE)
    return code


async def give(door: Door, queue: str, who: Sid, rights: QueueAccess) -> None:
    security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(allow(who, rights))).write()
    await door.manager.set_queue(f".\\private$\\{queue}", security=security)


@pytest.mark.servers
async def test_a_user_comes_in_with_its_groups_and_its_password_alone(
    tmp_path: Path, directory_server: DirectoryServer, directory: EnterpriseDirectory, person: Person
) -> None:
    async with opened(tmp_path, directory_server, password_failures=100) as door:
        await give(door, "orders", person.group, SEND_ONLY)
        await give(door, "exact", person.sid, SEND_ONLY)

        def work() -> None:
            options = {"user": person.name, "password": PASSWORD, "allowed_mechs": "PLAIN"}
            with connected(door.url, allow_insecure_mechs=True, **options) as client:
                for queue in ("orders", "exact"):
                    client.create_sender(queue).send(amqp_message(b"x"))
                with pytest.raises(LinkDetached, match="unauthorized-access"):
                    client.create_receiver("orders")

        await in_thread(work)
        assert await door.bodies("orders") == await door.bodies("exact") == [b"x"]

        assert await outcome(door, person.name.upper(), PASSWORD) == 0
        assert await outcome(door, "ops", SECRET) == 0
        wrong = [
            (person.name, "wrong"),
            (person.name, ""),
            (f"{person.name} ", PASSWORD),
            ("*", PASSWORD),
            (f"{person.name})(cn=*", PASSWORD),
            (person.dn, PASSWORD),
            ("", PASSWORD),
            ("nobody", PASSWORD),
            ("x" * 300, PASSWORD),
            (person.name, SECRET),
            ("ops", PASSWORD),
        ]
        assert [await outcome(door, *one) for one in wrong] == [1] * len(wrong)

        other, _ = Groups(directory, lambda kind: f"{kind}-without-{person.name}").user()
        name = other.partition(",")[0].partition("=")[2]
        assert await outcome(door, name, PASSWORD) == 1
        let_in(directory, other, PASSWORD)
        assert await outcome(door, name, PASSWORD) == 0
        if directory_server.is_active_directory:
            let_in(directory, other, PASSWORD, enabled=False)
            assert await outcome(door, name, PASSWORD) == 1


@OPENLDAP
@pytest.mark.servers
async def test_a_directory_that_is_away_lets_nobody_in_and_counts_nothing(
    tmp_path: Path, directory_server: DirectoryServer, person: Person
) -> None:
    host, _, port = directory_server.settings.servers[0].removeprefix("ldaps://").partition(":")
    relay = Relay((host, int(port)))
    reached = directory_server.settings_with(servers=(f"ldaps://127.0.0.1:{relay.port}",), tls_name=host)
    try:
        with capture_logs() as logs:
            async with opened(tmp_path, directory_server, PortSettings(directory=reached), password_failures=2) as door:
                assert await outcome(door, person.name, PASSWORD) == 0
                relay.close()
                assert [await outcome(door, person.name, PASSWORD) for _ in range(3)] == [1] * 3
    finally:
        relay.close()
    assert logs, "the door says that it is away"
    assert "too many wrong passwords" not in str(logs)


@OPENLDAP
@pytest.mark.servers
async def test_after_some_wrong_passwords_the_directory_is_not_asked(
    tmp_path: Path, directory_server: DirectoryServer, person: Person
) -> None:
    with capture_logs() as logs:
        async with opened(tmp_path, directory_server, password_failures=3) as door:
            assert await outcome(door, person.name, PASSWORD) == 0
            for _ in range(3):
                assert await outcome(door, person.name, "wrong") == 1
            assert await outcome(door, person.name, PASSWORD) == 1
            assert await outcome(door, "ops", SECRET) == 0
    written = str(logs)
    assert written.count("too many wrong passwords") == 1
    assert PASSWORD not in written


@OPENLDAP
@pytest.mark.servers
async def test_a_password_is_never_sent_in_clear(
    tmp_path: Path, directory_server: DirectoryServer, person: Person
) -> None:
    port = PortSettings(directory=directory_server.settings_with(verify=False))
    async with opened(tmp_path, directory_server, port) as door:
        assert await outcome(door, person.name, PASSWORD) == 1


async def test_a_node_without_such_a_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no directory that checks passwords.*Set directory"):
        async with open_door(tmp_path, directory_passwords=True):
            pass


def test_passwords_of_the_directory_are_for_tls_or_loopback() -> None:
    with pytest.raises(ValidationError, match=r"set amqp.certificate"):
        AmqpSettings(enabled=True, directory_passwords=True)


def test_attempts_count_by_user_and_address_for_a_minute() -> None:
    now = [0.0]
    attempts = Attempts(2, lambda: now[0])
    assert [attempts.begin("alice", "here") for _ in range(3)] == [True, True, False]
    assert not attempts.begin("bob", "here")
    assert not attempts.begin("alice", "there")
    assert attempts.begin("bob", "there")
    now[0] = 60.0
    assert attempts.begin("alice", "here")
    attempts.take_back("alice", "here")
    assert [attempts.begin("alice", "here") for _ in range(3)] == [True, True, False]


def test_attempts_of_many_names_take_no_more_memory() -> None:
    attempts = Attempts(1, lambda: 0.0)
    for number in range(10_001):
        assert attempts.begin(str(number))
    assert attempts.begin("0")
    assert not attempts.begin("10000")
