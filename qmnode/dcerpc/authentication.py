"""Authentication by NTLM, Kerberos, or SPNEGO with either inside, according to the settings (MS-RPCE 3.3.1.5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.dcerpc import kerberos, ntlm
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType, SecurityContext
from qmnode.errors import MessageQueuingError
from qmnode.security.errors import KeyStoreError, KeyStoreUnavailableError
from qmnode.security.private_files import read_private
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.negotiation import Mechanism
    from qmnode.settings.remote_read import RemoteReadSettings

log = structlog.get_logger(__name__)

_PRIVACY: Final = AuthenticationLevel.PRIVACY


def private_file(path: Path, setting: str) -> bytes:
    """The file of a setting, with secrets. MQ_ERROR_ACCESS_DENIED if it is missing or other users can read it."""
    try:
        content = read_private(path)
    except (KeyStoreError, KeyStoreUnavailableError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{setting}: {error}") from None
    if content is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{setting}: {path} is not there")
    return content


class AcceptorAuthentication:
    """Makes the acceptor's side of security contexts, with the users and the keytab of the settings."""

    def __init__(self, settings: RemoteReadSettings) -> None:
        self._users = settings.users
        self._keytab = settings.keytab
        self._realms = settings.realms
        ntlm.buffer_kinds()
        if self._users is not None:
            private_file(self._users, "remote_read.users")
        if self._keytab is not None:
            kerberos.check_installed()
            private_file(self._keytab, "remote_read.keytab")

    def __call__(self, auth_type: AuthenticationType, level: AuthenticationLevel, context_id: int) -> SecurityContext:
        """Make a context. Raises AuthenticationError for a mechanism that is not configured."""
        context: SecurityContext | None = None
        match auth_type:
            case AuthenticationType.NTLM:
                context = self._ntlm(level, context_id)
            case AuthenticationType.KERBEROS:
                context = self._kerberos(level, context_id)
            case AuthenticationType.NEGOTIATE:
                return self._negotiate(level, context_id)
        if context is None:
            raise AuthenticationError(f"authentication type {auth_type} ({auth_type.name}) is not configured here")
        return context

    def _ntlm(self, level: AuthenticationLevel, context_id: int) -> ntlm.NtlmContext | None:
        return None if self._users is None else ntlm.acceptor_context(self._users, level, context_id)

    def _kerberos(self, level: AuthenticationLevel, context_id: int) -> kerberos.KerberosContext | None:
        return (
            None if self._keytab is None else kerberos.acceptor_context(self._keytab, level, context_id, self._realms)
        )

    def _negotiate(self, level: AuthenticationLevel, context_id: int) -> SecurityContext:
        from qmnode.dcerpc import negotiation

        def make(identifier: str) -> Mechanism | None:
            if identifier in negotiation.KERBEROS:
                return self._kerberos(level, context_id)
            return self._ntlm(level, context_id) if identifier in negotiation.NTLM else None

        return negotiation.NegotiationAcceptor(make, level, context_id)


def acceptor_authentication(settings: RemoteReadSettings) -> AcceptorAuthentication | None:
    """The configured authentication of callers; None if there is none."""
    if settings.users is None and settings.keytab is None:
        return None
    return AcceptorAuthentication(settings)


class InitiatorAuthentication:
    """Makes the initiator's side of security contexts for hosts, as the account of the settings.

    Kerberos may request a ticket from a domain controller meanwhile, so this must not be called in the event loop.
    """

    def __init__(self, settings: RemoteReadSettings) -> None:
        self._settings = settings
        self._mechanism = AuthenticationType[settings.mechanism.upper()]
        ntlm.buffer_kinds()
        wants_tickets = self._mechanism is AuthenticationType.NEGOTIATE and settings.password_file is None
        if self._mechanism is AuthenticationType.KERBEROS or wants_tickets:
            kerberos.check_installed()

    def __call__(self, host: str) -> SecurityContext:
        """Make a context. Raises AuthenticationError without a ticket or a password."""
        match self._mechanism:
            case AuthenticationType.KERBEROS:
                return self._kerberos(host)
            case AuthenticationType.NTLM:
                return self._ntlm(host)
        return self._negotiate(host)

    def _kerberos(self, host: str) -> kerberos.KerberosContext:
        settings = self._settings
        return kerberos.initiator_context(settings.service, settings.service_host or host, settings.account, _PRIVACY)

    def _ntlm(self, host: str) -> ntlm.NtlmContext:
        settings = self._settings
        if settings.password_file is None:
            raise AuthenticationError("NTLM needs a password: set remote_read.password_file")
        content = private_file(settings.password_file, "remote_read.password_file")
        password = content.decode().partition("\n")[0].rstrip("\r")
        return ntlm.initiator_context(settings.service, host, settings.account, password, _PRIVACY, kerberos.CONTEXT_ID)

    def _negotiate(self, host: str) -> SecurityContext:
        from qmnode.dcerpc import negotiation

        offered: list[tuple[Sequence[str], Mechanism]] = []
        has_password = self._settings.password_file is not None
        if kerberos.is_installed() and not (has_password and "\\" in self._settings.account):
            try:
                offered.append((negotiation.KERBEROS, self._kerberos(host)))
            except AuthenticationError as error:
                if not has_password:
                    raise
                log.info("no Kerberos ticket for a remote read, so NTLM is offered alone", host=host, reason=str(error))
        if has_password:
            offered.append((negotiation.NTLM, self._ntlm(host)))
        return negotiation.NegotiationInitiator(offered, _PRIVACY, kerberos.CONTEXT_ID)


def initiator_authentication(settings: RemoteReadSettings) -> Callable[[str], SecurityContext] | None:
    """The account under which this node reads elsewhere; None to read anonymously."""
    return InitiatorAuthentication(settings) if settings.account else None
