"""Who comes in: SASL and TLS as clients do it, and what roles and access lists allow."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
from proton.utils import LinkDetached

from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER, SaslServer, SaslState
from qmnode.errors import ConfigurationError
from qmnode.settings.amqp import AmqpSettings
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.amqp.conftest import READER, SECRET, Door, amqp_message, connected, in_thread, open_door, tokens_file
from tests.amqp.raw import CLOSE, OPEN, connect, frame, init, plain, read_all, values
from tests.lab.waiting import eventually
from tests.security.test_tls import node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


SEND_ONLY = QueueAccess.MQSEC_WRITE_MESSAGE


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Door]:
    """A door without ANONYMOUS."""
    async with open_door(tmp_path) as opened:
        yield opened


def speak(port: int, *parts: bytes) -> list[Any]:
    with connect(port) as connection:
        connection.sendall(b"".join(parts))
        return values(read_all(connection))


async def codes(door: Door, *parts: bytes) -> list[int]:
    """The code of the outcome that the door answers, if there is one before it closes."""
    found = await in_thread(lambda: speak(door.door.port, SASL_HEADER, *parts))
    return [one.value[0] for one in found if one.descriptor == 0x44]


async def test_plain_takes_a_name_and_its_secret(locked: Door) -> None:
    assert await codes(locked, plain("ops", SECRET), b"no amqp at all") == [0]


@pytest.mark.parametrize(
    "attempt",
    [
        plain("ops", "wrong"),
        plain("ops", ""),
        plain("", SECRET),
        plain("eye", SECRET),
        init("PLAIN", b"eye\0ops\0" + SECRET.encode()),
        init("PLAIN", b"no NULs"),
        init("ANONYMOUS"),
        init("EXTERNAL", b"ops"),
        init("SCRAM-SHA-256", b"n,,"),
        init("PLAIN", b"\0ops\0" + b"x" * 9000),
    ],
)
async def test_everything_else_is_turned_away(locked: Door, attempt: bytes) -> None:
    assert await codes(locked, attempt) in ([1], [])
    assert locked.door.counts.refused_connections == 1


async def test_amqp_without_sasl_is_answered_with_the_header_of_sasl(locked: Door) -> None:
    def work() -> bytes:
        with connect(locked.door.port) as connection:
            connection.sendall(AMQP_HEADER)
            return read_all(connection)

    assert await in_thread(work) == SASL_HEADER


async def test_amqp_without_sasl_is_anonymous_where_that_is_allowed(door: Door) -> None:
    def work() -> bytes:
        with connect(door.door.port) as connection:
            connection.sendall(AMQP_HEADER)
            return connection.recv(8)

    assert await in_thread(work) == AMQP_HEADER


def test_credentials_that_come_late_are_asked_for() -> None:
    server = SaslServer(["PLAIN"])
    assert server.feed(SASL_HEADER + init("PLAIN")) is None
    assert server.state is SaslState.RESPONSE
    assert values(bytes(server.out))[-1].descriptor == 0x42
    answer = init("PLAIN", b"").replace(b"\x53\x41", b"\x53\x43")  # not a response: has a mechanism's name
    assert server.feed(answer) is None
    assert server.state is SaslState.FAILED


def test_bytes_may_come_one_at_a_time() -> None:
    server = SaslServer(["PLAIN"])
    attempts = [server.feed(bytes((one,))) for one in SASL_HEADER + plain("ops", "x") + AMQP_HEADER]
    (attempt,) = [one for one in attempts if one is not None]
    assert (attempt.user, attempt.password) == ("ops", "x")
    assert "x" not in repr(attempt).replace("ops", "")
    assert server.rest == AMQP_HEADER


async def test_the_role_read_neither_sends_nor_receives(locked: Door) -> None:
    def work(user: str, secret: str) -> None:
        options = {"allowed_mechs": "PLAIN", "user": user, "password": secret, "allow_insecure_mechs": True}
        with connected(locked.url, **options) as client:
            client.create_sender("orders").send(amqp_message(b"x"))

    await in_thread(lambda: work("ops", SECRET))
    with pytest.raises(LinkDetached, match="unauthorized-access"):
        await in_thread(lambda: work("eye", READER))
    assert await locked.bodies("orders") == [b"x"]


async def test_the_access_list_of_a_queue_decides(door: Door) -> None:
    nobody = SecurityDescriptor(
        owner=EVERYONE, group=EVERYONE, dacl=Acl.of(allow(EVERYONE, SEND_ONLY), allow(ANONYMOUS, SEND_ONLY))
    )
    await door.manager.set_queue(r".\private$\orders", security=nobody.write())

    def work() -> None:
        with connected(door.url) as client:
            client.create_sender("orders").send(amqp_message(b"x"))
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                client.create_receiver("orders")

    await in_thread(work)
    assert await door.bodies("orders") == [b"x"]


async def test_a_client_without_a_name_is_no_way_to_other_machines(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client, pytest.raises(LinkDetached, match="anonymous_sends_elsewhere"):
            client.create_sender(r"DIRECT=TCP:127.0.0.9\private$\orders")

    await in_thread(work)
    assert [one for one in await door.manager.queues() if "127.0.0.9" in one.pathname] == []


@pytest.mark.parametrize(("authority", "mechanisms"), [(10, ["EXTERNAL", "PLAIN"]), (None, ["PLAIN"])])
async def test_a_client_certificate_of_an_authority_offers_external(
    tmp_path: Path, authority: int | None, mechanisms: list[str]
) -> None:
    tls, client = node(tmp_path, "localhost", 0), node(tmp_path, "billing", 1)
    files = {"certificate": tls.certificate, "private_key": tls.private_key, "authorities": tls.authorities}
    async with open_door(tmp_path, **files) as door:
        context = ssl.create_default_context(cafile=tls.authorities)
        if authority is not None:
            context.load_cert_chain(client.certificate, client.private_key)

        def work() -> list[Any]:
            with (
                connect(door.door.port) as plain_socket,
                context.wrap_socket(plain_socket, server_hostname="localhost") as connection,
            ):
                connection.sendall(SASL_HEADER + init("EXTERNAL") + AMQP_HEADER + frame(OPEN) + CLOSE)
                return values(read_all(connection))

        answers = await in_thread(work)
        assert answers[0].value[0] == mechanisms
        assert answers[1].value[0] == (0 if authority is not None else 1)


async def test_plain_is_not_offered_where_others_could_read_it(tmp_path: Path) -> None:
    settings = AmqpSettings(enabled=True, tokens=tokens_file(tmp_path / "tokens"))
    assert not settings.takes_passwords
    with pytest.raises(ConfigurationError, match="no client could prove"):
        async with open_door(tmp_path, address=""):
            pass


async def test_a_connection_that_is_not_opened_in_time_is_closed(tmp_path: Path) -> None:
    async with open_door(tmp_path, handshake_timeout=0.2, anonymous=True) as door:

        def work() -> bytes:
            with connect(door.door.port) as connection:
                connection.sendall(SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER)
                return read_all(connection)

        await in_thread(work)
        await eventually(lambda: door.door.counts.connections == 0, "the door has forgotten the connection")


async def test_no_more_connections_of_an_address_come_in_than_the_settings_say(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, connections_per_peer=2) as door:

        def work() -> bytes:
            with connected(door.url), connected(door.url), connect(door.door.port) as third:
                return read_all(third)

        assert await in_thread(work) == b""
        assert door.door.counts.refused_connections == 1
