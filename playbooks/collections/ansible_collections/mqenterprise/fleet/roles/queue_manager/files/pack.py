"""Copy the store of this host's running node, and pack it.

Arguments: the node's ``qmnode``, its socket, the folder for the copy, the node's account (or nothing), the archive.

The archive is there as a whole or not at all, and only its owner reads it. The store is copied and read as the node's
account: a node that was taken over may have put links into its folders, and root must not follow them. So the archive
is written outside these folders.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path


def pack(program: str, path: str, copy: Path, name: str, archive: int) -> None:
    """Copy and pack, into an open file, and leave no copy. ValueError when the node does not copy its store."""
    if not copy.parent.is_dir():
        # The unit's own folder under systemd; elsewhere the node runs as who runs this.
        copy.parent.mkdir(mode=0o700)
    shutil.rmtree(copy, ignore_errors=True)
    try:
        command = [program, "backup", str(copy), "--socket", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode != 0:
            raise ValueError(done.stderr.strip()[-500:])
        with os.fdopen(archive, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as packed:
            packed.add(copy, arcname=name)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


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
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        sys.stderr.write(f"the node cannot be backed up: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def create(archive: Path) -> int:
    """An empty file that nobody else reads, in the place of whatever has its name."""
    with contextlib.suppress(FileNotFoundError):
        archive.unlink()
    return os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def main() -> None:
    """Pack as the node's account what the node copies, into an archive of root's."""
    program, path, copies, account, given = sys.argv[1:6]
    os.umask(0o077)
    archive = Path(given)
    name = archive.name.removesuffix(".tar.gz")
    partial = archive.with_name(f".{archive.name}.partial")
    opened = create(partial)
    try:
        code = as_account(account, lambda: pack(program, path, Path(copies) / name, name, opened))
        if code:
            sys.exit(code)
        partial.replace(archive)
    finally:
        os.close(opened)
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


main()
