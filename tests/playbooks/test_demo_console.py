"""The console of the kept demo in a browser, while gates and the directory fail and keys rotate.

After each change the page must show the truth within :data:`LIMIT`. The nodes themselves are asked for the truth.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from playwright.sync_api import expect

import qmnode
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory
from mqenterprise.keys.publication import Publication
from qmnode.management.documents import identifier_text
from qmnode.structures.guid import guid_from_text
from tests.console.browser import awaited, browser
from tests.lab.demo.declared import BEFORE, MACHINES, MIDDLE, RECEIVER, SENDER
from tests.lab.hosts import why_no_hosts
from tests.lab.waiting import wait_until
from tests.playbooks.test_demo import demo, kept, processes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.playbooks.test_demo import Kept

__all__ = ["kept"]
pytestmark = [
    pytest.mark.soak,  # the clock counts
    pytest.mark.servers,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(why_no_hosts() is not None, reason="the nodes are killed on hosts of their own"),
]

LIMIT = 5.0
"""Seconds after a change until the page shows it."""
LAST_GATE = "cor-router"
SCREENS = {
    "queues": "Queues",
    "search?queue=*": "Search messages",
    "failures": "Failures",
    f"routes?from={SENDER}&to={RECEIVER}": "Routes",
    "keys": "Keys and certificates",
    "plan": "Plan",
    "jobs": "Jobs",
    "audit": "Audit",
    "": "Map",
}


@dataclass
class Scene:
    """The kept demo, and somebody who looks at its console."""

    kept: Kept
    page: Page
    address: str
    token: str

    @property
    def folder(self) -> Path:
        """The folder of the controller."""
        return self.kept.environment.parent

    def run(self, command: str) -> str:
        """Run a command of the operator."""
        done = self.kept.shell(command)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def on(self, host: str, command: str) -> str:
        """Run a command on a host."""
        return self.run(f"ssh -F {self.folder.parent / 'ssh_config'} {host} {command}")

    def signal(self, host: str, sent: signal.Signals) -> None:
        """Send a signal to the process of a node."""
        pid = int(self.on(host, "systemctl show --property=MainPID --value qmnode"))
        assert pid
        self.on(host, f"kill -{sent.value} {pid}")

    def ask(self, machine: str, path: str) -> dict[str, Any] | None:
        """The answer of a node, asked as the operator; None if none comes."""
        nodes = yaml.safe_load((self.folder / "desk/nodes.yaml").read_text())
        address = f"https://{nodes['machines'][machine]['address']}:{nodes['port']}"
        try:
            answer = httpx.get(
                f"{address}/v1/{path}",
                headers={"Authorization": f"Bearer {self.token}"},
                verify=ssl.create_default_context(cafile=nodes["authority"]),
                timeout=1.0,
            )
        except httpx.TransportError:
            return None
        return dict(answer.raise_for_status().json())

    def silent(self) -> set[str]:
        """The nodes that do not answer."""
        return {machine for machine in MACHINES if self.ask(machine, "node") is None}

    def open(self, place: str) -> None:
        """Go to a screen, and wait for its heading."""
        self.page.goto(f"{self.address}#/{place}")
        heading = SCREENS.get(place)
        if heading is not None:
            expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    def named(self, opening: str) -> set[str]:
        """The nodes that the map names after words such as ``are down``."""
        found = re.findall(rf"{opening}: ?(.*)", self.text(".notice"))
        return {name for line in found for name in re.split(r",\s*", line.strip())}

    def text(self, selector: str = "main") -> str:
        """What is seen in parts of the page."""
        return "\n".join(self.page.locator(selector).all_inner_texts())

    def silent_as_shown(self) -> set[str]:
        """The nodes of whom the map says that they are down or that their state is unknown."""
        return self.named("(?:is|are) down") & set(MACHINES) | self.named("(?:is|are) unknown")

    def within(self, what: str, is_so: Callable[[], bool], began: float) -> float:
        """Wait until the page shows it. Fails when that takes longer than the limit; returns the seconds."""
        while not is_so():
            took = time.monotonic() - began
            assert took < LIMIT, f"after {took:.1f} s it is not shown that {what}: {self.text()[:2000]}"
            self.page.wait_for_timeout(50)
        took = time.monotonic() - began
        print(f"{took:4.1f} s until it is shown that {what}")
        return took

    def visit_all(self) -> None:
        """Every screen opens and shows more than that it waits, for a node or for the directory."""
        for place, heading in SCREENS.items():
            began = time.monotonic()
            self.open(place)
            self.within(f"the screen {heading} is there", lambda: "Loading…" not in self.text(), began)


@pytest.fixture(scope="module")
def scene(kept: Kept) -> Iterator[Scene]:
    """Signed in on the page with the token that the demo printed."""
    assert kept.code == 0, kept.said
    (address,) = re.findall(r"^  (http://127\.0\.0\.1:\d+/)$", kept.said, re.MULTILINE)
    (token,) = re.findall(r"^  sign in with the token (\S+)$", kept.said, re.MULTILINE)
    with browser() as window:
        context = window.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.locator("[type=password]").fill(token)
        page.get_by_role("button", name="Sign in").click()
        found = Scene(kept, page, address, token)
        expect(page.get_by_role("heading", level=1)).to_have_text("Map")
        wait_until(lambda: not found.silent(), 120, "all nodes answer")
        yield found
        context.close()
        assert complaints == []


def place_of(queue: str) -> str:
    """A queue in the management API."""
    return "queues/" + quote(queue, safe="")


def waiting_in(scene: Scene, machine: str) -> int:
    """Messages in the outgoing queues of a node."""
    summary = scene.ask(machine, "queue-summary?node=true&known=")
    assert summary is not None
    pairs = zip(summary["queue_type"], summary["message_count"], strict=True)
    return sum(count for kind, count in pairs if kind == "outgoing")


def keys_of(scene: Scene, machine: str) -> dict[str, str]:
    """The state of each key by fingerprint, as the node says."""
    keys = scene.ask(machine, "keys")
    assert keys is not None
    return {key["fingerprint"]: key["state"] for key in keys["keys"]}


def shown_keys(scene: Scene, machine: str) -> dict[str, str]:
    """The same, as the page shows it."""
    rows = scene.page.get_by_role("region", name=machine, exact=True).locator("tbody tr:has(.mono)")
    return dict(rows.evaluate_all(
        "rows => rows.map((row) => [row.querySelector('.mono').title, row.querySelector('.state').innerText])"
    ))  # fmt: skip


def test_what_the_demo_says_to_look_at_is_there(scene: Scene) -> None:
    """The last line of the demo names a queue, a route, the plan and the audit log."""
    scene.open("")
    scene.within("all is well", lambda: "All nodes and routing links are up." in scene.text(), time.monotonic())
    scene.open(f"queues?machine={RECEIVER}")
    scene.page.get_by_role("link", name="payments", exact=True).click()
    expect(scene.page.get_by_role("heading", level=1)).to_have_text("payments")
    scene.open(f"routes?from={SENDER}&to={RECEIVER}")
    expect(scene.page.get_by_text("The message arrives.")).to_be_visible()
    for machine in (SENDER, BEFORE, MIDDLE, LAST_GATE, RECEIVER):
        expect(scene.page.locator(".steps strong").get_by_text(machine)).to_be_visible()
    scene.open("plan")
    expect(scene.page.locator(".notice").or_(scene.page.locator(".diff li")).first).to_be_visible()
    scene.open("audit")
    expect(scene.page.get_by_role("row").nth(1)).to_be_visible()


def test_a_gate_that_is_killed_is_down_and_its_links_and_what_waits_for_them(scene: Scene) -> None:
    queue = scene.ask(RECEIVER, place_of(rf"{RECEIVER}\offers"))
    assert queue is not None
    name = f"PUBLIC={queue['identifier']}"
    scene.open("")
    pid = int(scene.on(MIDDLE, "systemctl show --property=MainPID --value qmnode"))
    began = time.monotonic()
    # systemd would start it again after two seconds, unless it is told to stop it.
    scene.on(MIDDLE, f"'kill -KILL {pid}; systemctl stop qmnode'")
    try:
        scene.within("the gate is down", lambda: scene.named("(?:is|are) down") >= {MIDDLE}, began)
        assert scene.silent() == {MIDDLE}
        assert {"Amsterdam – Bremen", "Bremen – Córdoba"} <= scene.named("links are down")
        began = time.monotonic()
        scene.run(f"printf '%s\\n' 1 2 3 4 5 6 7 | qmnode send '{name}' --lines")
        entry = scene.page.get_by_role("button", name=re.compile("Amsterdam – Bremen"))
        wait_until(lambda: waiting_in(scene, BEFORE) == 7, 20, "the messages wait before the gate")
        scene.within("they wait", lambda: "7 waiting" in entry.inner_text(), time.monotonic())
        scene.visit_all()
        scene.open(f"queues?machine={RECEIVER}")
        scene.within("only the gate is old", lambda: MIDDLE not in scene.text(".table"), time.monotonic())
        scene.open(f"queues?machine={MIDDLE}")
        scene.within("its queues are old", lambda: "old" in scene.text(".table-row .state"), time.monotonic())
    finally:
        scene.on(MIDDLE, "systemctl start qmnode")
    wait_until(lambda: not scene.silent(), 60, "the gate answers again")
    began = time.monotonic()
    scene.open("")
    scene.within("all is well again", lambda: scene.silent_as_shown() == set(), began)
    wait_until(lambda: waiting_in(scene, BEFORE) == 0, 60, "the messages have passed")
    scene.within("none waits", lambda: "0 waiting" in entry.inner_text(), time.monotonic())
    scene.open(f"queues?machine={RECEIVER}&name=offers")
    row = scene.page.get_by_role("row").filter(has_text="offers")
    now = scene.ask(RECEIVER, place_of(rf"{RECEIVER}\offers"))
    assert now is not None
    assert now["message_count"] >= queue["message_count"] + 7
    scene.within("they arrived", lambda: f"{now['message_count']:,}" in row.inner_text(), time.monotonic())


def test_a_gate_that_hangs_is_unknown_and_no_screen_waits_for_it(scene: Scene) -> None:
    scene.open("")
    scene.within("all is well", lambda: scene.silent_as_shown() == set(), time.monotonic())
    began = time.monotonic()
    scene.signal(LAST_GATE, signal.SIGSTOP)
    try:
        scene.within("the gate is unknown", lambda: scene.named("(?:is|are) unknown") == {LAST_GATE}, began)
        assert scene.silent() == {LAST_GATE}
        link = scene.page.get_by_role("button", name=re.compile("Bremen – Córdoba"))
        assert "unknown" in link.inner_text()
        scene.visit_all()
        scene.open("keys")
        panel = scene.page.get_by_role("region", name=LAST_GATE, exact=True)
        scene.within(
            "its keys are not said to be true", lambda: "has not answered" in panel.inner_text(), time.monotonic()
        )
        began = time.monotonic()
        scene.open(f"queues/{LAST_GATE}/" + quote(rf"{LAST_GATE}\private$\none", safe=""))
        scene.within("its queue cannot be asked for", lambda: f"{LAST_GATE} cannot be asked" in scene.text(), began)
        scene.open("")
    finally:
        began = time.monotonic()
        scene.signal(LAST_GATE, signal.SIGCONT)
    scene.within("it is up again", lambda: scene.silent_as_shown() == set(), began)
    assert scene.silent() == set()


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "killed"])
def test_a_directory_that_is_away(scene: Scene, sent: signal.Signals) -> None:
    directory = EmbeddedDirectory(scene.folder / "directory")
    process = directory.pid()
    assert process is not None
    scene.open("")
    scene.within("all is well", lambda: "directory" not in scene.text(), time.monotonic())
    began = time.monotonic()
    os.kill(process, sent)
    try:
        scene.within("the directory is away", lambda: "The directory cannot be read" in scene.text(), began)
        assert "Last read" in scene.text(".notice")
        scene.visit_all()
        scene.open(f"routes?from={SENDER}&to={RECEIVER}")
        scene.within("routes may be old", lambda: "routes may be old" in scene.text(), time.monotonic())
        began = time.monotonic()
        scene.open("plan")
        scene.within("there is no plan", lambda: "cannot be" in scene.text(".notice.bad"), began)
        scene.open("")
        scene.within("the nodes are up", lambda: scene.silent_as_shown() == set(), time.monotonic())
    finally:
        if sent is signal.SIGSTOP:
            os.kill(process, signal.SIGCONT)
        else:
            wait_until(lambda: directory.pid() is None, 30, "it has ended")
            directory.start()
        began = time.monotonic()
    scene.within("it is read again", lambda: "The directory cannot be read" not in scene.text(), began)


def test_keys_that_rotate(scene: Scene) -> None:
    """Each state of the node's keys, while they are rotated, is on the page within the limit."""
    scene.open("keys")
    before = keys_of(scene, MIDDLE)
    scene.within("these are the keys", lambda: shown_keys(scene, MIDDLE) == before, time.monotonic())
    with ThreadPoolExecutor(1) as elsewhere:
        rotating = elsewhere.submit(scene.run, f"mqenterprise keys rotate {MIDDLE}")
        known, since, is_shown = before, time.monotonic(), True
        seen, longest = [before], 0.0
        while not rotating.done() or "next" in known.values() or not is_shown:
            if (now := keys_of(scene, MIDDLE)) != known:
                known, since, is_shown = now, time.monotonic(), False
                seen.append(now)
            if not is_shown:
                is_shown = shown_keys(scene, MIDDLE) == known
                longest = max(longest, time.monotonic() - since)
                assert longest < LIMIT, (known, shown_keys(scene, MIDDLE))
            scene.page.wait_for_timeout(50)
        rotating.result()
    print(f"{len(seen)} states of the keys, each shown within {longest:.1f} s")
    (new,) = known.keys() - before.keys()
    assert known[new] == "current"
    with EnterpriseDirectory(EmbeddedDirectory(scene.folder / "directory").client_settings()) as directory:
        publication = Publication(directory)
        (node,) = publication.nodes(computers=[MIDDLE])
        assert new in publication.read(node).fingerprints


