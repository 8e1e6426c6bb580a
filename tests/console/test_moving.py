"""The move of an estate from Windows to nodes in a browser: a real survey, the plans of switches, a node's carries."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.switching import FORWARD, Plan
from qmnode.directory.port import Queue
from qmnode.structures.guid import guid_to_text
from tests.console.browser import browser, done, person
from tests.console.conftest import TOKENS, ConsoleLab
from tests.lab.addresses import HOST, free_port
from tests.lab.nodes import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [pytest.mark.servers, pytest.mark.slow]

SWITCHED = {"orders": list(FORWARD), "invoices": ["check", "prepare"], "letters": []}
"""Public queues of GAMMA, where no node answers, with the steps of their switch to BETA that are done."""


@pytest.fixture(scope="module")
def moving(lab: ConsoleLab, slapd: EmbeddedDirectory) -> Iterator[ConsoleLab]:
    """Another console over the same nodes, with the survey of their directory and of a file of Windows."""
    folder = lab.folder / "moving"
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        for name, steps in SWITCHED.items():
            made = directory.queues.add(Queue(pathname=rf"GAMMA\{name}"))
            assert made.identifier is not None
            if steps:
                path = folder / f"gamma+{name}.switch.json"
                Plan(path, made.pathname, guid_to_text(made.identifier), "gamma", "BETA", done=steps).write()
    export = folder / "gamma.csv"
    export.write_text("QueueName,MachineName,Label\nprivate$\\bills,GAMMA,Bills\nprivate$\\notes,GAMMA,Notes\n")
    done(lambda: lab.fill("bills", at="BETA"))
    carry = {"source": r"DIRECT=OS:gamma\private$\bills", "target": r".\private$\bills"}
    url = f"https://{HOST}:{lab.ports['BETA']}/v1/carries"
    headers = {"Authorization": f"Bearer {TOKENS['administer']}"}
    httpx.post(url, json=carry, headers=headers, verify=lab.trust()).raise_for_status()
    made = subprocess.run(
        [
            sys.executable, "-m", "mqenterprise", "survey", "--directory", str(lab.folder / "directory.yaml"),
            "--export", str(export), "--timeout", "2", "--output", str(folder / "survey"),
        ],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    second = ConsoleLab(lab.folder, lab.nodes, f"https://{HOST}:{free_port()}/", ports=lab.ports)
    try:
        second.start(lab.folder / "directory.yaml", "--survey", folder / "survey", "--plans", folder)
        yield second
    finally:
        second.stop()


@pytest.fixture(scope="module")
def window(moving: ConsoleLab) -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), pytest.param(1280, "light", marks=pytest.mark.soak)])
def test_the_estate_is_shown_in_three_colours_and_in_words(
    moving: ConsoleLab, window: Browser, width: int, scheme: str
) -> None:
    with person(moving, window, width=width, scheme=scheme) as someone:
        someone.go("moving")
        machines = someone.page.get_by_role("region", name="Machines")
        order = someone.page.get_by_role("region", name="Order of moves")
        expect(machines.get_by_role("listitem").filter(has_text="GAMMA").locator(".state")).to_have_text("moving")
        expect(machines.get_by_role("listitem").filter(has_text="ALPHA").locator(".state")).to_have_text("node")
        expect(machines.get_by_role("listitem").filter(has_text="GAMMA")).to_contain_text("1 of 5 queues moved")
        for name, place, note in (
            (r"GAMMA\orders", "node", "To BETA: switched"),
            (r"GAMMA\invoices", "moving", "To BETA: next: carry"),
            (r"GAMMA\letters", "Windows", ""),
        ):
            step = order.get_by_role("listitem").filter(has_text=name).first
            expect(step.locator(".state").first).to_have_text(place)
            expect(step).to_contain_text(note)
        whole = order.get_by_role("listitem").filter(has_text="Machine GAMMA").first
        expect(whole).to_contain_text(r"GAMMA\private$\bills moving To BETA: 0 messages carried")
        whole.get_by_text("Why here").click()
        expect(whole).to_contain_text("private queues are named by their machine")
        expect(someone.page.locator(".map .site.moving").first).to_be_visible()
        assert someone.page.evaluate("document.documentElement.scrollWidth") <= width
        assert someone.serious() == []
        order.get_by_text("node", exact=True).first.click()
        expect(order.get_by_text(r"Queue GAMMA\orders")).to_be_visible()
        expect(order.get_by_text(r"Queue GAMMA\letters")).to_have_count(0)


def test_who_may_not_see_carries_is_told_so(moving: ConsoleLab, window: Browser) -> None:
    with person(moving, window, "read") as someone:
        someone.go("moving")
        someone.sees("Carries of private queues are shown to the role administer.")
        expect(someone.page.get_by_text("messages carried")).to_have_count(0)


def test_a_plan_that_cannot_be_read_is_named(moving: ConsoleLab) -> None:
    broken = moving.folder / "moving" / "broken.switch.json"
    broken.write_text("{")
    try:
        with moving.signed_in("read") as client:
            found = client.get("moving").json()
        assert [str(broken) in one for one in found["unread"]] == [True]
        assert found["queues"] == {"windows": 3, "moving": 1, "node": 1}
    finally:
        broken.unlink()
