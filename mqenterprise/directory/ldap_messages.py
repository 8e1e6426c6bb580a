"""LDAP messages as bytes (RFC 4511), as far as entries are read and written with them, and the errors of results.

ldap3 opens connections, secures and binds them. It makes and takes apart its messages field by field through pyasn1,
which costs a millisecond each: at 20,000 queues that decides how long a plan and an apply take, so these few are here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ldap3.core.exceptions import LDAPException
from ldap3.operation.search import compile_filter, parse_filter
from pyasn1.codec.ber.encoder import encode as encode_asn1

from mqenterprise.directory.entries import Change
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
    WrongPassword,
)

LARGEST_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes; a server that announces more is not believed."""

BIND, ADD, MODIFY, MODIFY_DN, DELETE, SEARCH = 0x60, 0x68, 0x66, 0x6C, 0x4A, 0x63
ENTRY, REFERENCE, DONE, INTERMEDIATE, EXTENDED = 0x64, 0x73, 0x65, 0x79, 0x78
BOOLEAN, INTEGER, OCTETS, ENUMERATED, SEQUENCE, SET = 0x01, 0x02, 0x04, 0x0A, 0x30, 0x31
CONTROLS: Final = 0xA0
TRUE: Final = b"\x01\x01\xff"
FALSE: Final = b"\x01\x01\x00"

_VERSION: Final = 3
_SIMPLE: Final = 0x80
_SUPERIOR: Final = 0x80
SCOPES: Final = {"BASE": 0, "LEVEL": 1, "SUBTREE": 2}
CHANGES: Final = {"MODIFY_ADD": 0, "MODIFY_DELETE": 1, "MODIFY_REPLACE": 2}

Control = tuple[str, bool, bytes | None]
"""Its object identifier, whether the server must understand it, its value."""


class WireError(Exception):
    """The server's bytes are not LDAP, or it went away."""


@dataclass(frozen=True, slots=True)
class Result:
    """LDAPResult (4.1.9), with the controls that came with it."""

    code: int
    message: str
    controls: Mapping[str, bytes]


# Writing


def element(tag: int, body: bytes) -> bytes:
    """One element: tag, definite length, body."""
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def integer(value: int, tag: int = INTEGER) -> bytes:
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def octets(value: bytes | str) -> bytes:
    """An octet string; text is UTF-8."""
    return element(OCTETS, value.encode() if isinstance(value, str) else value)


def _values(values: Iterable[bytes]) -> bytes:
    return element(SET, b"".join(element(OCTETS, value) for value in values))


def bind_request(dn: str, password: str) -> bytes:
    """Encode a BindRequest with a simple password (RFC 4511 4.2)."""
    return element(BIND, integer(_VERSION) + octets(dn) + element(_SIMPLE, password.encode()))


def add_request(dn: str, attributes: Mapping[str, Sequence[bytes]]) -> bytes:
    """Encode an AddRequest (RFC 4511 4.7)."""
    pairs = b"".join(element(SEQUENCE, octets(name) + _values(values)) for name, values in attributes.items())
    return element(ADD, octets(dn) + element(SEQUENCE, pairs))


def modify_request(dn: str, changes: Iterable[Change]) -> bytes:
    """Encode a ModifyRequest (RFC 4511 4.6)."""
    items = b"".join(
        element(
            SEQUENCE,
            integer(CHANGES[change.kind.value], ENUMERATED)
            + element(SEQUENCE, octets(change.attribute) + _values(change.values)),
        )
        for change in changes
    )
    return element(MODIFY, octets(dn) + element(SEQUENCE, items))


def delete_request(dn: str) -> bytes:
    """Encode a DelRequest (RFC 4511 4.8)."""
    return element(DELETE, dn.encode())


def move_request(dn: str, name: str, parent: str) -> bytes:
    """Encode a ModifyDNRequest (RFC 4511 4.9) that keeps the relative ``name`` and gives the entry another parent."""
    return element(MODIFY_DN, octets(dn) + octets(name) + TRUE + element(_SUPERIOR, parent.encode()))


def search_request(base: str, scope: str, filter: str, attributes: Iterable[str], time_limit: int) -> bytes:
    """SearchRequest (4.5.1); aliases are never followed. Raises ``ConstraintViolated`` for what is no filter."""
    body = (
        octets(base)
        + integer(SCOPES[scope], ENUMERATED)
        + integer(0, ENUMERATED)
        + integer(0)
        + integer(time_limit)
        + FALSE
        + _filter(filter)
        + element(SEQUENCE, b"".join(octets(name) for name in attributes))
    )
    return element(SEARCH, body)


@lru_cache(maxsize=1024)
def _filter(text: str) -> bytes:
    try:
        parsed = parse_filter(text, None, False, False, None, False)
        return bytes(encode_asn1(compile_filter(parsed.elements[0])))
    except LDAPException as error:
        raise ConstraintViolated(f"{text!r} is no search filter: {error}") from error


def message(identifier: int, operation: bytes, controls: Iterable[Control] = ()) -> bytes:
    """Encode an LDAPMessage (RFC 4511 4.1.1)."""
    written = b"".join(
        element(
            SEQUENCE,
            octets(oid) + (TRUE if critical else b"") + (b"" if value is None else octets(value)),
        )
        for oid, critical, value in controls
    )
    return element(SEQUENCE, integer(identifier) + operation + (element(CONTROLS, written) if written else b""))


# Reading


