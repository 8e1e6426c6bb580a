"""The form of a copy: the names of its pieces, how each is sealed, and what an increment holds.

| name | contents |
|---|---|
| `copy.json` | the key of all other pieces, sealed with the passphrase |
| `G-base-N-TIME.K` | pieces of a list of files: the store as it was at TIME; N is the first increment after it |
| `G-file-N-NAME.K` | pieces of a file that does not change: a sorted file, or a large message |
| `G-log-N-TIME` | increment N: bytes of the log, and the moments up to TIME |

G is the generation: numbers of increments follow each other without a gap within one. Each piece is sealed with
AES-256-GCM together with its name, and each increment names the tag of the one before it. So a piece that is torn,
missing, exchanged, renamed or of another copy is detected.
"""

import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from qmnode.copies.target import PIECE, CopyError, Target
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import SCRYPT, PassphraseSealing, sealed_document

KEY: Final = "copy.json"
FORMAT: Final = 1
_NONCE: Final = 12
_TAG: Final = 16
_LENGTH: Final = struct.Struct(">I")
_MOST_LISTED: Final = 1 << 30
"""Bytes of a list of files."""
_NAME: Final = re.compile(
    r"(?P<generation>\d{5})-(?:(?P<kind>base|log)-(?P<number>\d{10})-(?P<time>\d{8}T\d{6}\.\d{3}Z)(?:\.(?P<piece>\d{4}))?"
    r"|file-(?P<since>\d{10})-[0-9a-f]{32}\.\d{4})"
)
_TIME: Final = "%Y%m%dT%H%M%S.%f"


def time_name(seconds: float) -> str:
    """A moment in a name, in whole milliseconds."""
    return f"{datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC):{_TIME}}"[:-3] + "Z"


def moment_text(seconds: float) -> str:
    """A moment for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


class Name(NamedTuple):
    """The name of a base, an increment, or a file, read."""

    generation: int
    number: int
    kind: str
    time: float
    text: str
    """The name; that of a base without the number of its piece."""


def read_name(name: str) -> Name | None:
    """Read the name of a piece; None if it is none of a copy."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    generation = int(found["generation"])
    if found["kind"] is None:
        return Name(generation, int(found["since"]), "file", 0.0, name)
    if (found["kind"] == "base") == (found["piece"] is None):
        return None
    try:
        moment = datetime.strptime(found["time"][:-1], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    text = name if found["piece"] is None else name.removesuffix(f".{found['piece']}")
    return Name(generation, int(found["number"]), found["kind"], moment, text)


def log_name(generation: int, number: int, time: float) -> str:
    """The name of an increment."""
    return f"{generation:05}-log-{number:010}-{time_name(time)}"


def base_name(generation: int, number: int, time: float) -> str:
    """The name of a base, to which the numbers of its pieces are added."""
    return f"{generation:05}-base-{number:010}-{time_name(time)}"


def file_name(generation: int, number: int) -> str:
    """A new name of a file, to which the numbers of its pieces are added."""
    return f"{generation:05}-file-{number:010}-{os.urandom(16).hex()}"


class LogPosition(NamedTuple):
    """A place in the log."""

    log: int
    offset: int


class Mark(NamedTuple):
    """A moment, and a place in the log that all writes before it are before."""

    time: float
    log: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of the store, and where it is in the copy."""

    path: str
    """Relative to the store's folder."""
    name: str
    size: int
    pieces: int
    identity: tuple[int, ...] = ()
    """Inode, time of change and size of the original: the same file is shipped once."""


@dataclass(frozen=True, slots=True)
class Increment:
    """The facts of an increment, without the bytes of the log."""

    previous: str
    """The tag of the increment before it; empty for the first of a generation."""
    end: LogPosition
    tail: tuple[int, str] = (0, "")
    """Number and hash of the last bytes before ``end``, by which a node that starts again finds its place."""
    parts: tuple[tuple[int, int, int], ...] = ()
    """Log, offset and number of the bytes that follow."""
    marks: tuple[Mark, ...] = ()
    files: tuple[Stored, ...] = ()
    """Large messages whose records are in this or in an earlier increment."""

    def packed(self, *data: bytes) -> bytes:
        """The contents of the piece."""
        head = json.dumps(asdict(self), separators=(",", ":")).encode()
        return b"".join((_LENGTH.pack(len(head)), head, *data))

    @classmethod
    def read(cls, piece: bytes) -> tuple[Self, memoryview]:
        """An increment and its bytes. Raises CopyError."""
        try:
            (length,) = _LENGTH.unpack_from(piece)
            head = json.loads(piece[_LENGTH.size : _LENGTH.size + length])
            found = cls(
                head["previous"],
                LogPosition(*head["end"]),
                tuple(head["tail"]),
                tuple((log, offset, size) for log, offset, size in head["parts"]),
                tuple(Mark(*one) for one in head["marks"]),
                tuple(_stored(one) for one in head["files"]),
            )
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise CopyError(f"an increment of another form: {error!r}") from error
        data = memoryview(piece)[_LENGTH.size + length :]
        if sum(size for _, _, size in found.parts) != len(data):
            raise CopyError("an increment does not have the bytes that it names")
        return found, data


def _stored(one: dict[str, Any]) -> Stored:
    return Stored(one["path"], one["name"], one["size"], one["pieces"], tuple(one["identity"]))


@dataclass(frozen=True, slots=True)
class Base:
    """A list of files: the store as it was at a moment."""

    time: float
    log: int
    """The first log that is needed after it."""
    files: tuple[Stored, ...] = field(default=())

    def packed(self) -> bytes:
        """The contents of its pieces together."""
        return zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode())

    @classmethod
    def read(cls, packed: bytes) -> Self:
        """Read the list. Raises CopyError if it has another form."""
        try:
            inflate = zlib.decompressobj()
            text = inflate.decompress(packed, _MOST_LISTED)
            if not inflate.eof:
                raise ValueError("it is torn, or too long")
            found = json.loads(text)
            return cls(found["time"], found["log"], tuple(_stored(one) for one in found["files"]))
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            raise CopyError(f"a list of files of another form: {error!r}") from error


