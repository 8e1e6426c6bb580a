"""A compose file, played by runc: its services, networks, volumes, conditions and health checks, and nothing else.

What this module does not know is refused, so that nothing of the file is left out unseen. Images are OCI layouts. Roots
are read-only, so the containers of one image share its files. A new volume has what its image has at that place, with
its owner, as in other engines.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.lab.network import Network, run
from tests.lab.waiting import wait_until

KNOWN: Final = {
    *("image", "init", "read_only", "cap_drop", "security_opt", "tmpfs", "networks", "restart", "hostname", "command"),
    *("entrypoint", "volumes", "healthcheck", "depends_on", "working_dir", "ports"),
}


class ServiceEnded(Exception):
    """A service that should run, or should have ended well, did not; with what it has said."""


@dataclass(frozen=True, slots=True)
class Image:
    """An unpacked image."""

    root: Path
    specification: dict[str, Any]
    """What umoci made of it for runc."""
    config: dict[str, Any]

    @classmethod
    def unpack(cls, layout: Path, bundle: Path) -> Image:
        run("umoci", "unpack", "--image", f"{layout}:latest", str(bundle))

        def blob(digest: str) -> dict[str, Any]:
            read: dict[str, Any] = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
            return read

        index = json.loads((layout / "index.json").read_text())
        manifest = blob(index["manifests"][0]["digest"])
        specification = json.loads((bundle / "config.json").read_text())
        return cls(bundle / "rootfs", specification, blob(manifest["config"]["digest"])["config"])


class Composed:
    """The services of a compose file. ``up`` is the one command."""

    def __init__(self, file: Path, images: dict[str, Image]) -> None:
        self._file = file
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text("utf-8"))["services"]
        for name, service in self.services.items():
            assert set(service) <= KNOWN, f"{name}: this player does not know {set(service) - KNOWN}"
        (network,) = {one for service in self.services.values() for one in service["networks"]}
        self.network = Network([network])
        self.folder = self.network.folder
        self._states = self.folder / "runc"
        self._images = images
        self._reached = {name: {condition: threading.Event() for condition in _CONDITIONS} for name in self.services}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._failed = threading.Event()

    def up(self) -> float:
        """Start everything in its order, and wait until it is healthy or has ended well. How many seconds that took."""
        began = time.monotonic()
        for name, service in self.services.items():
            (network,) = service["networks"]
            self.network.add_host(name, network)
        lines = ["127.0.0.1 localhost", *(f"{at} {name}" for name, at in self.network.addresses.items())]
        (self.folder / "hosts.txt").write_text("\n".join(lines) + "\n")
        with ThreadPoolExecutor(len(self.services)) as pool:
            for started in [pool.submit(self._run, name) for name in self.services]:
                started.result()
        return time.monotonic() - began

    def log(self, name: str) -> str:
        """What a service has written."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def do(self, name: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's container."""
        entering = ["runc", "--root", str(self._states), "exec", self._container(name), *command]
        done = subprocess.run(entering, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{name}: {' '.join(command)}: {done.stdout}{done.stderr}"
        return done

    def kill(self, name: str) -> None:
        """End a container as a power cut does. It can be started anew."""
        run("runc", "--root", str(self._states), "kill", self._container(name), "KILL")
        self._processes.pop(name).wait(60)
        run("runc", "--root", str(self._states), "delete", "--force", self._container(name), check=False)

    def again(self, name: str) -> None:
        """Run a service anew that has ended, and wait for its good end."""
        run("runc", "--root", str(self._states), "delete", "--force", self._container(name), check=False)
        self.start(name)
        if self._processes[name].wait(120) != 0:
            raise ServiceEnded(f"{name} failed: {self.log(name)[-3000:]}")

    def start(self, name: str) -> None:
        """Start a container, and do not wait."""
        bundle = self.folder / "bundles" / name
        bundle.mkdir(parents=True, exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._specification(name)))
        with (self.folder / f"{name}.log").open("ab") as log:
            command = ["runc", "--root", self._states, "run", "--bundle", bundle, self._container(name)]
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def close(self) -> None:
        """Remove all of it."""
        for name, process in self._processes.items():
            run("runc", "--root", str(self._states), "delete", "--force", self._container(name), check=False)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
        self.network.close()

    def _container(self, name: str) -> str:
        return f"{self.network.name}-{name}"

    def _run(self, name: str) -> None:
        service, reached = self.services[name], self._reached[name]
        try:
            for other, wanted in service.get("depends_on", {}).items():
                event = self._reached[other][wanted["condition"]]
                wait_until(lambda event=event: event.is_set() or self._failed.is_set(), 120, f"{name}: {other}")  # type: ignore[misc]
                if self._failed.is_set():
                    return
            if service.get("restart") == "no":
                self.again(name)
                reached["service_completed_successfully"].set()
                return
            self.start(name)
            reached["service_started"].set()
            if check := service.get("healthcheck"):
                kind, *words = check["test"]
                command = ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words
                pause = float(re.fullmatch(r"(\d+)s", check["start_interval"])[1])  # type: ignore[index]
                wait_until(lambda: self._is_healthy(name, command), 120, f"{name} is healthy", pause)
                reached["service_healthy"].set()
        except BaseException:
            self._failed.set()
            raise

    def _is_healthy(self, name: str, command: list[str]) -> bool:
        if self._processes[name].poll() is not None:
            raise ServiceEnded(f"{name} has ended: {self.log(name)[-3000:]}")
        if self._failed.is_set():
            raise ServiceEnded(f"{name} was not healthy when another service failed: {self.log(name)[-1000:]}")
        return self.do(name, *command, check=False).returncode == 0

    def _specification(self, name: str) -> dict[str, Any]:
        service = self.services[name]
        image = self._images[service["image"]]
        specification: dict[str, Any] = json.loads(json.dumps(image.specification))
        assert service["read_only"], f"{name}: containers of one image share its files"
        specification["root"] = {"path": str(image.root), "readonly": True}
        specification["hostname"] = service.get("hostname", name)
        process = specification["process"]
        process.pop("rlimits", None)  # root alone could raise them
        first = service.get("entrypoint", image.config.get("Entrypoint", []))
        rest = service.get("command", [] if "entrypoint" in service else image.config.get("Cmd") or [])
        process |= {"terminal": False, "args": [*first, *rest], "cwd": service.get("working_dir", process["cwd"])}
        process["env"] = image.config["Env"]  # umoci puts its own HOME there
        if "ALL" in service.get("cap_drop", ()):
            process["capabilities"] = {}
        process["noNewPrivileges"] = "no-new-privileges:true" in service.get("security_opt", ())
        mounts = [self._mount(image, text) for text in service.get("volumes", ())]
        mounts += [{"destination": path, "type": "tmpfs", "source": "tmpfs"} for path in service.get("tmpfs", ())]
        mounts.append(_bound(self.folder / "hosts.txt", "/etc/hosts", "ro"))
        taken = {mount["destination"] for mount in mounts} | {"/sys/fs/cgroup"}
        specification["mounts"] = [one for one in specification["mounts"] if one["destination"] not in taken] + mounts
        spaces = [one for one in specification["linux"]["namespaces"] if one["type"] not in ("cgroup", "network")]
        own = {"type": "network", "path": f"/run/netns/{self.network.namespace(name)}"}
        specification["linux"]["namespaces"] = [*spaces, own]
        return specification

    def _mount(self, image: Image, text: str) -> dict[str, Any]:
        source, destination, *mode = text.split(":")
        if source.startswith("."):
            return _bound(self._file.parent / source, destination, *mode)
        volume = self.folder / "volumes" / source
        there = image.root / destination.removeprefix("/")
        if not volume.exists():
            volume.parent.mkdir(exist_ok=True)
            if there.exists():
                run("cp", "--archive", str(there), str(volume))
            else:
                volume.mkdir()
        return _bound(volume, destination, *mode)


_CONDITIONS: Final = ("service_started", "service_healthy", "service_completed_successfully")


def _bound(source: Path, destination: str, mode: str = "rw") -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": str(source.resolve()), "options": ["rbind", mode]}
