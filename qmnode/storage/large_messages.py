"""Large messages: each value in a file of its own, so that RocksDB neither logs it nor moves it between its files.

The record of such a message is a reference to its file. The file is written and synced before the record, and is free
once the record's removal is synced. After a crash between the two, the next start frees files without a record. A few
free files are kept and written over: a disk syncs that in half the time that it needs for a new file. Those that were
written last stay open. Values that came last stay in memory for a while, so that a queue that is a little behind does
not have them read from their files.

The index (``large`` in qmnode.storage.layout) says which file belongs to which message, without reading the messages.
"""

import contextlib
import errno
import functools
import os
import shutil
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocksdict import Rdict, WriteBatch

from qmnode.storage.layout import LARGE, LARGE_FILE, LAST_KEY
from qmnode.storage.records import scan, unreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from qmnode.structures.packet_view import Packet

FOLDER: Final = "large"
"""The directory of the files, in that of the store; made for the first large message."""
SMALLEST: Final = 256 * 1024
"""Bytes from which a value has a file of its own. Only ever to be lowered: what is smaller is not looked for there."""
_REFERENCE: Final = struct.Struct("<B3xQQ")
_REFERENCE_VERSION: Final = 2
"""The first byte of a reference. That of a value is the version of its prefix (qmnode.model.stored_message)."""
_HEAD: Final = struct.Struct("<16s12sQ")
"""Before the value in its file: a check of the key and the value, the message's key, the size of the value."""
_MARK: Final = bytes((_REFERENCE_VERSION,))
_SPARE_FILES: Final = 64
_SPARE_BYTES: Final = 64 * 1024 * 1024
"""Limits of the free files that are kept."""
_PIECE: Final = 512 * 1024
"""Bytes of a file that are written at a time, from a multiple of them on: the kernel keeps a file in blocks as large as
the writes that made it, and writing over parts of such blocks takes longer.
"""
_UNSTARTED: Final = 1024 * 1024
"""Bytes that are written before the disk begins with them."""
_RECENT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of values that stay in memory until their messages go."""
_RECENT: Final = 1.0
"""Seconds after which such a value gives way to others: its message goes no time soon."""
_MANY_HELD: Final = 16
_OPEN_FILES: Final = 32
"""Files that are open at a time to be written."""


@functools.lru_cache(4 * _SPARE_FILES)
def file_of(path: Path, number: int) -> Path:
    """A file of the store in this directory. Files are used again and again, and a Path takes long to make."""
    return path / FOLDER / f"{number:016x}"


def _reference(record: bytes) -> tuple[int, int] | None:
    """Bytes of the value, and its file; None if the record is the value."""
    if record[:1] != _MARK:
        return None
    if len(record) != _REFERENCE.size:
        raise DamagedError(f"the reference to a large message has {len(record)} bytes")
    _, size, number = _REFERENCE.unpack(record)
    return size, number


def size_of(record: bytes) -> int:
    """Bytes of the value of a message, by its record."""
    found = _reference(record)
    return len(record) if found is None else found[0]


def number_of(record: bytes) -> int:
    """The file of a message; 0 if it has none."""
    found = _reference(record)
    return 0 if found is None else found[1]


class DamagedError(Exception):
    """The file of a large message is missing or damaged, or the reference to it is."""


def read_value(path: Path, key: bytes, record: bytes) -> bytes:
    """``whole_value`` for a node. Raises StoreError, which says what to do."""
    if record[:1] != _MARK:
        return record
    try:
        return whole_value(path, key, record)
    except DamagedError as error:
        raise unreadable(f"{error}, in {path}") from error


def whole_value(path: Path, key: bytes, record: bytes) -> bytes:
    """The value of a message of the store in this directory, by its record: from a file if it is large. Raises
    DamagedError.
    """
    found = _reference(record)
    if found is None:
        return record
    size, number = found
    file = file_of(path, number)
    name = f"{FOLDER}/{file.name}"
    try:
        with file.open("rb", buffering=0) as opened:
            head, value = opened.read(_HEAD.size), opened.read(size)
    except OSError as error:
        raise DamagedError(f"{name}: {error.strerror}") from error
    if len(value) != size or head != _head_of(key, value):
        raise DamagedError(f"{name} does not hold what was written")
    return value


@functools.cache
def _checker() -> "AESGCM":
    """GMAC with a fixed key, as a checksum: CRC-32 takes five times as long. Loaded when it is needed first: a node
    answers before it has loaded this library.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(bytes(16))


