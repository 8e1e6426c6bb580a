"""The compose file: what it may not lack or have; and played, a directory, three sites, a console and traffic.

``compose-spec.json`` is the schema of the Compose Specification (Apache License 2.0), as compose-go 2.4.7 has it.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from mqenterprise.topology.check import load
from qmnode.settings.node import read_settings
from tests.lab.compose import Composed, Image
from tests.lab.roots import PROJECT
from tests.lab.waiting import wait_until

FOLDER = PROJECT / "packaging/compose"
FILE = FOLDER / "compose.yaml"
SECONDS = 60
NODES = ("ams-router", "bre-router", "cor-router")


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return document


def test_it_is_what_the_specification_of_compose_says(composed: dict[str, Any]) -> None:
    schema = jsonschema_rs.validator_for(json.loads(Path(__file__).with_name("compose-spec.json").read_text("utf-8")))
    schema.validate(composed)
    assert not schema.is_valid(composed | {"services": {"console": {"imagge": "x"}}})
    for service in composed["services"].values():
        assert set(service.get("depends_on", ())) <= set(composed["services"])
        assert set(service["networks"]) <= set(composed["networks"])
        named = {text.split(":")[0] for text in service.get("volumes", ())} - {"./"}
        assert named <= set(composed["volumes"])


def test_its_images_are_those_that_are_built(composed: dict[str, Any]) -> None:
    recipe = (PROJECT / "packaging/images/Containerfile").read_text("utf-8")
    built = {f"localhost/qmnode-{name}:latest" for name in re.findall(r"(?m)^FROM \S+ AS (\w+)$", recipe)}
    assert {service["image"] for service in composed["services"].values()} == built


def test_it_has_no_secret_and_nobody_is_root(composed: dict[str, Any]) -> None:
    for service in composed["services"].values():
        assert not {"environment", "env_file", "user", "privileged", "cap_add"} & set(service)
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    for path in FOLDER.iterdir():
        assert not re.search(r"(?i)(password|secret|token|sha256): *\S", path.read_text("utf-8")), path


def test_its_enterprise_and_its_settings_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QMNODE_SOCKET", "QMNODE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    declared = load(FOLDER / "enterprise.yaml")
    assert [machine.name for machine in declared.declaration.machines] == list(NODES)
    assert read_settings(FOLDER / "node.yaml").data == Path("/var/lib/qmnode/store")


class Browser:
    """A person at the console, with the address that an engine publishes it at."""

    def __init__(self, address: str, authority: Path) -> None:
        self._address = address
        self._trust = ssl.create_default_context(cafile=str(authority))
        self._cookie = ""

    def ask(self, path: str, content: Any = None) -> Any:
        """Ask for a page or a document. AssertionError if it is refused."""
        connection = http.client.HTTPSConnection("localhost", 8480, context=self._trust, timeout=60)
        connection.sock = self._trust.wrap_socket(
            socket.create_connection((self._address, 8480), 60), server_hostname="localhost"
        )
        headers = {"Origin": "https://localhost:8480", "Content-Type": "application/json", "Cookie": self._cookie}
        method, body = ("GET", None) if content is None else ("POST", json.dumps(content))
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).split(";")[0]
        connection.close()
        return json.loads(said) if path.startswith("/api/") else said.decode()


@pytest.fixture(scope="module")
def unpacked(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """What an engine has after the images were loaded."""
    folder = tmp_path_factory.mktemp("unpacked")
    return {
        f"localhost/{layout.name.removesuffix('-image')}:latest": Image.unpack(layout, folder / layout.name)
        for layout in images.glob("*-image")
    }


@pytest.fixture(scope="module")
def enterprise(unpacked: dict[str, Image]) -> Iterator[Composed]:
    played = Composed(FILE, unpacked)
    try:
        played.up()
        yield played
    finally:
        played.close()


def confirmed(played: Composed) -> set[int]:
    """The numbers of the orders whose confirmations have come."""
    return {int(number) for number in re.findall(r"confirmed: order (\d+), ", played.log("traffic"))}


@pytest.mark.soak
@pytest.mark.servers
class TestPlayed:
    def test_orders_cross_all_sites_and_wait_while_the_middle_is_down(self, enterprise: Composed) -> None:
        wait_until(lambda: len(confirmed(enterprise)) >= 3, 60, "orders are confirmed")
        enterprise.kill("bre-router")
        before = max(confirmed(enterprise))

        def waits() -> bool:
            listed = enterprise.do("ams-router", "qmnode", "queue", "list", "--kind", "outgoing", "--json").stdout
            return any(queue["message_count"] for queue in json.loads(listed)["queues"])

        wait_until(waits, 60, "an order waits")
        enterprise.start("bre-router")
        wait_until(lambda: max(confirmed(enterprise)) >= before + 3, 60, "orders are confirmed again")
        numbers = confirmed(enterprise)
        assert numbers == set(range(1, max(numbers) + 1))

    def test_the_console_shows_all_nodes_to_a_person_with_the_token(self, enterprise: Composed) -> None:
        identities = enterprise.folder / "volumes/identities"
        browser = Browser(enterprise.network.addresses["console"], identities / "console/ca.pem")
        token = enterprise.do("console", "cat", "token").stdout.strip()
        assert "<html" in browser.ask("/")
        with pytest.raises(AssertionError, match="no node knows this token"):
            browser.ask("/api/session", {"method": "token", "token": "x" * 32})
        assert browser.ask("/api/session", {"method": "token", "token": token})["roles"][-1] == "operate"

        def seen() -> set[str]:
            nodes = browser.ask("/api/overview")["nodes"]
            return {one["machine"].casefold() for one in nodes if one["state"] == "up"}

        wait_until(lambda: seen() == set(NODES), 60, "the console shows all nodes")

    def test_started_again_everything_keeps_its_identity(self, enterprise: Composed) -> None:
        file = enterprise.folder / "volumes/identities/cor-router/directory/directory.password"
        before = file.read_bytes()
        enterprise.kill("traffic")
        enterprise.kill("cor-router")
        enterprise.again("setup")
        assert file.read_bytes() == before
        enterprise.start("cor-router")
        wait_until(lambda: enterprise.do("cor-router", "qmnode", "status", check=False).returncode == 0, 60, "it runs")
        log = len(enterprise.log("traffic"))
        enterprise.start("traffic")
        wait_until(lambda: "confirmed: " in enterprise.log("traffic")[log:], 60, "orders are confirmed again")


@pytest.mark.soak
@pytest.mark.servers
@pytest.mark.timed
def test_one_command_takes_less_than_a_minute(unpacked: dict[str, Image]) -> None:
    played = Composed(FILE, unpacked)
    try:
        began = time.monotonic()
        played.up()
        wait_until(lambda: confirmed(played), 60, "an order is confirmed", 0.2)
        taken = time.monotonic() - began
        assert taken < SECONDS
    finally:
        played.close()
