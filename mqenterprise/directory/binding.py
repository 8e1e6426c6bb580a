"""One connection to one server: opened, secured, bound. The only module that knows how ldap3 opens a connection."""

import ipaddress
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ldap3
from ldap3.core.exceptions import LDAPExceptionError

from mqenterprise.directory.errors import (
    BindRefused,
    CertificateRefused,
    DirectoryError,
    DirectoryUnavailable,
    WrongPassword,
)
from mqenterprise.directory.ldap_messages import Wire
from mqenterprise.directory.settings import BindMethod, DirectorySettings
from qmnode.errors import reason_of
from qmnode.security.tls import load_certificate

DEFAULT_PORTS: Final = {"ldap": 389, "ldaps": 636}
# TLS alerts by which a server says that it does not like *our* certificate or has none itself.
_CERTIFICATE_WORDS: Final = ("CERTIFICATE", "HOSTNAME", "IP ADDRESS MISMATCH")


class _Tls(ldap3.Tls):  # type: ignore[misc]  # ldap3 has no types
    """TLS as Python's own library does it: the name is checked, and the handshake has a time limit.

    ldap3's own check of names goes through a copy of a function that Python removed, and it waits without limit for a
    handshake when the server says nothing.
    """

    def __init__(self, settings: DirectorySettings, host: str) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE)
        self._settings = settings
        self._host = settings.tls_name or host
        self.failure: Exception | None = None

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        """Called by ldap3 for ldaps when the socket is open, and for StartTLS."""
        settings = self._settings
        try:
            for file in (settings.ca_file, settings.client_certificate, settings.client_key):
                if file is not None:
                    with file.open("rb"):  # OpenSSL's own error does not say which file it looked for
                        pass
            context = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
            if not settings.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if settings.client_certificate is not None:
                load_certificate(context, settings.client_certificate, settings.client_key)
            connection.socket.settimeout(settings.connect_timeout)
            connection.socket = context.wrap_socket(connection.socket, server_hostname=self._host)
        except (OSError, ValueError) as error:
            self.failure = error
            raise


class LdapSession:
    """An open connection and what the pool must know of it."""

    def __init__(self, url: str, connection: Any, clock: Callable[[], float]) -> None:
        self.url = url
        self.connection = connection
        self._clock = clock
        self.used_at = clock()
        self.broken = False
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        """Its messages; ldap3 has none outstanding once it is bound."""
        if self._wire is None:
            self._wire = Wire(self.connection)
        return self._wire

    def touch(self) -> None:
        """Note that it was used now."""
        self.used_at = self._clock()

    def usable(self, idle_limit: float) -> bool:
        """Whether it may be used again: not idle for too long, and the server has not closed it or said goodbye."""
        if self.broken or self.connection.closed or self._clock() - self.used_at > idle_limit:
            return False
        try:
            readable, _, _ = select.select([self.connection.socket], [], [], 0)
        except (OSError, ValueError):
            return False
        return not readable

    def close(self) -> None:
        """Say goodbye as far as that works."""
        self.broken = True
        try:
            self.connection.unbind()
        except (LDAPExceptionError, OSError):
            self.connection.strategy._close_socket()


def host_of(url: str) -> str:
    """The host of a server's URL."""
    return urlsplit(url).hostname or ""


def open_session(
    url: str,
    settings: DirectorySettings,
    clock: Callable[[], float] = time.monotonic,
    address: str | None = None,
) -> LdapSession:
    """Connect, secure and bind. Raises ``CertificateRefused``, ``BindRefused`` or ``DirectoryUnavailable``.

    ``address`` is where to connect to when the system's resolver is not to be asked for the host of the URL.
    """
    scheme, host, server, tls = _server(url, settings, address)
    connection = ldap3.Connection(
        server,
        **_identity(settings, host),
        client_strategy=ldap3.SYNC,
        auto_bind=ldap3.AUTO_BIND_NONE,
        auto_referrals=False,
        auto_escape=False,
        auto_encode=False,
        check_names=False,
        raise_exceptions=False,
        return_empty_attributes=False,
    )
    session = LdapSession(url, connection, clock)
    try:
        with _limited(connection, settings):
            connection.open(read_server_info=False)
            # ldap3 leaves the socket without a limit, and with its own option in whole seconds by a socket option.
            connection.socket.settimeout(settings.connect_timeout)
            if scheme == "ldap" and settings.start_tls and not connection.start_tls(read_server_info=False):
                raise DirectoryUnavailable(f"{url} does not offer StartTLS: use ldaps://, or set start_tls to false")
            bound = settings.bind is BindMethod.ANONYMOUS or connection.bind(read_server_info=False)
        connection.socket.settimeout(settings.operation_timeout)
    except (LDAPExceptionError, OSError) as error:
        session.close()
        raise _explained(url, tls, settings, error) from error
    except DirectoryError:
        session.close()
        raise
    except (LookupError, TypeError, ValueError) as error:  # of the decoder of ldap3, such as for a referral
        session.close()
        raise DirectoryUnavailable(f"{url} answers the bind with what is neither success nor refusal") from error
    if not bound:
        result = dict(connection.result)
        session.close()
        raise _refusal(url, settings, result)
    return session


