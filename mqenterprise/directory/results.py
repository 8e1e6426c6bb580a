"""The errors that result codes of a server stand for (RFC 4511 appendix A, MS-MQDSSM 2.2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqenterprise.directory.errors import (
    AccessRefused,
    BindRefused,
    ConditionFailed,
    ConstraintViolated,
    DirectoryError,
    DirectoryUnavailable,
    ObjectAlreadyExists,
    ObjectNotFound,
    SchemaMissing,
)

if TYPE_CHECKING:
    from mqenterprise.directory.wire import Result

SUCCESS: Final = 0
NO_SUCH_OBJECT: Final = 32
BUSY: Final = (51, 52)
"""busy, unavailable: the server did nothing and another one may."""

ERRORS: Final[dict[int, tuple[type[DirectoryError], str]]] = {
    3: (DirectoryUnavailable, "the server took longer than allowed"),
    4: (DirectoryError, "the server gives no more entries to us (sizeLimitExceeded)"),
    8: (BindRefused, "the server wants a secured connection"),
    10: (DirectoryError, "the object is kept by another server (referral)"),
    11: (DirectoryError, "an administrative limit of the server was exceeded"),
    16: (ConditionFailed, "the value to be replaced is not there any more"),
    17: (SchemaMissing, "the server does not know an attribute: its schema lacks Message Queuing"),
    19: (ConstraintViolated, "a value is not allowed"),
    20: (ConditionFailed, "the value is there already"),
    21: (ConstraintViolated, "a value has the wrong form"),
    32: (ObjectNotFound, "there is no such object"),
    34: (ConstraintViolated, "the name has the wrong form"),
    49: (BindRefused, "the name or the password is wrong"),
    50: (AccessRefused, "{account} may not do this: bind as an account that may, or have it given the right"),
    51: (DirectoryUnavailable, "the server is busy"),
    52: (DirectoryUnavailable, "the server is unavailable"),
    53: (ConstraintViolated, "the server is not willing to do this"),
    64: (ConstraintViolated, "the object cannot be there"),
    65: (ConstraintViolated, "the object lacks an attribute that it must have, or has one that it may not have"),
    66: (ConstraintViolated, "there are objects beneath it"),
    68: (ObjectAlreadyExists, "there is an object of that name already"),
    122: (ConditionFailed, "it is no longer as it was"),
}


def error_of(result: Result, doing: str, account: str) -> DirectoryError:
    """The exception for a result that is no success. ``doing`` was asked, as in "reading CN=a", by ``account``."""
    code = result.code
    said = result.message.strip("\0 \n")
    kind, meaning = ERRORS.get(code, (DirectoryError, f"the server answered with result code {code}"))
    # OpenLDAP and Active Directory name an unknown class in different codes, always with these words.
    if code in (21, 65, 16) and ("objectClass: value #" in said or "no such attribute in schema" in said.lower()):
        kind, meaning = SchemaMissing, "the server does not know this kind of object: its schema lacks Message Queuing"
    return kind(f"{doing}: {meaning.format(account=account)}" + (f" ({said})" if said else ""))
