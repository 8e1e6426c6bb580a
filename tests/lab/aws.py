"""moto's server: AWS Secrets Manager and KMS on loopback, a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.lab.addresses import free_alias
from tests.lab.waiting import wait_until

PORT = 5566
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Moto:
    """The server. What it holds is gone when it stops; tests that need it away and back put a relay before it."""

    def __init__(self) -> None:
        self._host = free_alias([PORT])
        self.address = (self._host, PORT)
        self.url = f"http://{self._host}:{PORT}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", self._host, "-p", str(PORT)],
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self.answers, 60, "moto's server answers")

    def answers(self) -> bool:
        """Whether it serves."""
        assert self._process is not None
        assert self._process.poll() is None, "moto's server ended"
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(240)


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """Started once; tests use nodes of their own."""
    server = Moto()
    try:
        server.start()
        yield server
    finally:
        server.stop()
