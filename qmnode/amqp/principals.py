"""The clients of the door: how they prove who they are, and their roles.

The names and roles are those of the management API (``management.tokens``), and users of the directory where that is
set. With a name comes its SID, and the access lists of the queues decide for it as for remote readers.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.amqp.codec import CodecError, Decoder, Described, UByte, ULong, encode, symbols
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.management.tokens import Role, Tokens
from qmnode.password_attempts import Attempts
from qmnode.security.tls import is_for_clients_alone, load_certificate, queue_manager_of
from qmnode.settings.amqp import AmqpSettings
from qmnode.settings.node import NodeSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_text, guid_to_text

if TYPE_CHECKING:
    from qmnode.security.principals import Principal as Caller
    from qmnode.security.principals import Principals as Callers

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
ANONYMOUS: Final = "ANONYMOUS"

_MECHANISMS: Final = 0x40
_INIT: Final = 0x41
_CHALLENGE: Final = 0x42
_RESPONSE: Final = 0x43
_OUTCOME: Final = 0x44
_HEAD: Final = struct.Struct(">IBBH")
_SASL_FRAME: Final = 1
_LONGEST_FRAME: Final = 8192
"""The specification has 512 bytes for frames before the connection is open; tokens may be longer."""


class SaslState(Enum):
    """The stages of the negotiation."""

    HEADER = auto()
    INIT = auto()
    RESPONSE = auto()
    """The client chose PLAIN and sent no credentials with that: they were asked for."""
    DECIDING = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Attempt:
    """The identity that a client claims, with its proof."""

    mechanism: str
    user: str = ""
    password: str = ""
    """The secret of PLAIN; empty for other mechanisms."""

    def __repr__(self) -> str:
        return f"<Attempt {self.mechanism} {self.user!r}>"


class SaslServer:
    """One negotiation. ``feed`` it until it returns an attempt, then ``decide``; what came after is in ``rest``."""

    def __init__(self, mechanisms: list[str]) -> None:
        self.mechanisms = mechanisms
        self.state = SaslState.HEADER
        self.without = False
        """The client begins with AMQP at once, which is as good as ANONYMOUS."""
        self.out = bytearray()
        """Bytes that are to be sent to the client."""
        self._in = bytearray()

    @property
    def rest(self) -> bytes:
        """The bytes that came after the negotiation."""
        return bytes(self._in)

    def feed(self, data: bytes) -> Attempt | None:
        """Take bytes; the attempt, once there is one."""
        self._in += data
        if self.state is SaslState.HEADER and not self._read_header():
            return Attempt(ANONYMOUS) if self.without else None
        while self.state in (SaslState.INIT, SaslState.RESPONSE):
            frame = self._frame()
            if frame is None:
                return None
            try:
                attempt = self._take(frame)
            except (CodecError, IndexError, TypeError):
                self.state = SaslState.FAILED
                return None
            if attempt is not None:
                self.state = SaslState.DECIDING
                return attempt
        return None

    def decide(self, accepted: bool) -> None:
        """Whether the attempt proved it."""
        self.state = SaslState.DONE if accepted else SaslState.FAILED
        if not self.without:
            self._send(_OUTCOME, [UByte(0 if accepted else 1)])

    def _read_header(self) -> bool:
        """Whether a negotiation has begun."""
        header = bytes(self._in[: len(SASL_HEADER)])
        if header == SASL_HEADER:
            del self._in[: len(SASL_HEADER)]
            self.out += SASL_HEADER
            self._send_raw(b"\x00" + encode(ULong(_MECHANISMS)) + _list_of(symbols(self.mechanisms)))
            self.state = SaslState.INIT
            return True
        if header == AMQP_HEADER and ANONYMOUS in self.mechanisms:
            self.without = True
            self.state = SaslState.DECIDING
        elif len(header) == len(SASL_HEADER) or not (SASL_HEADER.startswith(header) or AMQP_HEADER.startswith(header)):
            self.out += SASL_HEADER  # 2.2: answer with the header that would do, and close
            self.state = SaslState.FAILED
        return False

    def _frame(self) -> bytes | None:
        """The body of the next frame; None if it is not whole yet, or there is none."""
        if len(self._in) < _HEAD.size:
            return None
        size, offset, kind, _ = _HEAD.unpack_from(self._in)
        if not _HEAD.size <= offset * 4 <= size <= _LONGEST_FRAME or kind != _SASL_FRAME:
            self.state = SaslState.FAILED
            return None
        if len(self._in) < size:
            return None
        body = bytes(self._in[offset * 4 : size])
        del self._in[:size]
        return body

    def _take(self, body: bytes) -> Attempt | None:
        decoder = Decoder(body)
        frame = decoder.value()
        if not isinstance(frame, Described) or not isinstance(frame.value, list) or not decoder.at_end:
            raise CodecError("no SASL frame")
        expected = _INIT if self.state is SaslState.INIT else _RESPONSE
        if frame.descriptor != expected:
            raise CodecError("another SASL frame than is due")
        fields = [*frame.value, None, None]
        if self.state is SaslState.RESPONSE:
            return _plain(fields[0])
        return self._chosen(str(fields[0]), fields[1])

    def _chosen(self, mechanism: str, response: Any) -> Attempt | None:
        if mechanism not in self.mechanisms:
            self.decide(accepted=False)
            return None
        if mechanism != PLAIN:
            return Attempt(mechanism)
        if response is None:
            self._send(_CHALLENGE, [b""])
            self.state = SaslState.RESPONSE
            return None
        return _plain(response)

    def _send(self, descriptor: int, fields: list[Any]) -> None:
        self._send_raw(encode(Described(ULong(descriptor), fields)))

    def _send_raw(self, body: bytes) -> None:
        self.out += _HEAD.pack(_HEAD.size + len(body), 2, _SASL_FRAME, 0) + body


def _list_of(value: bytes) -> bytes:
    """A list whose one value is encoded already."""
    return b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value


def _plain(response: Any) -> Attempt:
    """RFC 4616: authorization identity, NUL, authentication identity, NUL, password."""
    if not isinstance(response, bytes) or response.count(b"\0") != 2:
        raise CodecError("credentials that are not those of PLAIN")
    authorization, user, password = (part.decode("utf-8", "replace") for part in response.split(b"\0"))
    if authorization not in ("", user):
        raise CodecError("nobody may act for another")
    return Attempt(PLAIN, user, password)


log = structlog.get_logger(__name__)

_AT_ONCE: Final = 2
"""Passwords that are checked at a time: the node itself asks the directory over few threads."""
_LONGEST_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who is connected."""

    name: str
    """Empty for nobody in particular."""
    role: Role
    ask: Callable[[], Awaitable[Caller]]

    async def caller(self) -> Caller:
        """For the access lists of the queues, with its groups of now. MQ_ERROR_NO_DS while the directory is down."""
        return await self.ask()

    def check(self) -> None:
        """MQ_ERROR_ACCESS_DENIED for a role that may neither send nor see bodies."""
        if not self.role.changes:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"the role of {self.name} is {self.role}, and sending, receiving and browsing are for {Role.OPERATE}",
            )


