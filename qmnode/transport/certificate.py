"""The holder of a TLS certificate: a queue manager, named by the URI ``urn:uuid:`` and its GUID, or only a client."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text

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
