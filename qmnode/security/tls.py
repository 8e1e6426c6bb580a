"""TLS on the TCP transport, for nodes that both announce it (``security.tls``): who gets it, and with what.

The protocol of MS-MQQB runs inside unchanged. Both sides show certificates of an authority that the other believes, so
a peer is who it says before its first packet. An acceptor tells the two kinds of connection by their first byte.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from qmnode.security.errors import KeyStoreError
from qmnode.security.private_files import read_private

if TYPE_CHECKING:
    from qmnode.settings.security import TlsSettings

FIRST_BYTE: Final = 0x16
"""The first byte of a TLS connection (a handshake record); a packet of MS-MQQB begins with 0x10."""
EVERY_PEER: Final = "*"


def requires_tls(settings: TlsSettings | None, *names: str) -> bool:
    """Whether connections with a peer, known by any of these names and addresses, must be TLS."""
    if settings is None:
        return False
    announced = {peer.lower() for peer in settings.peers}
    return EVERY_PEER in announced or any(name.lower() in announced for name in names)


def initiator_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that we open; give the peer's host name as ``server_hostname``. It is checked."""
    return _context(settings, ssl.PROTOCOL_TLS_CLIENT)


def acceptor_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections that are opened to us; a peer without a certificate that we believe is turned away."""
    return _context(settings, ssl.PROTOCOL_TLS_SERVER)


def _context(settings: TlsSettings, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    """TLS 1.3 with certificates on both sides. Raises :class:`KeyStoreError` with what is wrong with which file."""
    if read_private(settings.private_key) is None:
        raise KeyStoreError(
            f"{settings.private_key} is not there: put the private key of the node's certificate into it"
        )
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(settings.authorities)
        context.load_cert_chain(settings.certificate, settings.private_key)
    except OSError as error:  # ssl.SSLError is one
        files = f"{settings.authorities}, {settings.certificate}, {settings.private_key}"
        raise KeyStoreError(f"TLS cannot be set up with {files}: {error.strerror or type(error).__name__}") from None
    return context
