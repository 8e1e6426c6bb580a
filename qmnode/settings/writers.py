"""Files that decide what a node does, such as its settings and tokens: the users that could change them."""

import os
import stat
from pathlib import Path
from typing import Final

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def why_others_write(path: Path) -> str:
    """Return why a user other than root and that of this process could change a file or replace it, and what to do.

    Empty if none could. A group may write the folder, as only root makes others its members. OSError for a missing
    file.
    """
    file, trusted = path.stat(), {0, os.geteuid()}
    if file.st_mode & _OTHERS:
        who = "everybody" if file.st_mode & stat.S_IWOTH else "its group"
        return f"{path}: {who} may write it (mode {stat.S_IMODE(file.st_mode):o}): chmod go-w {path}"
    folder = path.resolve().parent
    above = folder.stat()
    for place, status in ((path, file), (folder, above)):
        if status.st_uid not in trusted:
            owner = f"user {status.st_uid}, who may write it"
            return f"{place}: it belongs to {owner}: chown it to root or to user {os.geteuid()}"
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        return (
            f"{path}: everybody may replace it (mode {stat.S_IMODE(above.st_mode):o} of the folder): chmod o-w {folder}"
        )
    return ""