def test_keys_that_rotate_by_click(scene: Scene) -> None:
    """In the node, in the directory and on the page; messages to the old key arrive before and after the click."""
    queue = scene.ask(RECEIVER, place_of(rf"{RECEIVER}\offers"))
    assert queue is not None

    def send_sealed(body: str, arrived: int) -> None:
        scene.run(f"qmnode send 'PUBLIC={queue['identifier']}' '{body}' --encrypted")

        def is_there() -> bool:
            now = scene.ask(RECEIVER, place_of(rf"{RECEIVER}\offers"))
            return now is not None and now["message_count"] >= queue["message_count"] + arrived

        wait_until(is_there, 60, f"{body} has arrived")

    send_sealed("sealed before", 1)
    scene.open("keys")
    before = keys_of(scene, RECEIVER)
    panel = scene.page.get_by_role("region", name=RECEIVER, exact=True)
    panel.get_by_role("button", name="Rotate…").click()
    dialog = scene.page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    dialog.get_by_role("button", name=f"Rotate the keys of {RECEIVER} now").click()
    began = time.monotonic()
    expect(dialog).to_contain_text("The keys are rotated.")
    print(f"{time.monotonic() - began:4.1f} s from the click until the keys are rotated")
    known = keys_of(scene, RECEIVER)
    (new,) = known.keys() - before.keys()
    assert known[new] == "current"
    scene.page.keyboard.press("Escape")
    scene.within("the new key is current", lambda: shown_keys(scene, RECEIVER) == known, time.monotonic())
    with EnterpriseDirectory(EmbeddedDirectory(scene.folder / "directory").client_settings()) as directory:
        publication = Publication(directory)
        (node,) = publication.nodes(computers=[RECEIVER])
        assert new in publication.read(node).fingerprints
    send_sealed("sealed with the key that its sender has read before", 2)


