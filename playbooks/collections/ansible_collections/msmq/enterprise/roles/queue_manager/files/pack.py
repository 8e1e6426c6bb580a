"""Copy the store of this host's running node, and pack it. Arguments: the node's ``qmnode``, its socket, the archive.

The archive is there as a whole or not at all, and only its owner reads it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path


def main() -> None:
    """Copy and pack, and leave nothing but the archive."""
    program, path, archive = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    name = archive.name.removesuffix(".tar.gz")
    copy, partial = archive.with_name(name), archive.with_name(f".{archive.name}.partial")
    if not archive.parent.is_dir():
        # The unit's own folder under systemd; elsewhere the node runs as who runs this.
        archive.parent.mkdir(mode=0o700)
    os.umask(0o077)
    for leftover in (copy, archive, partial):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
    try:
        command = [program, "backup", str(copy), "--socket", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"the node cannot be backed up: {done.stderr.strip()[-500:]}")
        with tarfile.open(partial, "w:gz") as file:
            file.add(copy, arcname=name)
        partial.replace(archive)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        partial.unlink(missing_ok=True)


main()
