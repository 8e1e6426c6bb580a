"""A disk under the node that forgets, at the kill, what was not synced; and that can become full or fail.

The preloaded ``shim.c`` writes a journal of what was synced, from which :meth:`Disk.cut` makes the directory that a
power cut would leave. A directory entry counts as durable once its directory was synced, strictly by POSIX: a file
created, renamed or removed since then is as it was before. File systems keep more than that as they please, so a cut
may also keep, by chance, some of what was written and not synced, and the directory as it is.
"""

import mmap
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SHIM: Final = Path(__file__).with_name("shim.c")
_PAGE: Final = 4096
_CONTROL: Final = struct.Struct("=7i")
_FAILED: Final = struct.Struct("=i")
"""Behind the numbers: how many calls failed."""


def compile_shim(folder: Path) -> Path:
    """Compile the shim into ``folder``."""
    library = folder / "shim.so"
    subprocess.run(
        ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(_SHIM), "-ldl"], check=True
    )
    return library


def lose_pages(file: Path, synced: int, chance: random.Random) -> None:
    """Put zeros in place of some pages behind the synced bytes of a file."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        for begin in range(synced, size, _PAGE):
            if chance.random() < 0.5:
                opened.seek(begin)
                opened.write(bytes(min(_PAGE - begin % _PAGE, size - begin)))


class Disk:
    """What is under ``folder/store``. ``environment`` makes a process use it."""

    def __init__(self, folder: Path, shim: Path, *, syncs: bool = True) -> None:
        self.store = folder / "store"
        self._shadow = folder / "shadow"
        self._journal = folder / "journal"
        control = folder / "control"
        for directory in (self.store, self._shadow):
            directory.mkdir(parents=True)
        control.write_bytes(bytes(_CONTROL.size + _FAILED.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)
        self.environment = {
            "LD_PRELOAD": str(shim),
            "SHIM_ROOT": str(self.store),
            "SHIM_SHADOW": str(self._shadow),
            "SHIM_JOURNAL": str(self._journal),
            "SHIM_CONTROL": str(control),
        }
        if not syncs:
            self.environment["SHIM_NO_SYNC"] = "1"
        self._accept()

    def fail(
        self,
        writes: int = 0,
        syncs: int = 0,
        *,
        read_errors: int = 0,
        write_errors: int = 0,
        lost_syncs: int = 0,
        slow_syncs: int = 0,
        until_full: int = 0,
    ) -> None:
        """From now on writes and syncs end with these values of errno; 0 lets them be done. ``read_errors``,
        ``write_errors`` and ``lost_syncs`` are shares of a million; a sync takes ``slow_syncs`` milliseconds; after
        ``until_full`` writes the disk is full.
        """
        numbers = (writes, syncs, read_errors, write_errors, lost_syncs, slow_syncs, until_full)
        self._control[: _CONTROL.size] = _CONTROL.pack(*numbers)

    @property
    def failed(self) -> int:
        """Calls that have failed so far: reads, writes and opens."""
        return int(_FAILED.unpack_from(self._control, _CONTROL.size)[0])

    def _accept(self) -> None:
        """All that is there now is durable."""
        self._entries = self._there()
        self._sizes = {status.st_ino: status.st_size for status in (file.stat() for file in self._files())}
        self._spoilt: set[int] = set()
        """Files that were written over and not synced."""
        self._journal.write_bytes(b"")
        for file in self._shadow.iterdir():
            file.unlink()

    def _files(self) -> list[Path]:
        return [file for file in self.store.rglob("*") if file.is_file()]

    def _there(self) -> dict[str, dict[str, int]]:
        """The entries of each directory, by its place in the store, with their inodes."""
        folders = [self.store, *(folder for folder in self.store.rglob("*") if folder.is_dir())]
        return {
            f"./{folder.relative_to(self.store)}" if folder != self.store else ".": {
                file.name: file.stat().st_ino for file in folder.iterdir()
            }
            for folder in folders
        }

    def _read_journal(self) -> None:
        for line in self._journal.read_text().splitlines():
            kind, *words = line.split()
            if kind == "S":
                inode, size = int(words[0]), int(words[1])
                self._sizes[inode] = max(size, self._sizes.get(inode, 0))
                self._spoilt.discard(inode)
            elif kind == "O":
                self._spoilt.add(int(words[0]))
            else:
                folder, *found = words
                self._entries[folder] = {name: int(inode) for name, inode in (word.rsplit(":", 1) for word in found)}

    def cut(self, chance: random.Random | None = None, *, reorder: bool = False) -> int:
        """Leave what a power cut would; the process has been killed. The number of bytes that were lost.

        ``chance`` decides, if it is given, how much more than what was synced is kept. ``reorder``: of that, pages in
        any order, and zeros where the others were.
        """
        self._read_journal()
        keep_entries = chance is not None and chance.random() < 0.5
        keep_bytes = chance is not None and chance.random() < 0.5
        now = self._there()
        for file in self._files():
            kept = self._shadow / str(file.stat().st_ino)
            if not kept.exists():
                os.link(file, kept)
        for entry in self.store.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        lost = 0
        left = now if keep_entries else self._entries
        folders = {".", *(f"./{name}" for name in left["."])}
        for folder in sorted(left.keys() & folders):
            (self.store / folder).mkdir(mode=0o700, exist_ok=True)
            for name, inode in left[folder].items():
                file = self._shadow / str(inode)
                if not file.exists():
                    continue  # a directory
                size = file.stat().st_size
                durable = min(self._sizes.get(inode, 0), size)
                if chance is not None and keep_bytes:
                    durable = chance.randint(durable, size)
                lost += size - durable
                os.truncate(file, durable)
                if chance is not None and reorder:
                    lose_pages(file, min(self._sizes.get(inode, 0), durable), chance)
                if inode in self._spoilt and not keep_bytes:
                    lost += durable
                    file.write_bytes(random.Random(inode).randbytes(durable))
                os.link(file, self.store / folder / name)
        self._accept()
        return lost

    def clear(self) -> None:
        """Begin with an empty store again."""
        for entry in self.store.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.fail()
        self._accept()

    def newest_log(self) -> Path:
        """The write-ahead log that was begun last."""
        return max(self.store.glob("*.log"))

    def remove(self) -> None:
        """Give the space back."""
        shutil.rmtree(self.store.parent)
