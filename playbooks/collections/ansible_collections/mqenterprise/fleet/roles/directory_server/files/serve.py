"""Have slapd run with what is configured. Prints as JSON what was done, or with "mode": "check" would be.

Takes one argument, JSON: state, urls, user, service, digest (of configuration, certificate and unit), mode. A run that
was cut is gone on with: the digest is noted beside the configuration once it is in place, and for the process that
was started with it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNIT = "msmq-directory"
LIMIT = 60.0
PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"


class Failed(Exception):
    """A failure, described by a sentence."""


class Server:
    """The slapd of one folder."""

    def __init__(self, given):
        self.state = Path(given["state"])
        self.urls, self.user, self.digest = given["urls"], given["user"], given["digest"]
        self.is_service = given["service"] == "systemd"
        self.config = self.state / "config"
        self.started = self.state / "run/started"

    def needed(self):
        """The steps that are still to be taken."""
        pid = self.pid()
        if text(self.config / "digest") != self.digest:
            return ["configure", "start" if pid is None else "restart"]
        if pid is None:
            return ["start"]
        if text(self.started) != f"{pid} {self.digest}":
            return ["restart"]
        return [] if self._is_enabled() else ["enable"]

    def do(self, steps):
        """Take the steps. A running server is stopped only when its new configuration was found good."""
        if self.is_service:
            self._run("systemctl", "daemon-reload", alone=True)
            self._run("systemctl", "enable", UNIT, alone=True)
        if steps == ["enable"]:
            return
        fresh = self.state / "config.new"
        if "configure" in steps:
            shutil.rmtree(fresh, ignore_errors=True)
            self._run("mkdir", "-m", "700", str(fresh))
            self._run("slapadd", "-n", "0", "-F", str(fresh), "-l", str(self.state / "config.ldif"))
            self._run("slaptest", "-u", "-F", str(fresh))
            self._run("tee", str(fresh / "digest"), given=self.digest)
        self._stop()
        if "configure" in steps:
            shutil.rmtree(self.config, ignore_errors=True)
            fresh.replace(self.config)
            if (self.state / "data/data.mdb").exists():
                self._run("slapindex", "-q", "-F", str(self.config), "-n", "1")
        self._start()
        self._wait(self._answers, f"slapd does not answer within {LIMIT:.0f} s")
        self._run("tee", str(self.started), given=f"{self.pid()} {self.digest}")

    def pid(self):
        """The process that serves the folder; None if there is none."""
        try:
            pid = int(text(self.state / "run/slapd.pid") or "")
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(str(self.config)) in command else None

    def _is_enabled(self):
        if not self.is_service:
            return True
        return self._run("systemctl", "is-enabled", UNIT, anyhow=True, alone=True).strip() == "enabled"

    def _stop(self):
        pid = self.pid()
        if self.is_service:
            self._run("systemctl", "stop", UNIT, anyhow=True, alone=True)
        elif pid is not None:
            os.kill(pid, signal.SIGTERM)
        self._wait(lambda: self.pid() is None, "slapd does not stop")

    def _start(self):
        if self.is_service:
            self._run("systemctl", "start", UNIT, alone=True)
            return
        user = ("-u", self.user, "-g", self.user) if self.user else ()
        self._run("slapd", *user, "-F", str(self.config), "-h", self.urls, alone=True)

    def _answers(self):
        if self.is_service and self.pid() is None and self._ended():
            raise Failed("slapd stopped at once: " + self._run("journalctl", "-n", "5", "-u", UNIT, anyhow=True))
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self.state / "run/ldapi"))
            return self.pid() is not None
        return False

    def _ended(self):
        state = self._run("systemctl", "show", "--property=NRestarts", "--value", UNIT, anyhow=True, alone=True)
        return state.strip() not in ("", "0")

    def _run(self, program, *arguments, anyhow=False, alone=False, given=""):
        """A program's output. As slapd's user, unless ``alone``: links in its folders lead only where it may go."""
        account = {"user": self.user, "group": self.user, "extra_groups": []} if self.user and not alone else {}
        found = shutil.which(program, path=PROGRAMS)
        if found is None:
            raise Failed(f"{program} is not installed")
        done = subprocess.run(
            [found, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            cwd="/",
            **account,
        )
        if done.returncode != 0 and not anyhow:
            raise Failed(f"{program}: {(done.stderr or done.stdout).strip()[-600:]}")
        return done.stdout

    @staticmethod
    def _wait(condition, sentence):
        deadline = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(sentence)
            time.sleep(0.05)


def text(path):
    """Return the contents of a file; None if there is no file."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def main():
    """Do what the arguments ask for."""
    given = json.loads(sys.argv[1])
    server = Server(given)
    try:
        steps = server.needed()
        if steps and given["mode"] != "check":
            server.do(steps)
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
    print(json.dumps({"changed": bool(steps), "steps": steps}))


if __name__ == "__main__":
    main()
