"""The clients of the door: how they prove who they are, and their roles.

The names and roles are those of the management API (``management.tokens``). With a name comes its SID, and the access
lists of the queues decide for it as for remote readers.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from qmnode.amqp.sasl import ANONYMOUS, EXTERNAL, PLAIN, Attempt
from qmnode.errors import MessageQueuingError
from qmnode.management.tokens import Role, Tokens
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from qmnode.security.principals import Principal as Caller
    from qmnode.security.principals import Principals as Callers
    from qmnode.settings.amqp import AmqpSettings
    from qmnode.settings.node import NodeSettings


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
        if self.role is not Role.OPERATE:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"the role of {self.name} is {self.role}, and sending, receiving and browsing are for {Role.OPERATE}",
            )


class Principals:
    """Proves who somebody is. ConfigurationError if the file of tokens cannot be used."""

    def __init__(self, settings: NodeSettings, callers: Callers) -> None:
        self.settings: AmqpSettings = settings.amqp
        self._callers = callers
        path = self.settings.tokens or settings.management.tokens
        self._tokens = Tokens(path) if path is not None else None

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
        if self._tokens is not None and self.settings.takes_passwords:
            offered.append(PLAIN)
        if self.settings.anonymous:
            offered.append(ANONYMOUS)
        return offered

    async def authenticate(self, attempt: Attempt, peer_certificate: str) -> Principal | None:
        """Return the principal of an attempt; None if it proves nothing. MQ_ERROR_NO_DS while the directory is down."""
        name, role, sid = peer_certificate, Role.OPERATE, None
        if attempt.mechanism == ANONYMOUS:
            name = ""
        elif attempt.mechanism == PLAIN:
            caller = self._tokens.caller(attempt.password) if self._tokens is not None else None
            if caller is None or caller.name != attempt.user:
                return None
            name, role, sid = caller.name, caller.role, caller.principal
        ask = partial(self._callers.of_remote_user, name) if sid is None else partial(self._callers.of_token, name, sid)
        found = Principal(name, role, ask)
        await found.caller()
        return found


def name_in_certificate(certificate: dict[str, Any] | None) -> str:
    """The common name of a certificate that was verified; empty without one."""
    for part in (certificate or {}).get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return ""


def server_context(settings: AmqpSettings) -> ssl.SSLContext:
    """TLS for clients, who may show certificates of ``authorities``. OSError for files of another kind."""
    assert settings.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.private_key)
    if settings.authorities is not None:
        context.load_verify_locations(settings.authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
