"""Describe a host before anything is done to it, as one JSON document.

Arguments: where releases, data and settings are or will be, the file with the process of a node without systemd (or
nothing), the node's management socket, and the account of the node (or nothing).
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

SETTINGS = "node.yaml"
READ = ("directory.yaml", "directory.password")
"""Settings that a node reads when it starts, and not when it reloads."""


def free_bytes(path: Path) -> int:
    """Free space where a path is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def started(pid_file: Path) -> float | None:
    """When the node that runs was started, in seconds since 1970; None if none runs."""
    try:
        if pid_file.name:
            pid = int(pid_file.read_text())
        else:
            show = ["systemctl", "show", "--property=MainPID", "--value", "qmnode.service"]
            pid = int(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
        if not pid:
            return None
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return None
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")


def changed_after(moment: float, files: list[Path]) -> list[Path]:
    """Those of the files that were changed after the node has read them."""
    return [path for path in files if path.exists() and path.lstat().st_mtime > moment + 0.05]


def described(path: str) -> dict:
    """Return the description of the node; empty if it does not answer."""
    node = http.client.HTTPConnection("node", timeout=5)
    try:
        node.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        node.sock.settimeout(5)
        node.sock.connect(path)
        node.request("GET", "/v1/node")
        return dict(json.loads(node.getresponse().read()))
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return {}
    finally:
        node.close()


def stale(since: float, settings: Path, node: dict, others: list[Path]) -> list[Path]:
    """Files of which the node that runs has an older state in use.

    ``settings_read`` is when it last read settings of which nothing waits for a restart, in seconds since 1970.
    """
    found = changed_after(since, [settings / SETTINGS])
    if found:
        found = changed_after(float(node.get("settings_read") or 0), found)
    return found + changed_after(since, others)


def marked(path: Path) -> str:
    """The name in a small file of the node; empty for whatever else is there, a link above all: root looks here."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(opened).st_mode)
        return os.read(opened, 1000).decode("utf-8", "replace").strip() if is_file else ""
    finally:
        os.close(opened)


def target() -> str:
    """The kind of host, which wheels have to fit: ``3.13 x86_64 glibc 2.41``."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or "musl"
    except (OSError, ValueError):
        library = "musl"
    return f"{sys.version_info[0]}.{sys.version_info[1]} {platform.machine()} {library}"


def has_account(name: str) -> bool:
    """Whether the account is there as the role makes it."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return False
    return (found.pw_dir, found.pw_shell) == ("/nonexistent", "/usr/sbin/nologin")


def main() -> None:
    """Look, and change nothing."""
    looked = time.time()
    install, data, settings, pid_file = (Path(given) for given in sys.argv[1:5])
    unit = Path("/etc/systemd/system/qmnode.service") if not pid_file.name else settings / "service"
    since = started(pid_file)
    current = install / "current"
    releases = install / "releases"
    others = [*(settings / name for name in READ), unit, current]
    node = {} if since is None else described(sys.argv[5])
    found = {
        "python": list(sys.version_info[:2]),
        "executable": sys.executable,
        "target": target(),
        "systemd": Path("/run/systemd/system").is_dir(),
        "free_install": free_bytes(install),
        "free_data": free_bytes(data),
        "current": current.readlink().name if current.is_symlink() else None,
        "documents": any(current.glob("lib/python3*/site-packages/qmnode/administration/local_settings.py")),
        "amqp": any(current.glob("lib/python3*/site-packages/proton")),
        "releases": sorted(each.parent.name for each in releases.glob("*/.complete")),
        "restored_from": marked(data / "restored-from"),
        "running": since is not None,
        "enabled": any(Path("/etc/systemd/system").glob("*.wants/qmnode.service")),
        "account": len(sys.argv) > 6 and has_account(sys.argv[6]),
        "identifier": node.get("identifier", ""),
        "tls_mode": node.get("tls_mode") or "",
        "stale": [] if since is None else [str(each) for each in stale(since, settings, node, others)],
    }
    # From the first look at the clock to the last: what is left of the time of the question was on the way.
    print(json.dumps(found | {"clock": [looked, time.time()]}))


main()
