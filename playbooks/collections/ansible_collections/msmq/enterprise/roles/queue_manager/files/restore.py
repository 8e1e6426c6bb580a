"""Put a backup in the place of a node's store, which is moved aside, with keys and what the directory said.

``restore.py unpack`` while the node runs, then ``restore.py swap`` while it is stopped. More arguments: the node's
``qmnode``, the archive, the data directory, the node's account (or nothing), and the name of the backup.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from pathlib import Path

KEPT = ("keys*", "directory-cache*")
"""What is no part of a store, and still the node's."""
MARK = "restored-from"


def unpack(program: str, archive: Path, contents: Path, name: str) -> None:
    """A store beside the other one, checked; nothing when it is not whole."""
    folder = contents.with_name(f"{contents.name}-unpacked")
    for leftover in (contents, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        extract(archive, folder)
        for arguments in (["restore", str(folder), "--data", str(contents)], ["verify", "--data", str(contents)]):
            done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ValueError((done.stdout + done.stderr).strip()[-500:])
        (contents / MARK).write_text(name + "\n")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        shutil.rmtree(contents, ignore_errors=True)
        sys.exit(f"the backup cannot be restored, and the node goes on with what it has: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        archive.unlink(missing_ok=True)


def extract(archive: Path, folder: Path) -> None:
    """The files of a store, which has no folders: nothing gets out of the folder, whatever the archive's names are."""
    folder.mkdir(mode=0o700)
    with tarfile.open(archive) as file:
        for member in file:
            content = file.extractfile(member) if member.isfile() else None
            if content is not None:
                with (folder / Path(member.name).name).open("wb") as written:
                    shutil.copyfileobj(content, written)


def swap(contents: Path, data: Path, account: str) -> None:
    """One store in the place of the other."""
    aside = data.with_name(f"{data.name}.before-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
    if data.exists():
        data.rename(aside)
    contents.rename(data)
    for pattern in KEPT:
        for path in aside.glob(pattern):
            if not (data / path.name).exists():
                shutil.move(path, data / path.name)
    if account:
        subprocess.run(["/bin/chown", "--recursive", f"{account}:", str(data)], check=True)


def main() -> None:
    """Do one half of it."""
    os.umask(0o077)
    action, program, archive, data, account, name = sys.argv[1:]
    contents = Path(data).with_name(f".{Path(data).name}.restored")
    if action == "unpack":
        unpack(program, Path(archive), contents, name)
    else:
        swap(contents, Path(data), account)


main()