class Principals:
    """Proves who somebody is. ConfigurationError if the file of tokens cannot be used."""

    def __init__(self, settings: NodeSettings, callers: Callers) -> None:
        self.settings: AmqpSettings = settings.amqp
        self._callers = callers
        self._machines = {guid_from_text(one): user for one, user in self.settings.queue_managers.items()}
        path = self.settings.tokens or settings.management.tokens
        self._tokens = Tokens(path) if path is not None else None
        if self.settings.directory_passwords and not callers.checks_passwords:
            raise ConfigurationError(
                "amqp.directory_passwords: this node has no directory that checks passwords. Set directory to one "
                "over LDAP, or amqp.directory_passwords to false"
            )
        self._attempts = Attempts(self.settings.password_failures, time.monotonic)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def load(self) -> None:
        """Read the tokens again. ConfigurationError; what was there before stays then."""
        if self._tokens is not None:
            self._tokens.load()

    @property
    def offers_anything(self) -> bool:
        """Whether any client can come in."""
        return bool(self.mechanisms("")) or self.settings.authorities is not None

    def mechanisms(self, peer_certificate: str) -> list[str]:
        """The mechanisms that a client is offered, the best first."""
        offered = [EXTERNAL] if peer_certificate else []
        if (self._tokens is not None or self.settings.directory_passwords) and self.settings.takes_passwords:
            offered.append(PLAIN)
        if self.settings.anonymous:
            offered.append(ANONYMOUS)
        return offered

    def user_of(self, tls: ssl.SSLObject | None) -> str:
        """The user that a client's verified certificate stands for; empty if there is none.

        The certificate of a queue manager stands for no user, except for one that ``amqp.queue_managers`` gives it.
        """
        certificate: dict[str, Any] | None = tls.getpeercert() if tls is not None else None
        if tls is None or not certificate:
            return ""
        machine = queue_manager_of(certificate, required=False)
        if machine is not None:
            user = self._machines.get(machine, "")
            if not user:
                log.warning(
                    "the certificate of a queue manager is no user's (amqp.queue_managers maps those of bridges)",
                    queue_manager=guid_to_text(machine), common_name=_common_name(certificate)[:100],
                )  # fmt: skip
            return user
        until = self.settings.server_certificates_until
        if until is not None and datetime.now(UTC).date() > until:
            shown = tls.getpeercert(binary_form=True)
            if shown is None or not is_for_clients_alone(shown):
                log.warning(
                    "a certificate that a server may show is no user's any more (amqp.server_certificates_until)",
                    common_name=_common_name(certificate)[:100], until=str(until),
                )  # fmt: skip
                return ""
        return _common_name(certificate)

    async def authenticate(self, attempt: Attempt, peer_certificate: str, block: str) -> Principal | None:
        """The principal of an attempt from an address block; None: it proves nothing. MQ_ERROR_NO_DS: no directory."""
        if attempt.mechanism == PLAIN:
            found = self._by_token(attempt) or await self._by_password(attempt, block)
        else:
            name = "" if attempt.mechanism == ANONYMOUS else peer_certificate
            found = Principal(name, Role.OPERATE, partial(self._callers.of_remote_user, name))
        if found is not None:
            await found.caller()
        return found

    def _by_token(self, attempt: Attempt) -> Principal | None:
        caller = self._tokens.caller(attempt.password) if self._tokens is not None else None
        if caller is None or caller.name != attempt.user:
            return None
        name, sid = caller.name, caller.principal
        ask = partial(self._callers.of_remote_user, name) if sid is None else partial(self._callers.of_token, name, sid)
        return Principal(name, caller.role, ask)

    async def _by_password(self, attempt: Attempt, block: str) -> Principal | None:
        """A user of the directory, which is asked no more often than it should be."""
        if not self.settings.directory_passwords:
            return None
        keys = (f"user {attempt.user.casefold()[:_LONGEST_NAME]}", f"address {block}")
        if not self._attempts.begin(*keys):
            log.warning(
                "too many wrong passwords: the directory is not asked (amqp.password_failures)",
                user=attempt.user[:100], address=block,
            )  # fmt: skip
            return None
        try:
            async with self._turns:
                user = await self._callers.user_of_password(attempt.user, attempt.password)
        except MessageQueuingError:
            self._attempts.take_back(*keys)  # nothing was tried
            raise
        if user is None:
            return None
        self._attempts.take_back(*keys)
        return Principal(attempt.user, Role.OPERATE, partial(self._callers.of_directory_user, attempt.user, user))


def _common_name(certificate: dict[str, Any]) -> str:
    """The common name of a certificate that was verified; empty without one."""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return ""


def server_context(settings: AmqpSettings) -> ssl.SSLContext:
    """TLS for clients, who may show certificates of ``authorities``. OSError for files of another kind."""
    assert settings.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings.certificate, settings.private_key)
    if settings.authorities is not None:
        context.load_verify_locations(settings.authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
