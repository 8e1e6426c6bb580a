"""Put a backup in the place of a stopped node's store, which is moved aside, with keys and what the directory said.

Arguments: the node's ``qmnode``, the backup, the data directory, and the node's account (or nothing).
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

KEPT = ("keys", "directory-cache")
"""What is no part of a store, and still the node's."""


def main() -> None:
    """Restore, or put back what was there."""
    program, backup, data, account = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if not backup.is_dir():
        sys.exit(f"there is no backup {backup} on this host: name one of those beside it")
    aside = data.with_name(f"{data.name}.before-{time.strftime('%Y%m%dT%H%M%S')}")
    contents = data.parent / f".{data.name}.restored"
    shutil.rmtree(contents, ignore_errors=True)
    as_account = ["runuser", "-u", account, "--"] if account else []
    restored = subprocess.run(
        [program, "restore", str(backup), "--data", str(contents)], capture_output=True, text=True, check=False
    )
    if restored.returncode != 0:
        shutil.rmtree(contents, ignore_errors=True)
        sys.exit(f"the backup cannot be restored: {restored.stderr.strip()[-500:]}")
    if as_account:
        subprocess.run(["/bin/chown", "--recursive", f"{account}:", str(contents)], check=True)
    data.rename(aside)
    contents.rename(data)
    for name in KEPT:
        if (aside / name).exists() and not (data / name).exists():
            shutil.move(str(aside / name), str(data / name))


main()
