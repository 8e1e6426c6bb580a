"""What must hold at the AMQP door for any bytes: the negotiation of SASL up to the principal, messages and requests to
the coordinator.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from qmnode.amqp.codec import CodecError, Decoder, Described, Symbol, UInt, ULong, encode
from qmnode.amqp.error_conditions import RefusedError
from qmnode.amqp.mapping import MappingContext, from_amqp, to_amqp
from qmnode.amqp.principals import (
    AMQP_HEADER,
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    SASL_HEADER,
    Attempt,
    Principal,
    Principals,
    SaslServer,
    SaslState,
)
from qmnode.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, parse, write
from qmnode.amqp.transactions import read_request
from qmnode.errors import MessageQueuingError
from qmnode.management.tokens import Role
from qmnode.model.serialization import Destination, serialize
from qmnode.model.stored_message import received_message
from qmnode.security.principals import Principals as Callers
from qmnode.settings.node import NodeSettings
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import Sid

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


NOW = 1_000_000.0
PLACE = MappingContext(lambda name: False, lambda: NOW)
ORDERS = Destination(ZERO_GUID, parse_single_format_name(r"DIRECT=OS:HERE\private$\orders"), transit=False)
OFFERS = ([PLAIN], [EXTERNAL, PLAIN], [PLAIN, ANONYMOUS], [ANONYMOUS])


def check_sasl(data: bytes) -> None:
    """However the bytes are cut, the negotiation ends alike; only offered mechanisms prove anything."""
    for offered in OFFERS:
        whole, cut = SaslServer(list(offered)), SaslServer(list(offered))
        attempt = whole.feed(data)
        pieces = [cut.feed(data[place : place + 1]) for place in range(len(data))]
        assert whole.state in SaslState
        assert attempt == next((one for one in pieces if one is not None), None)
        assert (whole.state, bytes(whole.out)) == (cut.state, bytes(cut.out))
        if attempt is not None:
            assert attempt.mechanism in offered
            whole.decide(accepted=False)
            assert whole.state is SaslState.FAILED
        answers = bytes(whole.out).removeprefix(SASL_HEADER)
        while answers:
            size = int.from_bytes(answers[:4], "big")
            assert 8 < size <= len(answers)
            assert isinstance(Decoder(answers[8:size]).value(), Described)
            answers = answers[size:]


ACCOUNTS = {"alice": "correct horse", "zo\u00eb": "gr\u00fcn"}
"""Users of a directory, with their passwords."""
TOKENS = {"ops": "secret", "eye": "glass"}
CERTIFICATE = "client.example"


class Directory(Callers):
    """A directory that checks passwords."""

    @property
    def checks_passwords(self) -> bool:
        return True

    async def user_of_password(self, account: str, password: str) -> Sid | None:
        return ALICE if password and ACCOUNTS.get(account) == password else None


ALICE = Sid.from_text("S-1-5-21-1-2-3-1104")


@cache
def _doors() -> tuple[tuple[Principals, str], ...]:
    """Doors of each kind, each with the name in the client's certificate."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.yaml"
        lines = [
            f"- {{name: {name}, role: operate, sha256: {hashlib.sha256(secret.encode()).hexdigest()}}}\n"
            for name, secret in TOKENS.items()
        ]
        tokens.write_text("".join(lines))
        tokens.chmod(0o600)
        doors = []
        for certificate, anonymous, passwords in (
            ("", False, False), ("", True, True), (CERTIFICATE, False, True), (CERTIFICATE, True, False),
        ):  # fmt: skip
            settings = NodeSettings(
                data=Path(folder),
                amqp={
                    "enabled": True, "address": "127.0.0.1", "tokens": tokens, "anonymous": anonymous,
                    "directory_passwords": passwords, "password_failures": 1_000_000,
                },
            )  # fmt: skip
            doors.append((Principals(settings, Directory(settings.security)), certificate))
    return tuple(doors)


