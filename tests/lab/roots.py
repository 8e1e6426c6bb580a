"""Clean roots of Debian releases, booted: what a package is installed into. Each has no network but loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.lab.hosts import child_of
from tests.lab.network import hierarchies, kill_recorded, record, remove_group, run
from tests.lab.waiting import wait_until

PROJECT = Path(__file__).resolve().parent.parent.parent
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qmnode-tests/roots"
"""The roots as debootstrap made them, which runs share."""
BASE = ("systemd", "systemd-sysv", "dbus")


def why_no_roots() -> str | None:
    """Why this machine cannot make and boot a root; None if it can."""
    if os.getuid() != 0:
        return "roots need root"
    missing = [name for name in ("debootstrap", "systemd-nspawn") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (apt-get install debootstrap systemd-container)" if missing else None


def clean_root(suite: str, *more: str) -> Path:
    """A root with systemd and what every Debian has, and no Python; and with more packages. Made once, in minutes."""
    kept = KEPT / "+".join((suite, *more))
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f".{kept.name}-{os.getpid()}")
        packages = ",".join((*BASE, *more))
        run("debootstrap", "--variant=minbase", f"--include={packages}", suite, str(partial), limit=1800)
        with suppress(OSError):  # another process was faster
            partial.rename(kept)
    return kept


class DebianRoot:
    """A copy of a clean root, with more packages, as an overlay. It keeps its files when it is booted anew."""

    def __init__(self, suite: str, folder: Path, *more: str) -> None:
        self.suite = suite
        self._folder = folder
        self._name = f"qmroot{secrets.token_hex(3)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        base = clean_root(suite, *more)
        self.root = folder / "root"
        upper, work = folder / "upper", folder / "work"
        for made in (upper, work, self.root):
            made.mkdir(parents=True)
        options = f"lowerdir={base},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))
        (self.root / "etc/hostname").write_text("debian\n")
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost debian\n")
        (self.root / "etc/dpkg/dpkg.cfg.d/lab").write_text("force-unsafe-io\n")
        (self.root / "packages").mkdir()

    def fetch(self, *packages: Path) -> None:
        """Copy packages into it, and have its apt fetch what they depend on."""
        for package in packages:
            shutil.copy(package, self.root / "packages")
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        names = [f"/packages/{package.name}" for package in packages]
        self._chroot("apt-get", "update", "-qq")
        self._chroot("apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", *names)

    def _chroot(self, *command: str) -> None:
        run("chroot", str(self.root), "env", "DEBIAN_FRONTEND=noninteractive", *command)

    def copy(self, file: Path) -> None:
        """Have a file of this machine at the same place."""
        place = self.root / str(file).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)

    def type(self, script: str, user: str, folder: str, *, online: bool) -> subprocess.CompletedProcess[str]:
        """What a user types into a shell in a folder, without a boot: what it printed, and the code at its end."""
        own = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "SSL_CERT_FILE"}
        settings = [f"--setenv={name}={value}" for name, value in own.items() if online]
        command = [
            "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", f"--directory={self.root}",
            f"--user={user}", f"--chdir={folder}", "--timezone=off", "--link-journal=no", "--console=pipe", *settings,
            *(["--resolv-conf=replace-host"] if online else ["--private-network", "--resolv-conf=off"]),
            "bash", "-c", script,
        ]  # fmt: skip
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )

    def boot(self) -> None:
        """Boot it, and wait until its systemd has started everything."""
        groups = [hierarchy / self._name for hierarchy in hierarchies()]
        for group in groups:
            group.mkdir(exist_ok=True)
        with (self._folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "sh", "-c", 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"',
                    "sh", *map(str, groups), "--", "systemd-nspawn",
                    "--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={self.root}",
                    f"--machine={self._name}", "--private-network", "--resolv-conf=off", "--timezone=off",
                    "--link-journal=no", "--console=pipe",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        record(self._folder / "nspawn", self._process.pid)
        self._leader = 0

        def booted() -> bool:
            assert self._process is not None and self._process.poll() is None, f"it did not boot: {self.console}"
            if not self._leader:
                with suppress(AssertionError, OSError):
                    self._leader = child_of(self._process.pid)
                    record(self._folder / "leader", self._leader)
            answer = self.do("systemctl", "is-system-running", check=False) if self._leader else None
            return answer is not None and answer.stdout.strip() in ("running", "degraded")

        wait_until(booted, 180, f"{self.suite} boots")

    @property
    def console(self) -> str:
        """What it said when it booted."""
        return (self._folder / "console.log").read_text(errors="replace")[-2000:]

    def do(self, *command: str, check: bool = True, said: str = "") -> subprocess.CompletedProcess[str]:
        """A command in the booted root, with ``said`` as its input."""
        entering = ("nsenter", "--target", str(self._leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--root")
        done = subprocess.run(
            [*entering, "--", "env", "-C", "/", "-i", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8",
             "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *command],
            capture_output=True, text=True, check=False, input=said,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{self.suite}: {' '.join(command)}: {done.stdout}{done.stderr}"
        return done

    def install(self, package: Path, *options: str) -> str:
        """Install or upgrade a package that was fetched, as an administrator does; what apt said."""
        command = ("apt-get", "install", "-y", "--no-install-recommends", *options)
        done = self.do(*command, f"/packages/{package.name}")
        return done.stdout + done.stderr

    def close(self) -> None:
        """Cut its power and remove it."""
        kill_recorded(self._folder / "leader")
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            self._process.kill()
            self._process.wait()
        for hierarchy in hierarchies():
            remove_group(hierarchy / self._name)
        run("umount", "--lazy", str(self.root), check=False)
        shutil.rmtree(self._folder, ignore_errors=True)
