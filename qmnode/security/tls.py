"""TLS on the TCP transport, for nodes that both announce it (``security.tls``): the choice of peers and credentials.

The protocol of MS-MQQB runs inside unchanged. Both sides show certificates of an authority that the other believes, so
a peer is who it says before its first packet. An acceptor tells the two kinds of connection by their first byte.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from qmnode.security.errors import KeyStoreError
from qmnode.security.private_files import read_private
from qmnode.security.rsa_keys import ENCRYPTED
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode.settings.security import TlsSettings


FIRST_BYTE: Final = 0x16
"""The first byte of a TLS connection (a handshake record); a packet of MS-MQQB begins with 0x10."""
EVERY_PEER: Final = "*"


def is_named(names: Iterable[str], *known_as: str) -> bool:
    """Whether a peer, known by any of these names and addresses, is among ``names``."""
    wanted = {name.lower() for name in names}
    return any(name.lower() in wanted for name in known_as if name)


def initiator_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that we open; give the peer's host name as ``server_hostname``. It is checked."""
    return _context(settings, ssl.PROTOCOL_TLS_CLIENT, [] if settings.authorities is None else [settings.authorities])


def pinned_context(settings: TlsSettings, file: Path) -> ssl.SSLContext:
    """For connections that we open to a peer whose certificate is in this file: it is believed by itself."""
    context = _context(settings, ssl.PROTOCOL_TLS_CLIENT, [file])
    context.check_hostname = False
    return context


def acceptor_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that are opened to us; a peer without a certificate of a believed authority is refused."""
    believed = [*settings.pinned.values()] if settings.authorities is None else [settings.authorities]
    return _context(settings, ssl.PROTOCOL_TLS_SERVER, believed)


def load_certificate(context: ssl.SSLContext, certificate: Path | str, private_key: Path | str | None) -> None:
    """Load a certificate chain and its key. OSError for files of another kind, and for a key with a passphrase, for
    which OpenSSL would ask at the terminal and keep the event loop.
    """

    def refuse() -> str:
        raise OSError(ENCRYPTED)

    context.load_cert_chain(certificate, private_key, refuse)


def _context(settings: TlsSettings, protocol: ssl._SSLMethod, believed: Sequence[Path]) -> ssl.SSLContext:
    """TLS 1.3 with certificates on both sides. Raises :class:`KeyStoreError` with what is wrong with which file."""
    if read_private(settings.private_key) is None:
        raise KeyStoreError(
            f"{settings.private_key} is not there: put the private key of the node's certificate into it"
        )
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.pinned:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        for file in believed:
            context.load_verify_locations(file)
        load_certificate(context, settings.certificate, settings.private_key)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(map(str, (*believed, settings.certificate, settings.private_key)))
        raise KeyStoreError(f"TLS cannot be set up with {files}: {error.strerror or error}") from None
    return context


# ----------------------------------------------------------------------------------------------------------------------
# The holder of a TLS certificate: a queue manager, named by the URI ``urn:uuid:`` and its GUID, or only a client.

URI_SCHEME: Final = "urn:uuid:"
_OF_SERVERS: Final = frozenset({ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})


def queue_manager_of(certificate: Mapping[str, Any] | None, *, required: bool) -> Guid | None:
    """The queue manager that a peer's certificate names, from what ``ssl.SSLObject.getpeercert`` returns.

    Without such a name None, or ZERO_GUID if one is ``required``. ZERO_GUID as well if it cannot be read, or if there
    are two that differ: that proves nothing.
    """
    names: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    found = _named_by(value for kind, value in names if kind == "URI")
    return ZERO_GUID if found is None and required else found


def queue_manager_in(certificate: x509.Certificate) -> Guid | None:
    """The queue manager that a certificate of a file names; None if it names none, or two that differ."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    found = _named_by(names.get_values_for_type(x509.UniformResourceIdentifier))
    return None if found == ZERO_GUID else found


def is_for_clients_alone(certificate: bytes) -> bool:
    """Whether no server may show a certificate (DER), by its extended key usage (RFC 5280, 4.2.1.12).

    Queue managers open connections and accept them, so such a certificate is a user's. False without that extension:
    then the certificate is for every use. True if the extensions cannot be read.
    """
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    except ValueError:
        return True
    return _OF_SERVERS.isdisjoint(usages)


def _named_by(uris: Iterable[str]) -> Guid | None:
    found = {uri.lower().removeprefix(URI_SCHEME) for uri in uris if uri.lower().startswith(URI_SCHEME)}
    if not found:
        return None
    try:
        (text,) = found
        return guid_from_text(text)
    except ValueError:
        return ZERO_GUID
