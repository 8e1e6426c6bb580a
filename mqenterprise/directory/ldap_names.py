"""Names: escaping in distinguished names (RFC 4514) and filters (RFC 4515), and long queue names (MS-MQDSSM 2.2.5)."""

import re
from typing import Final

from mqenterprise.directory.errors import ConstraintViolated, HalfWritten
from qmnode.structures.names import utf16_length

_DN_SPECIAL: Final = re.compile(r'[,+"\\<>;=]|^[ #]| $|\x00')
_DN_ESCAPED: Final = re.compile(rb"\\([0-9A-Fa-f]{2})|\\(.)", re.DOTALL)

# Lengths of queue names count UTF-16 code units, as Windows does: a character beyond U+FFFF has two.
LONGEST_PLAIN_NAME: Final = 63
KEPT_OF_LONG_NAME: Final = 55
NAME_WITH_HASH: Final = 64
LONGEST_EXTENSION: Final = 92
"""The most characters of an extended queue name: rangeUpper of mSMQQueueNameExt."""
LONGEST_QUEUE_NAME: Final = KEPT_OF_LONG_NAME + LONGEST_EXTENSION
HASH_POLYNOMIAL: Final = 0x9B619023
"""Gives every value of the table in 2.2.5: it is a reflected CRC-32."""


def escape_rdn(value: str) -> str:
    """A value as it stands in a distinguished name, commas, plus signs, quotes and leading spaces escaped."""
    return _DN_SPECIAL.sub(lambda found: "\\00" if found[0] == "\0" else "\\" + found[0], value)


def unescape_rdn(value: str) -> str:
    """The value that stands escaped in a distinguished name."""

    def plain(found: re.Match[bytes]) -> bytes:
        return bytes.fromhex(found[1].decode()) if found[1] else found[2]

    return _DN_ESCAPED.sub(plain, value.encode("utf-8")).decode("utf-8", errors="replace")


def child(name: str, parent: str) -> str:
    """The distinguished name of an entry under a parent."""
    return f"CN={escape_rdn(name)},{parent}"


def split_dn(dn: str) -> tuple[str, ...]:
    """The relative distinguished names, leftmost first, still escaped."""
    if "\\" not in dn:
        return tuple(part.strip() for part in dn.split(","))
    parts, start, position = [], 0, 0
    while position < len(dn):
        if dn[position] == "\\":
            position += 2
            continue
        if dn[position] == ",":
            parts.append(dn[start:position].strip())
            start = position + 1
        position += 1
    parts.append(dn[start:].strip())
    return tuple(parts)


def parent_of(dn: str, levels: int = 1) -> str:
    """The distinguished name of the parent, or of the parent's parent."""
    return ",".join(split_dn(dn)[levels:])


def name_of(dn: str, level: int = 0) -> str:
    """The plain value of one relative distinguished name, the leftmost by default. Raises HalfWritten."""
    parts = split_dn(dn)
    if level >= len(parts):
        raise HalfWritten(
            f"{dn[:200]!r} is not where an object of Message Queuing can be: its name has {len(parts)} parts, and "
            f"needs {level + 1}; move or delete it"
        )
    return unescape_rdn(parts[level].partition("=")[2])


def canonical(dn: str) -> str:
    """A distinguished name with its attribute types in capitals, as Active Directory writes them."""
    return ",".join(
        f"{attribute.upper()}{equals}{value}"
        for attribute, equals, value in (part.partition("=") for part in split_dn(dn))
    )


def normalized(dn: str) -> str:
    """A form of a distinguished name that is equal for equal names: names compare without case."""
    parts = []
    for part in split_dn(dn):
        attribute, _, value = part.partition("=")
        parts.append(f"{attribute.strip().lower()}={escape_rdn(unescape_rdn(value).lower())}")
    return ",".join(parts)


def escape_filter(value: str | bytes) -> str:
    """A value as it stands in a filter. Bytes are escaped one by one, text only where it must be."""
    if isinstance(value, bytes):
        return "".join(f"\\{byte:02x}" for byte in value)
    return re.sub(r"[\\*()\x00]", lambda found: f"\\{ord(found[0]):02x}", value)


def queue_name_hash(name: str) -> str:
    """The eight characters that keep long names apart (MS-MQDSSM 2.2.5).

    The section's characters are UTF-16 code units. Each is lowered alone, so halves of a pair stay as they are.
    """
    value = 0
    for byte in "".join(map(_lower, name)).encode("utf-16-be", errors="surrogatepass"):
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (HASH_POLYNOMIAL if value & 1 else 0)
    return f"{value:08x}"


def _lower(character: str) -> str:
    # Python also maps one letter to two, letters of two code units, and a few letters into ASCII; Windows does none.
    lower = character.lower()
    simple = len(lower) == 1 and lower.isascii() == character.isascii() and character <= "\uffff"
    return lower if simple else character


def split_queue_name(name: str) -> tuple[str, str]:
    """A queue's ``cn``, and the end of its name that does not fit there (MS-MQDSSM 3.1.6.1.2.5).

    The section inserts backslashes before ``/ # > < =`` and line feeds first. They are the escapes of the
    distinguished name and no part of the value: reading removes them (3.1.6.11.2.1), and looking a queue up
    (3.1.6.7.2.5) splits and hashes the name without them. So the plain name is measured, split and hashed here;
    otherwise the looked-up name of a long queue with such a character would never be the stored one.

    Raises ConstraintViolated if the name is empty, has a backslash, is too long, or would be split in the middle of
    a character beyond U+FFFF, of which no half can be written.
    """
    if not name or "\\" in name:
        raise ConstraintViolated(f"{name!r} is not a queue name: it must not be empty nor contain a backslash")
    length = utf16_length(name)
    if length <= LONGEST_PLAIN_NAME:
        return name, ""
    if length > LONGEST_QUEUE_NAME:
        raise ConstraintViolated(
            f"the queue name {name[:40]!r}... has {length} UTF-16 units; {LONGEST_QUEUE_NAME} are allowed"
        )
    kept = _first_units(name, KEPT_OF_LONG_NAME)
    if utf16_length(kept) != KEPT_OF_LONG_NAME:
        raise ConstraintViolated(
            f"the queue name {name[:40]!r}... cannot be stored: directories split a name of more than "
            f"{LONGEST_PLAIN_NAME} UTF-16 units after {KEPT_OF_LONG_NAME}, which is in the middle of "
            f"{name[len(kept)]!r} (it counts as two); shorten the name, or move that character"
        )
    return f"{kept}-{queue_name_hash(name)}", name[len(kept) :]


def join_queue_name(cn: str, extension: str) -> str:
    """The name that :func:`split_queue_name` took apart (MS-MQDSSM 3.1.6.11.2.1)."""
    if utf16_length(cn) == NAME_WITH_HASH:
        return _first_units(cn, KEPT_OF_LONG_NAME) + extension
    if len(cn) == NAME_WITH_HASH:  # early versions counted a character beyond U+FFFF as one
        return cn[:KEPT_OF_LONG_NAME] + extension
    return cn


def _first_units(text: str, units: int) -> str:
    """The first characters of a text that have at most so many UTF-16 code units together."""
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", errors="ignore")


def split_pathname(pathname: str) -> tuple[str, str]:
    """Computer and queue of a path name ``computer\\queue`` (MS-MQMQ 2.1.1)."""
    computer, separator, queue = pathname.partition("\\")
    if not separator or not computer or not queue or queue.lower().startswith("private$"):
        raise ConstraintViolated(f"{pathname!r} is not the path name of a public queue: write computer\\queue")
    return computer, queue