async def sent_with_traces(scene: Scene) -> str:
    """The identifier of a message to Córdoba whose way is reported, and that asks for every acknowledgment."""
    offers, reports = (scene.ask(host, place_of(rf"{host}\{queue}")) for host, queue in WAY)
    assert offers is not None
    assert reports is not None
    async with (
        qmnode.connect(socket_of(scene, SENDER)) as node,
        await node.open_queue(f"PUBLIC={offers['identifier']}", qmnode.Access.SEND) as queue,
    ):
        sent = await queue.send(
            qmnode.Message(
                b"followed",
                label="followed",
                recoverable=True,
                positive_journaling_requested=True,
                tracing_requested=True,
                tracing_queue_identifier=guid_from_text(reports["identifier"]),
                acknowledgements_requested=3,
                administration_queue_format_name=f"PUBLIC={reports['identifier']}",
            )
        )
    return identifier_text(sent)


WAY = ((RECEIVER, "offers"), (SENDER, "reports"))
"""Where a traced message goes, and where its reports and acknowledgments come."""


def socket_of(scene: Scene, host: str) -> Path:
    """Where applications reach a node."""
    return scene.folder.parent / "hosts" / host / "run/qmnode.sock"


def test_a_message_is_followed_over_its_gates_until_it_is_received(scene: Scene) -> None:
    identifier = awaited(lambda: sent_with_traces(scene))
    scene.open("life")
    scene.page.get_by_label("Message identifier").fill(identifier)
    life = scene.page.locator(".life")

    # By either gate of Bremen: the one that was killed may be passed over.
    way = re.compile(f"{SENDER} → {BEFORE} → bre-(router|connector) → {LAST_GATE} → {RECEIVER}")

    def shows(way: re.Pattern[str], *texts: str) -> bool:
        scene.page.get_by_role("button", name="Find it").click()
        scene.page.wait_for_timeout(500)
        shown = "\n".join(life.all_inner_texts())
        return way.search(shown) is not None and all(text in shown for text in texts)

    wait_until(lambda: shows(way, "Copy in a journal", "In a queue", "ACK_REACH_QUEUE"), 60, "it has arrived")
    scene.run(f"qmnode receive '{RECEIVER}\\offers' -n 1000 --socket {socket_of(scene, RECEIVER)}")
    wait_until(lambda: shows(way, "Copy in a journal", "ACK_RECEIVE"), 60, "it was received")
    assert "In a queue" not in life.inner_text()


def test_nothing_of_it_stays(scene: Scene) -> None:
    lab = scene.folder.parent
    with demo("stop") as stopping:
        stopping.communicate(timeout=300)
    assert stopping.returncode == 0
    assert processes_of(lab) == []
    assert not lab.exists()