def is_whole(content: bytes) -> bool:
    """Whether the content of a file is one value as it was written, and perhaps a rest of an older one."""
    if len(content) < _HEAD.size:
        return False
    _, key, size = _HEAD.unpack_from(content)
    value = memoryview(content)[_HEAD.size : _HEAD.size + size]
    return len(value) == size and _head_of(key, value) == content[: _HEAD.size]


def value_in(content: bytes) -> bytes:
    """The value in the content of a file; empty if it is not whole."""
    return content[_HEAD.size :][: _HEAD.unpack_from(content)[-1]] if is_whole(content) else b""


def _head_of(key: bytes, value: "Packet") -> bytes:
    return _HEAD.pack(_checker().encrypt(key, b"", value), key, len(value))


class _Pending(NamedTuple):
    """A value that is to be written to its file."""

    number: int
    key: bytes
    value: bytes
    is_new: bool
    """Whether the file has to be made."""


class _Opened(NamedTuple):
    """An open file with its number, or a directory with new files, whose number is 0. It is to be synced."""

    number: int
    file: int


class Leaving(NamedTuple):
    """Values to write and open files to sync before a batch, and files to free once the batch is synced."""

    pending: list[_Pending]
    opened: list[_Opened]
    free: list[int]


class LargeMessages:
    """The files of an open store. Only ``copy_to`` may run in a thread of its caller."""

    def __init__(self, path: Path, messages: Any, meta: Any, index: Rdict, first: Callable[[], None]) -> None:
        """``path`` is the directory of the store, ``messages`` and ``meta`` are handles of its families, and ``index``
        is the family ``meta`` for reading. ``first`` is called before a large message is placed in a store that need
        not have had any.
        """
        self._path = path
        self._messages = messages
        self._meta = meta
        self._index = index
        self._first = first
        self._used = False
        """Whether there may be large messages."""
        self._syncer: ThreadPoolExecutor | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._next = 1
        self._recent: dict[int, tuple[float, bytes, bytes]] = {}
        """Values that need not be read from their files: when each came, and its message's key."""
        self._recent_bytes = 0
        self._spare: dict[int, int] = {}
        """Files to write over, with their sizes."""
        self._spare_bytes = 0
        self._closed = False
        self._copies = 0
        """Copies that are being made."""
        self._held: list[int] = []
        """Files that have become free since the first of them began."""
        self.changed = False
        """Whether the current batch places or frees a large message."""
        self._placed: dict[bytes, int] = {}
        """Files of messages that are not in the index yet: those of the current batch, and of the one that leaves."""
        self._left: dict[bytes, int] = {}
        self._pending: list[_Pending] = []
        """Values of the current batch that are not written yet."""
        self._opened: list[_Opened] = []
        """Files of the current batch that are written, and not synced."""
        self._kept_open: dict[int, int] = {}
        """The files that were written last, by their numbers: most of them are free soon, and written over."""
        self._free: list[int] = []
        """Files that the current batch frees."""
        self._gone: set[int] = set()
        """All files whose messages are removed, until that is synced."""
        self.placed: deque[int] | None = None
        """For a copy elsewhere: files as they are given out. No file becomes free before :meth:`let_go`."""
        self.on_held: Callable[[], None] = lambda: None
        """Called when many files wait for :meth:`let_go`."""

    def take_up(self) -> list[str]:
        """Find the messages and their files; free the other files. Return the faults that were found."""
        live = dict(LARGE_FILE.unpack(value) for _, value in self._entries(b"", LAST_KEY))
        try:
            there = dict(_files(self._path))
            if there.keys() - live.keys():  # their entries need not be synced, and they may be kept
                sync_folder(self._path / FOLDER)
        except OSError as error:
            raise unreadable(f"{self._path / FOLDER}: {error.strerror}") from error
        if self.placed is not None:
            self.placed.extend(there)
        self._used = bool(live)
        self._next = max((*there, *live), default=0) + 1
        self.release(sorted(there.keys() - live.keys()))
        faults = []
        for number, size in sorted(live.items()):
            has, needed = there.get(number), size + _HEAD.size
            if has is None or has < needed:
                what = "is missing" if has is None else f"has {has} bytes of {needed}"
                faults.append(f"{FOLDER}/{number:016x} {what}")
        return faults

    def _entries(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The index of messages whose keys are from ``begin`` up to, but not including, ``end``."""
        return scan(self._index, LARGE + begin, LARGE + end)

    def value(self, key: bytes, record: bytes) -> bytes:
        """``read_value``, unless the value is in memory."""
        if len(record) == _REFERENCE.size and (recent := self._recent.get(number_of(record))) is not None:
            _, of, value = recent
            if of == key:
                return value
        return read_value(self._path, key, record)

    def beginning(self, key: bytes, record: bytes, size: int) -> bytes:
        """The first ``size`` bytes of a value, unchecked if they are read from a file. Raises StoreError."""
        found = _reference(record)
        if found is None:
            return record[:size]
        if (recent := self._recent.get(found[1])) is not None and recent[1] == key:
            return recent[2][:size]
        file = file_of(self._path, found[1])
        try:
            with file.open("rb", buffering=0) as opened:
                return opened.read(_HEAD.size + size)[_HEAD.size :]
        except OSError as error:
            raise unreadable(f"{FOLDER}/{file.name}: {error.strerror}, in {self._path}") from error

    # Changes of the current batch

    def replace(self, batch: WriteBatch, key: bytes, value: bytes) -> None:
        """Store another value of a large message."""
        self.free(batch, key)
        self.place(batch, key, value)

    def place(self, batch: WriteBatch, key: bytes, value: bytes) -> None:
        """Store a large message."""
        if self._closed:
            return
        if not self._used:
            self._first()
            self._used = True
        self.changed = True
        size = len(value)
        number = self._spare_file(size + _HEAD.size)
        self._pending.append(_Pending(number or self._next, key, value, is_new=not number))
        if not number:
            number = self._next
            self._next += 1
        self._placed[key] = number
        if self.placed is not None:
            self.placed.append(number)
        self._remember(number, key, value)
        batch.put(key, _REFERENCE.pack(_REFERENCE_VERSION, size, number), self._messages)
        batch.put(LARGE + key, LARGE_FILE.pack(number, size), self._meta)

    def _remember(self, number: int, key: bytes, value: bytes) -> None:
        """Keep a value in memory: its queue may be a little behind, and each would be read from its file again."""
        now, free = time.monotonic(), _RECENT_BYTES - self._recent_bytes
        while free < len(value):
            oldest = next(iter(self._recent), 0)
            if not oldest or now - self._recent[oldest][0] < _RECENT:
                return
            self._forget(oldest)
            free = _RECENT_BYTES - self._recent_bytes
        self._recent[number] = now, key, value
        self._recent_bytes += len(value)

    def _forget(self, number: int) -> None:
        recent = self._recent.pop(number, None)
        if recent is not None:
            self._recent_bytes -= len(recent[-1])

    def _spare_file(self, size: int) -> int:
        """The smallest that has room, unless it would waste as much as it holds; 0 if there is none."""
        while fitting := [(room, number) for number, room in self._spare.items() if size <= room <= 2 * size]:
            room, number = min(fitting)
            del self._spare[number]
            self._spare_bytes -= room
            status = self._status(number)
            if status is not None and status.st_nlink == 1:  # a backup may be another link
                return number
            self._remove([number])
        return 0

    def free(self, batch: WriteBatch, key: bytes) -> None:
        """A message is removed or replaced, which may be large. Its record is the caller's."""
        if not self._used:
            return
        number = self._placed.pop(key, None) or self._left.get(key)
        if number is None:
            found = self._index.get(LARGE + key)
            if found is None:
                return
            number, _ = LARGE_FILE.unpack(found)
        self._free_file(number)
        batch.delete(LARGE + key, self._meta)

    def free_range(self, batch: WriteBatch, begin: bytes, end: bytes) -> None:
        """The messages from one key up to, but not including, another are removed."""
        if not self._used:
            return
        for placed in (self._placed, self._left):
            for key in [key for key in placed if begin <= key < end]:
                self._free_file(placed[key])
        for key in [key for key in self._placed if begin <= key < end]:
            del self._placed[key]
        for _, value in self._entries(begin, end):
            self._free_file(LARGE_FILE.unpack(value)[0])
        batch.delete_range(LARGE + begin, LARGE + end, self._meta)

    def _free_file(self, number: int) -> None:
        if number not in self._gone:  # the index still shows what an earlier change of the batch has removed
            self.changed = True
            self._gone.add(number)
            self._free.append(number)
            self._forget(number)

    # The batch leaves

    @property
    def are_pending(self) -> bool:
        """Whether values of the current batch are to be written, or synced."""
        return bool(self._pending or self._opened)

    def start(self) -> None:
        """Write the values of the current batch, and let the disk begin with them. Raises OSError."""
        room = max(0, _OPEN_FILES - len(self._opened))
        pending, self._pending = self._pending[:room], self._pending[room:]
        self._opened += self._fill(pending)

    def leave(self) -> Leaving:
        """The current batch leaves; its values are to be written before it."""
        leaving = Leaving(self._pending, self._opened, self._free)
        self.changed = False
        self._pending, self._opened, self._free = [], [], []
        self._left, self._placed = self._placed, {}
        return leaving

    def give_up(self) -> None:
        """Nothing of the current batch is written any longer, and no value is in memory."""
        _close(self.leave().opened)
        self._recent.clear()
        self._recent_bytes = 0

    def arrived(self) -> None:
        """The batch that left can be read."""
        self._left = {}

    def begin(self, leaving: Leaving) -> "Future[None]":
        """Write values, and sync them in a thread, except some of very many. Raises OSError."""
        pending, opened, _ = leaving
        if self._syncer is None:
            self._syncer = ThreadPoolExecutor(1, "qmnode-large")
        try:
            others = len(pending) - _OPEN_FILES
            if others > 0:
                self.write(Leaving(pending[:others], [], []))
                pending = pending[others:]
            opened = opened + self._fill(pending)
            return self._syncer.submit(_sync_and_close, opened)
        except BaseException:
            _close(opened)
            raise

    def write(self, leaving: Leaving) -> None:
        """Write and sync values. Raises OSError."""
        pending, opened, _ = leaving
        self._sync_now(opened)
        for first in range(0, len(pending), _OPEN_FILES):
            self._sync_now(self._fill(pending[first : first + _OPEN_FILES]))

    def _sync_now(self, opened: list[_Opened]) -> None:
        _sync(opened)
        for number, file in opened:
            if not number:
                os.close(file)
                continue
            self._kept_open[number] = file
            if len(self._kept_open) > _OPEN_FILES:
                self._close_kept(next(iter(self._kept_open)))

    def _close_kept(self, number: int) -> None:
        if (file := self._kept_open.pop(number, None)) is not None:
            os.close(file)

    def _status(self, number: int) -> os.stat_result | None:
        """The size and the links of a file, and more; None if it is gone."""
        file = self._kept_open.get(number)
        try:
            return file_of(self._path, number).stat() if file is None else os.fstat(file)
        except OSError:
            return None

    def _remove(self, numbers: Sequence[int]) -> None:
        """Remove files, in a thread: many take long."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, "qmnode-large")
        for number in numbers:
            self._close_kept(number)
        self._remover.submit(_unlink, [file_of(self._path, number) for number in numbers])

    def _fill(self, pending: Iterable[_Pending]) -> list[_Opened]:
        """Write values. Return what is to be synced."""
        opened: list[_Opened] = []
        made = False
        try:
            for number, key, value, is_new in pending:
                if is_new and not made:
                    made = True
                    self._make_folder()
                file = self._kept_open.pop(number, None)
                if file is None:
                    flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT if is_new else 0)
                    file = os.open(file_of(self._path, number), flags, 0o600)
                opened.append(_Opened(number, file))
                _write(file, key, value)
            if made:
                opened.append(_Opened(0, os.open(self._path / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        except BaseException:
            _close(opened)
            raise
        return opened

    def _make_folder(self) -> None:
        folder = self._path / FOLDER
        if not folder.is_dir():
            with contextlib.suppress(FileExistsError):
                folder.mkdir(0o700)
            sync_folder(self._path)

    def release(self, numbers: Iterable[int]) -> None:
        """Free the files of messages whose removal is synced: keep a few to write over, and remove the others."""
        if self._copies or self._closed or self.placed is not None:
            self._held += numbers
            if self.placed is not None and len(self._held) >= _MANY_HELD:
                self.on_held()
            return
        self._set_free(numbers)

    def take_held(self) -> tuple[list[int], int]:
        """The files that wait for :meth:`let_go`, and their bytes."""
        size = self.held_bytes()
        held, self._held = self._held, []
        return held, size

    def held_bytes(self) -> int:
        """The bytes of the files that wait for :meth:`let_go`."""
        return sum(status.st_size for number in self._held if (status := self._status(number)) is not None)

    def let_go(self, held: list[int], *, shipped: bool) -> None:
        """Free these files, unless they are not shipped yet, or a backup needs them."""
        if not shipped or self._copies or self._closed:
            self._held[:0] = held
        else:
            self._set_free(held)

    def _set_free(self, numbers: Iterable[int]) -> None:
        others = []
        for number in numbers:
            self._gone.discard(number)
            if not self._keeps(number):
                others.append(number)
        if others:
            self._remove(others)

    def _keeps(self, number: int) -> bool:
        if len(self._spare) >= _SPARE_FILES:
            return False
        status = self._status(number)
        if status is None or status.st_nlink != 1 or self._spare_bytes + status.st_size > _SPARE_BYTES:
            return False
        self._spare[number] = status.st_size
        self._spare_bytes += status.st_size
        return True

    def close(self) -> None:
        """Let go of the database: its lock is released with the last reference."""
        self.give_up()
        self._closed = True
        self._used = False
        for worker in (self._syncer, self._remover):
            if worker is not None:
                worker.shutdown()
        for number in list(self._kept_open):
            self._close_kept(number)
        del self._messages, self._meta, self._index, self._first

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Meanwhile no file becomes free."""
        self._copies += 1
        try:
            yield
        finally:
            self._copies -= 1
            if not self._copies:
                held, self._held = self._held, []
                self.release(held)

    def copy_to(self, target: Path) -> None:
        """Add the files to a copy of the store, as links if they are on one file system; may run in a thread, while
        they are ``kept``.
        """
        free = set(self._spare)
        numbers = [number for number, _ in _files(self._path) if number not in free]
        if numbers:
            (target / FOLDER).mkdir(0o700)
            for number in numbers:
                _link(file_of(self._path, number), file_of(target, number))
            sync_folder(target / FOLDER)


_SYNC_FILE_RANGE_WRITE: Final = 2


@functools.cache
def _start_writeback() -> Callable[[int, int, int, int], object]:
    """sync_file_range(2): the disk begins to write, and nobody waits. Nothing happens where there is no such call."""
    import ctypes

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return lambda *_: None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


def _write(file: int, key: bytes, value: bytes) -> None:
    """Write a value, its first part last: the disk begins with the others while the head is worked out."""
    start, view, first, place = _start_writeback(), memoryview(value), _PIECE - _HEAD.size, _PIECE
    for begin in range(first, len(view), _PIECE):
        piece = view[begin : begin + _PIECE]
        _write_all(file, piece, place)
        place += len(piece)
        if not place % _UNSTARTED or len(piece) < _PIECE:
            start(file, 0, 0, _SYNC_FILE_RANGE_WRITE)
    head = memoryview(_head_of(key, value))
    _write_all(file, view[:first], len(head))
    _write_all(file, head, 0)
    start(file, 0, 0, _SYNC_FILE_RANGE_WRITE)


def _write_all(file: int, data: memoryview, place: int) -> None:
    while written := os.pwrite(file, data, place):  # a disk that becomes full says so at the next write
        if written == len(data):
            return
        data, place = data[written:], place + written
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close(opened: list[_Opened]) -> None:
    for _, file in opened:
        os.close(file)


def _sync(opened: list[_Opened]) -> None:
    """Sync files. They are closed if that fails."""
    try:
        for _, file in opened:
            os.fdatasync(file)
    except BaseException:
        _close(opened)
        raise


def _sync_and_close(opened: list[_Opened]) -> None:
    _sync(opened)
    _close(opened)


def _unlink(files: list[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # it stays, and the next start tries again
            file.unlink()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        return  # it was free when the copy began
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        with contextlib.suppress(FileNotFoundError):
            _copy_synced(source, target)


def _copy_synced(source: Path, target: Path) -> None:
    """Copy a file for its owner only, and sync it."""
    with source.open("rb") as original, target.open("wb") as copy:
        target.chmod(0o600)
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())


def _files(path: Path) -> Iterator[tuple[int, int]]:
    """The files of large messages in a store's directory, and their sizes."""
    with contextlib.suppress(FileNotFoundError), os.scandir(path / FOLDER) as entries:
        for entry in entries:
            with contextlib.suppress(ValueError, FileNotFoundError):
                yield int(entry.name, 16), entry.stat().st_size


def sync_folder(folder: Path) -> None:
    """Make the entries of a directory survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