def _now(work: Coroutine[Any, Any, Principal | None]) -> Principal | None:
    """The result of work that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("an attempt waits")


def _is_proven(attempt: Attempt, certificate: str, *, passwords: bool) -> bool:
    """Whether an attempt proves who it says, by what is known of everybody."""
    if attempt.mechanism != PLAIN:
        return True
    known = [TOKENS.get(attempt.user), ACCOUNTS.get(attempt.user) if passwords else None]
    return attempt.password in [one for one in known if one is not None]


def check_login(data: bytes) -> None:
    """A client is who it proves to be with a mechanism that this door offers to it, and otherwise nobody."""
    for principals, certificate in _doors():
        offered = principals.mechanisms(certificate)
        server = SaslServer(offered)
        fed = len(data) // 2
        attempt = server.feed(data[:fed])
        if attempt is None:
            attempt, fed = server.feed(data[fed:]), len(data)
        if attempt is None:
            assert server.state in (SaslState.HEADER, SaslState.INIT, SaslState.RESPONSE, SaslState.FAILED)
            continue
        assert server.state is SaslState.DECIDING
        principal = _now(principals.authenticate(attempt, certificate, "127.0.0.1"))
        proven = _is_proven(attempt, certificate, passwords=principals.settings.directory_passwords)
        assert (principal is not None) is proven
        server.decide(accepted=proven)
        assert server.state is (SaslState.DONE if proven else SaslState.FAILED)
        if principal is not None:
            names = {PLAIN: attempt.user, EXTERNAL: certificate, ANONYMOUS: ""}
            assert attempt.mechanism in offered
            assert (principal.name, principal.role) == (names[attempt.mechanism], Role.OPERATE)
            assert data[:fed].endswith(server.rest)


def check_message(data: bytes) -> None:
    """Bytes are a message or CodecError; what is written of it is the same message again."""
    try:
        message = parse(data)
        written = write(message)
    except CodecError:
        return
    again = parse(written)
    assert (repr(again.body), again.body_kind) == (repr(message.body), message.body_kind)
    try:
        sent = from_amqp(message, PLACE)
    except (CodecError, MessageQueuingError):
        return
    received = to_amqp(received_message(1, serialize(sent, ORDERS, 7, NOW)), "orders", PLACE)
    if not message.annotations:  # which may give the body another type
        assert (repr(received.body), received.body_kind) == (repr(message.body), message.body_kind)
    with suppress(CodecError):
        parse(write(received))


def check_request(data: bytes) -> None:
    """A message to the coordinator is a request, or it is refused."""
    try:
        read_request(parse(data))
    except (CodecError, RefusedError):
        return


AMQP_TARGETS: dict[str, Callable[[bytes], None]] = {
    "amqp.sasl": check_sasl,
    "amqp.login": check_login,
    "amqp.message": check_message,
    "amqp.request": check_request,
}


def _frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\2\1\0\0" + body


def amqp_seeds() -> Iterator[tuple[str, bytes]]:
    """Targets with inputs for them."""
    for mechanism, response in ((PLAIN, b"\0ops\0secret"), (PLAIN, None), (ANONYMOUS, b"x"), (EXTERNAL, None)):
        init = _frame(encode(Described(ULong(0x41), [Symbol(mechanism), response])))
        answer = _frame(encode(Described(ULong(0x43), [b"\0ops\0secret"])))
        yield "amqp.sasl", SASL_HEADER + init + answer + AMQP_HEADER
    yield "amqp.sasl", AMQP_HEADER
    credentials = [f"\0{name}\0{secret}".encode() for name, secret in (*TOKENS.items(), *ACCOUNTS.items())]
    tried = [(PLAIN, one) for one in [*credentials, b"ops\0ops\0secret", b"eye\0ops\0secret", b"\0ops\0glass", None]]
    for mechanism, response in (*tried, (ANONYMOUS, b"x"), (EXTERNAL, b""), (EXTERNAL, b"ops")):
        init = _frame(encode(Described(ULong(0x41), [Symbol(mechanism), response])))
        answer = b"" if response else _frame(encode(Described(ULong(0x43), [credentials[2]])))
        yield "amqp.login", SASL_HEADER + init + answer + AMQP_HEADER
    yield "amqp.login", AMQP_HEADER
    yield "amqp.message", b"\x00\x45\x45"  # a section whose descriptor is a list
    for kind, body in ((DATA, b"body"), (VALUE, {"a": [1, "b", 2.5, True, None]}), (SEQUENCE, [1, "b"])):
        message = AmqpMessage(
            header={"durable": True, "priority": 4, "ttl": 1500},
            annotations={Symbol("x-opt-jms-msg-type"): 2, Symbol("x-opt-msmq-app-specific"): UInt(7)},
            properties={"message_id": "1", "reply_to": "answers", "absolute_expiry_time": 1_000_010_000},
            application_properties={"tenant": "blue", "count": 5},
            body_kind=kind,
            body=body,
        )
        yield "amqp.message", write(message)
    for number, fields in ((0x31, [None]), (0x32, [b"\0\1", False])):
        yield "amqp.request", write(AmqpMessage(body_kind=VALUE, body=Described(ULong(number), fields)))