def header(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the element at a place. Raises ``WireError`` when it goes beyond the data."""
    try:
        tag, size = data[at], data[at + 1]
        begin = at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[begin : begin + count], "big")
            begin += count
            if not 1 <= count <= 4:
                raise WireError("a length has no definite form")
    except IndexError:
        raise WireError("an element is cut") from None
    if begin + size > len(data):
        raise WireError("an element is longer than what it is in")
    return tag, begin, begin + size


def elements(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """All elements between two places."""
    found = []
    while at < end:
        tag, begin, at = header(data, at)
        found.append((tag, begin, at))
    return found


def number(data: bytes, place: tuple[int, int, int]) -> int:
    return int.from_bytes(data[place[1] : place[2]], "big", signed=True)


_NAMES: dict[bytes, str] = {}


def _name(raw: bytes) -> str:
    known = _NAMES.get(raw)
    if known is None:
        known = raw.decode("utf-8", errors="replace").lower()
        if len(_NAMES) < 10_000:
            _NAMES[raw] = known
    return known


def entry(data: bytes, begin: int, end: int) -> tuple[str, dict[str, tuple[bytes, ...]]]:
    """SearchResultEntry (4.5.2): the distinguished name, and the values by attribute in lower case."""
    _, start, at = header(data, begin)
    dn = data[start:at].decode("utf-8", errors="replace")
    _, at, last = header(data, at)
    attributes: dict[str, tuple[bytes, ...]] = {}
    while at < last:
        _, inner, at = header(data, at)
        _, start, inner = header(data, inner)
        name = _name(data[start:inner])
        _, start, stop = header(data, inner)
        values = []
        while start < stop:
            _, first, start = header(data, start)
            values.append(data[first:start])
        if values:
            attributes[name] = tuple(values)
    return dn, attributes


def controls_of(data: bytes, places: Sequence[tuple[int, int, int]]) -> dict[str, bytes]:
    """The controls of a message by object identifier; those without a value are empty."""
    found: dict[str, bytes] = {}
    for tag, begin, end in places:
        if tag != CONTROLS:
            continue
        for _, start, stop in elements(data, begin, end):
            parts = elements(data, start, stop)
            if not parts:
                raise WireError("a control has no name")
            value = next((data[first:last] for kind, first, last in parts[1:] if kind == OCTETS), b"")
            found[data[parts[0][1] : parts[0][2]].decode("ascii", errors="replace")] = value
    return found


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came: its operation's tag and place in the data."""

    identifier: int
    tag: int
    begin: int
    end: int
    data: bytes
    places: Sequence[tuple[int, int, int]]

    @property
    def controls(self) -> dict[str, bytes]:
        return controls_of(self.data, self.places[2:])

    def entry(self) -> tuple[str, dict[str, tuple[bytes, ...]]]:
        return entry(self.data, self.begin, self.end)

    def result(self) -> Result:
        parts = elements(self.data, self.begin, self.end)
        if len(parts) < 3:
            raise WireError("a result is cut")
        said = self.data[parts[2][1] : parts[2][2]].decode("utf-8", errors="replace")
        return Result(number(self.data, parts[0]), said, self.controls)


class Wire:
    """Messages over one open socket, one request at a time."""

    def __init__(self, connection: Any) -> None:
        self._socket: socket.socket = connection.socket
        self._next_identifier = connection.server.next_message_id
        self._buffer = bytearray()

    def send(self, operation: bytes, controls: Iterable[Control] = ()) -> int:
        """Send a request; its message identifier. Raises OSError."""
        identifier: int = self._next_identifier()
        self._socket.sendall(message(identifier, operation, controls))
        return identifier

    def receive(self, identifier: int, limit: float) -> Message:
        """The next message that answers a request. Raises ``WireError``, and OSError after ``limit`` seconds."""
        deadline = time.monotonic() + limit
        while True:
            found = self._parsed(self._whole(deadline))
            if found.identifier == identifier:
                return found
            if found.identifier == 0 and found.tag == EXTENDED:
                raise WireError("the server closes the connection (notice of disconnection)")
            raise WireError("the server answered something that was not asked")

    def _whole(self, deadline: float) -> bytes:
        """The bytes of the next message."""
        while True:
            size = self._announced()
            if size is not None and len(self._buffer) >= size:
                data = bytes(self._buffer[:size])
                del self._buffer[:size]
                return data
            # Many small pieces must not take longer than one large one.
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = self._socket.recv(262_144)
            if not piece:
                raise WireError("the server closed the connection")
            self._buffer += piece

    def _announced(self) -> int | None:
        """The length of the next message, or None until enough of it has arrived."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if buffer[0] != SEQUENCE:
            raise WireError("the server does not speak LDAP")
        count = buffer[1] & 0x7F if buffer[1] & 0x80 else 0
        if len(buffer) < 2 + count:
            return None
        size = int.from_bytes(buffer[2 : 2 + count], "big") if buffer[1] & 0x80 else buffer[1]
        if size > LARGEST_MESSAGE or count > 8:
            raise WireError(f"the server announces a message of {size} bytes")
        return 2 + count + size

    @staticmethod
    def _parsed(data: bytes) -> Message:
        _, begin, end = header(data, 0)
        places = elements(data, begin, end)
        if len(places) < 2 or places[0][0] != INTEGER:
            raise WireError("the server does not speak LDAP")
        tag, start, stop = places[1]
        return Message(number(data, places[0]), tag, start, stop, data, places)


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
    49: (WrongPassword, "the name or the password is wrong"),
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
