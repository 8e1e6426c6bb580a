"""Images of the node and the console, run by runc: no daemon, no registry, nobody is root and the root is read-only."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.lab.network import run
from tests.lab.waiting import wait_until

ACCOUNT = 1801
"""The number of the user and the group in the images."""


def why_no_images() -> str | None:
    """Why this machine cannot build and run images; None if it can."""
    if os.getuid() != 0:
        return "images are built and run as root here"
    missing = [name for name in ("buildah", "debootstrap", "umoci", "runc") if shutil.which(name) is None]
    return f"not installed: apt-get install {' '.join(missing)}" if missing else None


class Container:
    """A container of an image, with a volume that outlives its processes and no network but loopback."""

    def __init__(self, layout: Path, folder: Path, volume: str) -> None:
        self._bundle = folder / "bundle"
        self._state = folder / "runc"
        self._log = folder / "log"
        self._name = f"qmimage{secrets.token_hex(3)}"
        self._process: subprocess.Popen[bytes] | None = None
        self.volume = folder / "volume"
        self.volume.mkdir(mode=0o700)
        os.chown(self.volume, ACCOUNT, ACCOUNT)
        run("umoci", "unpack", "--image", f"{layout}:latest", str(self._bundle))
        configuration = json.loads((self._bundle / "config.json").read_text())
        configuration["root"]["readonly"] = True
        configuration["hostname"] = "orders1"
        process = configuration["process"]
        process |= {"terminal": False, "noNewPrivileges": True, "capabilities": {}}
        process.pop("rlimits", None)  # root alone could raise them
        kept = [one for one in configuration["mounts"] if one["destination"] not in (volume, "/sys/fs/cgroup")]
        own = {"destination": volume, "type": "bind", "source": str(self.volume), "options": ["rbind", "rw"]}
        configuration["mounts"] = [*kept, own]
        spaces = configuration["linux"]["namespaces"]
        configuration["linux"]["namespaces"] = [one for one in spaces if one["type"] != "cgroup"]
        self._configuration = configuration

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")

    @property
    def account(self) -> tuple[int, int]:
        """The user and the group that the image names."""
        user = self._configuration["process"]["user"]
        return user["uid"], user["gid"]

    def start(self, *arguments: str) -> None:
        """Start it, with other arguments of the image's program if some are given, and do not wait."""
        configuration = json.loads(json.dumps(self._configuration))
        if arguments:
            configuration["process"]["args"] = [configuration["process"]["args"][0], *arguments]
        (self._bundle / "config.json").write_text(json.dumps(configuration))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["runc", "--root", self._state, "run", "--bundle", self._bundle, self._name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def ready(self, seconds: float = 120) -> float:
        """Start the node and wait until it is ready; how many seconds that took."""
        began, known = time.monotonic(), self._starts()
        self.start()

        def started() -> bool:
            assert self._process is not None and self._process.poll() is None, self.log[-3000:]
            return self._starts() > known

        wait_until(started, seconds, "the node is ready")
        return time.monotonic() - began

    @property
    def processor_seconds(self) -> float:
        """What its first process has used of the processor."""
        state = json.loads(run("runc", "--root", str(self._state), "state", self._name).stdout)
        fields = Path(f"/proc/{state['pid']}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _starts(self) -> int:
        return self.log.count('"event": "ready"') if self._log.exists() else 0

    def do(self, *command: str, check: bool = True, said: str = "") -> subprocess.CompletedProcess[str]:
        """A command in the running container."""
        entering = ["runc", "--root", str(self._state), "exec", self._name, *command]
        done = subprocess.run(entering, capture_output=True, text=True, input=said, check=False)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}\n{self.log[-2000:]}"
        return done

    def end(self, signal: str = "TERM") -> int:
        """Send a signal to its first process and wait for the end; its exit code."""
        assert self._process is not None
        run("runc", "--root", str(self._state), "kill", self._name, signal)
        return self._process.wait(120)

    def wait(self) -> int:
        """Wait for the end of a container that ends by itself."""
        assert self._process is not None
        return self._process.wait(120)

    def close(self) -> None:
        """Remove it with its volume."""
        run("runc", "--root", str(self._state), "delete", "--force", self._name, check=False)
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        shutil.rmtree(self._bundle.parent, ignore_errors=True)