class Sealed:
    """The pieces of one copy, sealed and opened."""

    def __init__(self, target: Target, key: bytes, identifier: str, node: str) -> None:
        self.target = target
        self.identifier = identifier
        self.node = node
        """The name of the node's computer."""
        self._cipher = AESGCM(key)
        self._copy = f"qmnode copy {FORMAT} {identifier} ".encode()

    @classmethod
    def open(cls, target: Target, key_file: Path) -> Self | None:
        """Open the copy at a target; None if there is none. Raises CopyError."""
        if KEY not in target.names():
            return None
        try:
            stored = target.get(KEY)
            # A writer of the target must neither choose the key, nor how much memory the passphrase takes.
            if (document := sealed_document(stored)) is None or document.get("scrypt") != SCRYPT:
                raise CopyError(f"{KEY} is not sealed as a node seals it: somebody else wrote it")
            found = json.loads(PassphraseSealing(key_file).open(stored, KEY))
            if found["format"] != FORMAT:
                raise CopyError(f"the copy has format {found['format']}: use the program that wrote it, or a newer one")
            return cls(target, bytes.fromhex(found["key"]), found["identifier"], found["node"])
        except KeyStoreError as error:
            raise CopyError(str(error)) from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CopyError(f"{KEY} is not that of a copy: {error!r}") from error

    @classmethod
    def create(cls, target: Target, key_file: Path, node: str) -> Self:
        """Begin a copy. Raises CopyError."""
        key, identifier = os.urandom(32), os.urandom(16).hex()
        document = {"format": FORMAT, "identifier": identifier, "node": node, "key": key.hex()}
        try:
            target.put(KEY, PassphraseSealing(key_file).seal(json.dumps(document).encode(), KEY))
        except KeyStoreError as error:
            raise CopyError(str(error)) from error
        return cls(target, key, identifier, node)

    def put(self, name: str, clear: bytes) -> str:
        """Write a piece. Return its tag."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, clear, self._copy + name.encode())
        self.target.put(name, nonce, sealed)
        return sealed[-_TAG:].hex()

    def get(self, name: str) -> tuple[bytes, str]:
        """Read a piece, and its tag. Raises CopyError."""
        stored = self.target.get(name)
        try:
            clear = self._cipher.decrypt(stored[:_NONCE], stored[_NONCE:], self._copy + name.encode())
        except (InvalidTag, ValueError):
            raise CopyError(f"{name} is torn, altered, or of another copy") from None
        return clear, stored[-_TAG:].hex()

    def put_all(self, name: str, pieces: Iterable[bytes]) -> Iterator[int]:
        """Write pieces under one name; yields the number of each one written."""
        for number, piece in enumerate(pieces):
            self.put(f"{name}.{number:04}", piece)
            yield number

    def put_base(self, name: str, base: Base) -> None:
        """Write a list of files, its first piece last: without that there is none."""
        packed = base.packed()
        pieces = [packed[at : at + PIECE - _LENGTH.size] for at in range(0, len(packed), PIECE - _LENGTH.size)]
        for number, piece in reversed(list(enumerate(pieces))):
            self.put(f"{name}.{number:04}", _LENGTH.pack(len(pieces)) + piece)

    def get_base(self, name: str) -> Base:
        """Read a list of files. Raises CopyError."""
        first, _ = self.get(f"{name}.0000")
        (count,) = _LENGTH.unpack_from(first)
        rest = (self.get(f"{name}.{number:04}")[0] for number in range(1, min(count, 64)))
        return Base.read(b"".join(piece[_LENGTH.size :] for piece in (first, *rest)))