@contextmanager
def _limited(connection: Any, settings: DirectorySettings) -> Iterator[None]:
    """End the connection if it is not open in time. ldap3 limits only the time of each piece of an answer, and a server
    may send pieces for ever, before it has shown who it is.
    """

    def end() -> None:
        with suppress(OSError, AttributeError):  # closed already
            socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)

    limit = threading.Timer(settings.connect_timeout + settings.operation_timeout, end)
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _server(url: str, settings: DirectorySettings, address: str | None) -> tuple[str, str, Any, _Tls]:
    parts = urlsplit(url)
    if parts.scheme == "ldapi":
        path = unquote(parts.netloc)
        tls = _Tls(settings, "localhost")
        server = ldap3.Server(f"ldapi://{path}", get_info=ldap3.NONE, connect_timeout=settings.connect_timeout)
        return parts.scheme, path, server, tls
    host = parts.hostname or ""
    tls = _Tls(settings, host)
    server = ldap3.Server(
        address or host,
        port=parts.port or DEFAULT_PORTS[parts.scheme],
        use_ssl=parts.scheme == "ldaps",
        tls=tls,
        get_info=ldap3.NONE,
        connect_timeout=settings.connect_timeout,
    )
    return parts.scheme, host, server, tls


def _identity(settings: DirectorySettings, host: str) -> dict[str, Any]:
    match settings.bind:
        case BindMethod.ANONYMOUS:
            return {"authentication": ldap3.ANONYMOUS}
        case BindMethod.SIMPLE:
            return {"authentication": ldap3.SIMPLE, "user": settings.user, "password": settings.secret()}
        case BindMethod.EXTERNAL:
            return {"authentication": ldap3.SASL, "sasl_mechanism": ldap3.EXTERNAL, "sasl_credentials": ""}
        case BindMethod.GSSAPI:
            # The ticket is for the server's name; a load balancer's or an address's would be for nobody.
            return {
                "authentication": ldap3.SASL,
                "sasl_mechanism": ldap3.KERBEROS,
                "sasl_credentials": (settings.tls_name or host,),
                "user": settings.user,
            }


def _explained(url: str, tls: _Tls, settings: DirectorySettings, error: Exception) -> DirectoryUnavailable:
    cause = tls.failure
    if isinstance(cause, OSError) and cause.filename is not None:
        return DirectoryUnavailable(
            f"{url} cannot be reached safely: {cause.filename} cannot be read ({cause.strerror}); "
            "see ca_file, client_certificate and client_key in the directory's settings"
        )
    if isinstance(cause, ssl.SSLError) and any(word in str(cause).upper() for word in _CERTIFICATE_WORDS):
        reason = getattr(cause, "verify_message", "") or cause.reason or str(cause)
        trusted = settings.ca_file or "the system's authorities"
        return CertificateRefused(
            f"{url} has a certificate that is not accepted ({reason}): it must be issued by {trusted} "
            f"and be good for the name {_name_of(url)!r}"
        )
    if isinstance(cause, ssl.SSLEOFError):
        return DirectoryUnavailable(f"{url} closed the connection before it was secured")
    if isinstance(cause, ssl.SSLError):
        return DirectoryUnavailable(f"{url} does not speak TLS as we do ({cause.reason or cause}): check the port")
    if isinstance(cause or error, TimeoutError | socket.timeout) or "timed out" in str(error):
        return DirectoryUnavailable(f"{url} does not answer within {settings.connect_timeout:g} s")
    return DirectoryUnavailable(
        f"{url} cannot be reached ({reason_of(cause or error)}): start it, "
        "or correct servers in the directory's settings"
    )


def _name_of(url: str) -> str:
    host = urlsplit(url).hostname or url
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _refusal(url: str, settings: DirectorySettings, result: dict[str, Any]) -> BindRefused:
    who = settings.user or f"{settings.bind.value} identity"
    match result.get("result"):
        case 49:
            return WrongPassword(f"{url} does not know {who}, or the password is wrong")
        case 8:
            return BindRefused(f"{url} wants a secured connection for {who}: use ldaps:// or StartTLS")
        case code:
            said = result.get("message") or result.get("description") or code
            return BindRefused(f"{url} refuses {who}: {said}")
