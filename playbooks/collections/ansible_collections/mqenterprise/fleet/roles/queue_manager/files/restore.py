"""Put a backup in the place of a node's store, which is moved aside, with keys and what the directory said.

``restore.py unpack`` while the node runs, then ``restore.py swap`` while it is stopped. More arguments: the node's
``qmnode``, the archive, the data directory, the node's account (or nothing), the name of the backup, and, to unpack it,
the archive's SHA-256.

An archive holds what a node wrote, which may have been taken over: it is unpacked and read as the node's account.
A file system that is mounted at the data directory cannot be moved aside: all is done inside, as the node's account.
"""

import contextlib
import hashlib
import os
import pwd
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

KEPT = ("keys*", "directory-cache*")
"""Files of the node that are no part of its store."""
STAYS = ("lost+found", "before-*")
"""Folders of a mounted file system that are no part of a store: its own, and stores that were moved aside."""
MARK = "restored-from"
LARGE = "large"
"""The folder of large messages in a store."""
MEMORY = 512 * 1024**2
"""Bytes of address space in which an archive is read, whatever its headers claim."""
BLOCK = 4096
"""Bytes of the disk that a file takes at least."""


def unpack(program: str, archive: Path, contents: Path, account: str, name: str, checksum: str) -> None:
    """A store beside the other one, checked; nothing when it is not whole."""
    folder = contents.with_name(f"{contents.name}-unpacked")
    for leftover in (contents, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with opened(archive, checksum) as file:
            for made in (contents, folder):
                give(made, account)
            code = as_account(account, lambda: put_in_place(program, file, folder, contents, name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            archive.unlink()
        if not (contents / MARK).is_file():
            shutil.rmtree(contents, ignore_errors=True)
    if code:
        sys.exit(code)


def opened(archive: Path, checksum: str):
    """The archive to read, if it is the one that was sent. OSError if another account could have touched it, ValueError
    if it is another one."""
    file = os.fdopen(os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    try:
        found = os.fstat(file.fileno())
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
        if not own or found.st_mode & 0o022:
            raise PermissionError(f"{archive} is not a file of this account alone: another one could have replaced it")
        if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
            raise ValueError(f"{archive} is not the archive that was sent: its SHA-256 is another one")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def give(folder: Path, account: str) -> None:
    """A new folder for the account alone. Nobody but who runs this writes to the folder that it is in."""
    folder.mkdir(mode=0o700)
    if account:
        known = pwd.getpwnam(account)
        os.chown(folder, known.pw_uid, known.pw_gid, follow_symlinks=False)


def as_account(account, work) -> int:
    """Do something as the account, in a process of its own; the exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        if account:
            known = pwd.getpwnam(account)
            os.initgroups(account, known.pw_gid)
            os.setgid(known.pw_gid)
            os.setuid(known.pw_uid)
        work()
        code = 0
    except Exception as error:  # reading a forged archive can fail in any way
        reason = "it takes too much memory to read" if isinstance(error, MemoryError) else error
        sys.stderr.write(f"the backup cannot be restored, and the node goes on with what it has: {reason}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def put_in_place(program: str, archive, folder: Path, contents: Path, name: str) -> None:
    """Unpack the archive, have the node's program restore it, and check it. ValueError when it is not whole."""
    extract(archive, folder)
    for arguments in (["restore", str(folder), "--data", str(contents)], ["verify", "--data", str(contents)]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd="/")
        if done.returncode != 0:
            raise ValueError((done.stdout + done.stderr).strip()[-500:])
    (contents / MARK).write_text(name + "\n")


def extract(archive, folder: Path) -> None:
    """The files of a store, which has one folder: nothing gets out of it, whatever the archive's names are.

    ValueError for more than the disk has room for, as the store is copied once more. Files that a store does not have,
    and the node keeps beside it, are left out.
    """
    room = shutil.disk_usage(folder).free // 2
    with little_memory(), tarfile.open(fileobj=archive) as file:
        for member in file:
            file.members.clear()
            if member.size < 0:
                raise ValueError(f"{member.name!r:.80} has fewer than no bytes")
            name = Path(member.name)
            content = file.extractfile(member) if member.isfile() else None
            if content is None or any(name.match(pattern) for pattern in KEPT):
                continue
            room -= max(member.size, BLOCK)
            if room < 0:
                raise ValueError(f"the disk has no room for it twice, which unpacking takes: {folder.parent}")
            place = folder / LARGE if name.parent.name == LARGE else folder
            place.mkdir(exist_ok=True)
            with (place / name.name).open("wb") as written:
                shutil.copyfileobj(content, written)


@contextlib.contextmanager
def little_memory():
    """Limit the address space of this process to MEMORY, and give the limit back before it starts programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def swap(contents: Path, data: Path, account: str) -> None:
    """One store in the place of the other."""
    aside = data.with_name(f"{data.name}.before-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
    if data.exists():
        data.rename(aside)
    contents.rename(data)
    for pattern in KEPT:
        for path in aside.glob(pattern):
            # Renamed and never copied: a link stays the link that it is.
            with contextlib.suppress(FileExistsError):
                if not os.path.lexists(data / path.name):
                    path.rename(data / path.name)
    if account:
        subprocess.run(["/bin/chown", "--recursive", "--no-dereference", f"{account}:", str(data)], check=True)


def swap_inside(contents: Path, data: Path) -> None:
    """The same for a mounted file system: file by file, and back again if one cannot be moved."""
    aside = data / f"before-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    new = sorted(contents.iterdir(), key=lambda path: path.name == MARK)  # the mark says that all of it is there
    names = {path.name for path in new}
    old = [
        path
        for path in data.iterdir()
        if path != contents
        and not any(path.match(pattern) for pattern in STAYS)
        and (path.name in names or not any(path.match(pattern) for pattern in KEPT))
    ]
    aside.mkdir()
    moved = []
    try:
        for path, place in [*((each, aside) for each in old), *((each, data) for each in new)]:
            path.rename(place / path.name)
            moved.append((path, place / path.name))
    except OSError:
        for path, there in reversed(moved):
            there.rename(path)
        aside.rmdir()
        raise
    contents.rmdir()


def main() -> None:
    """Do one half of it."""
    os.umask(0o077)
    action, program, archive, data, account, name = sys.argv[1:7]
    is_mounted = os.path.ismount(data)
    contents = Path(data) / ".restored" if is_mounted else Path(data).with_name(f".{Path(data).name}.restored")
    if action == "unpack":
        try:
            unpack(program, Path(archive), contents, account, name, sys.argv[7])
        except (OSError, ValueError) as error:
            sys.exit(f"the backup cannot be restored, and the node goes on with what it has: {error}")
    elif is_mounted:
        sys.exit(as_account(account, lambda: swap_inside(contents, Path(data))))
    else:
        swap(contents, Path(data), account)


main()
