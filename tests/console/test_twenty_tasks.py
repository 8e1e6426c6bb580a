"""Twenty tasks of an administrator on five nodes, with the clicks that each takes."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.browser import browser, person
from tests.console.five import JOURNALED, ORDER, STUCK, enterprise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.console.browser import Person
    from tests.console.conftest import ConsoleLab

pytestmark = [pytest.mark.servers, pytest.mark.soak]

MANY = int(os.environ.get("CONSOLE_MESSAGES", "20000"))
"""Messages in the largest queue; half as many again are elsewhere."""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory, slapd: EmbeddedDirectory) -> Iterator[ConsoleLab]:
    with enterprise(tmp_path_factory.mktemp("five"), slapd, MANY) as lab:
        yield lab


@pytest.fixture(scope="module")
def window(five: ConsoleLab) -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def someone(five: ConsoleLab, window: Browser) -> Iterator[Person]:
    with person(five, window) as found:
        yield found


class Clicks:
    """Counts what is clicked."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, place: Locator) -> None:
        place.click()
        self.number += 1


@contextmanager
def within(most: int, task: str) -> Iterator[Clicks]:
    """The clicks of a task, and no more than so many."""
    clicks = Clicks()
    yield clicks
    print(f"{task}: {clicks.number} of at most {most} clicks")
    assert clicks.number <= most, task


def queue_of(someone: Person, machine: str, name: str, rest: str = "") -> None:
    someone.go(f"queues/{machine}/{quote(f'{machine}{chr(92)}{name}', safe='')}{rest}")
    expect(someone.page.get_by_role("heading", level=1)).to_be_visible()


def button(someone: Person, name: str | re.Pattern[str]) -> Locator:
    return someone.page.get_by_role("button", name=name, exact=isinstance(name, str))


def item(someone: Person, name: str) -> Locator:
    return someone.page.get_by_role("menuitem", name=re.compile(f"^{name}"))


def confirmed(someone: Person, click: Clicks, name: str) -> None:
    """In the dialog of an operation: what will happen, which Enter shows after the target, and do it."""
    if name.startswith(("^Move", "^Copy")):
        someone.page.keyboard.press("Enter")
    click(someone.dialog().get_by_role("button", name=re.compile(name)))
    expect(someone.dialog().locator(".job-progress .state").first).to_have_text("done")
    someone.page.keyboard.press("Escape")
    expect(someone.dialog()).to_have_count(0)


def test_the_stuck_queue_is_found_and_says_why(someone: Person) -> None:
    someone.go()
    with within(3, "stuck queue") as click:
        click(someone.page.get_by_role("button", name=re.compile("Amsterdam – Bremen")))
        someone.sees(re.compile(rf"{STUCK + 7}"))
        someone.page.get_by_role("link", name="Queues", exact=True).first.wait_for()
        click(someone.page.get_by_role("link", name="Queues", exact=True).first)
        click(someone.page.get_by_role("link", name=re.compile("→ BRE-2")).first)
        expect(someone.page.locator("dl.figures")).to_contain_text(str(STUCK))
    with within(1, "why"):
        expect(someone.page.locator(".notice.warn").first).to_contain_text("No address: BRE-1")
    with within(1, "why, of a message") as click:
        click(someone.page.locator('[role=row] a[href*="/queues/"]').first)
        expect(someone.page.get_by_role("heading", level=1)).to_contain_text("order 3000")
        expect(someone.page.locator(".notice.warn").first).to_contain_text("No address: BRE-1")


def test_a_body_is_read_beside_the_list(someone: Person) -> None:
    someone.go("queues")
    with within(2, "body") as click:
        click(someone.page.get_by_role("link", name="orders", exact=True))
        click(someone.page.locator('[data-row="3"] [role=cell]').nth(2))
        expect(someone.page.get_by_role("region", name="Preview")).to_contain_text('"order": 100003')
    button(someone, "Next").first.click()
    expect(someone.page.get_by_role("region", name="Preview")).to_contain_text('"order": 100004')


def test_the_last_page_is_one_click_away_and_its_pages_go_back(someone: Person) -> None:
    queue_of(someone, "AMS-1", r"private$\orders")
    pages = -(-MANY // 100)
    someone.page.get_by_role("link", name="order 100000", exact=True).wait_for()
    with within(1, "last page") as click:
        click(button(someone, f"Page {pages}"))
        expect(someone.page.locator("[data-row]").last).to_be_visible()
        expect(someone.page.get_by_role("button", name=f"Page {pages}")).to_have_attribute("aria-current", "page")
    someone.page.get_by_role("link", name=f"order {100_000 + (pages - 1) * 100}", exact=True).wait_for()
    button(someone, "Previous").first.click()
    someone.page.get_by_role("link", name=f"order {100_000 + (pages - 2) * 100}", exact=True).wait_for()
    expect(button(someone, f"Page {pages - 1}")).to_have_attribute("aria-current", "page")
    button(someone, "Next").first.click()
    someone.page.get_by_role("link", name=f"order {100_000 + (pages - 1) * 100}", exact=True).wait_for()
    expect(button(someone, "Next").first).to_be_disabled()
    button(someone, "Page 1").click()
    someone.page.get_by_role("link", name="order 100000", exact=True).wait_for()


def test_an_order_number_is_found_everywhere_and_says_why(someone: Person) -> None:
    someone.go()
    with within(2, "order number") as click:
        click(someone.page.get_by_role("link", name="Search messages"))
        someone.page.get_by_label("Only messages where").fill(f": {ORDER},")
        click(button(someone, "Find"))
        row = someone.page.get_by_role("row").filter(has_text="archive")
        expect(row.locator("mark")).to_contain_text(ORDER)


@pytest.mark.parametrize(("kind", "target"), [("Move", "sales"), ("Copy", "sales"), ("Delete", None)])
def test_a_message_is_moved_copied_or_deleted(someone: Person, kind: str, target: str | None) -> None:
    queue_of(someone, "AMS-1", r"private$\billing")
    with within(5, kind.lower()) as click:
        click(someone.page.get_by_role("checkbox", name=re.compile("^Select order")).first)
        click(button(someone, f"{kind}…"))
        if target:
            someone.dialog().get_by_label("Target").fill(target)
        confirmed(someone, click, f"^{kind} 1 message")


def test_failures_return(someone: Person) -> None:
    someone.go("failures")
    with within(3, "return") as click:
        group = someone.page.get_by_role("listitem").filter(has_text="Sales.PriceMissing")
        click(group.get_by_role("button", name="Return…", exact=True))
        confirmed(someone, click, "^Return 3 messages")
    queue_of(someone, "BRE-1", r"system$;deadletter")
    with within(3, "return of a dead letter") as click:
        click(someone.page.get_by_role("checkbox", name=re.compile("^Select order")).first)
        click(button(someone, "Return…"))
        expect(someone.dialog()).to_contain_text("as new messages, new identifiers → expired")
        confirmed(someone, click, "^Return 1 message")


def test_a_journal_is_replayed(someone: Person) -> None:
    queue_of(someone, "AMS-1", r"private$\billing")
    expect(someone.page.locator("dl.figures")).to_contain_text(str(JOURNALED))
    someone.page.get_by_role("link", name=str(JOURNALED)).click()
    expect(someone.page.get_by_role("heading", level=1)).to_have_text("billing;journal")
    with within(3, "replay") as click:
        click(button(someone, "Replay all…"))
        confirmed(someone, click, f"^Replay {JOURNALED} messages")
    with within(3, "replay of one") as click:
        click(someone.page.get_by_role("checkbox", name=re.compile("^Select order")).first)
        expect(button(someone, "Return…")).to_have_count(0)
        click(button(someone, "Replay…"))
        confirmed(someone, click, "^Replay 1 message")


def test_a_queue_is_exported_and_imported(someone: Person, tmp_path: Path) -> None:
    queue_of(someone, "AMS-1", r"private$\orders")
    file = tmp_path / "orders.jsonl"
    with within(2, "export") as click:
        click(button(someone, "More actions"))
        with someone.page.expect_download(timeout=240_000) as download:
            click(item(someone, "Export"))
        download.value.save_as(file)
        expect(someone.dialog()).to_contain_text("messages saved")
    someone.page.keyboard.press("Escape")
    lines = file.read_text().splitlines()
    assert len(lines) == MANY
    some = tmp_path / "some.jsonl"
    some.write_text("\n".join(lines[:300]))
    queue_of(someone, "BRE-1", r"private$\expired")
    with within(3, "import") as click:
        click(button(someone, "More actions"))
        click(item(someone, "Import"))
        someone.page.locator("input[type=file]").set_input_files(some)
        click(button(someone, "Import"))
        expect(someone.dialog()).to_contain_text("300 sent, 0 imported before, 0 refused")
    someone.page.keyboard.press("Escape")


def test_a_message_is_edited_and_sent_again(someone: Person) -> None:
    queue_of(someone, "CPH-1", r"private$\scratch")
    with within(4, "edit") as click:
        click(someone.page.get_by_role("link", name="order 700000"))
        click(button(someone, "Edit and send again"))
        expect(someone.dialog().get_by_label("Text of the body")).to_be_focused()
        someone.page.keyboard.type("another text")
        click(button(someone, "Show what will happen"))
        click(button(someone, "Send it again"))
        expect(someone.dialog()).to_have_count(0)


def test_a_life_is_shown(someone: Person) -> None:
    queue_of(someone, "CPH-1", r"private$\scratch")
    someone.page.get_by_role("link", name="order 700003").click()
    with within(1, "a life") as click:
        click(someone.page.get_by_role("link", name="Its life").or_(button(someone, "Its life")).first)
        someone.sees("In a queue")


def test_a_queue_is_paused(someone: Person) -> None:
    someone.go("queues?kind=outgoing")
    someone.page.get_by_role("link", name=re.compile("→ BRE-2")).click()
    with within(1, "pause") as click:
        click(button(someone, "Pause"))
        expect(button(someone, "Resume")).to_be_visible()
    queue_of(someone, "CPH-1", r"private$\scratch")
    with within(1, "pause of a queue that programs receive from") as click:
        click(button(someone, "Pause"))
        expect(button(someone, "Resume")).to_be_visible()
        expect(someone.page.locator(".notice.warn").first).to_contain_text("no receiver gets its messages")
    button(someone, "Resume").click()
    expect(button(someone, "Pause")).to_be_visible()


def test_a_queue_is_made_limited_opened_and_deleted(someone: Person) -> None:
    someone.go("queues")
    with within(3, "create") as click:
        click(button(someone, "New queue"))
        someone.dialog().get_by_label("Name").fill("made")
        someone.dialog().get_by_label("Quota in KB").fill("2048")
        someone.dialog().get_by_label("Who may send").fill("everyone")
        click(button(someone, "Create the queue"))
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("made")
    expect(someone.page.get_by_label("Quota in KB").first).to_have_value("2048")
    queue_of(someone, "AMS-1", r"private$\made")
    with within(3, "quota") as click:
        click(someone.page.get_by_role("tab", name="Properties"))
        someone.page.get_by_label("Quota in KB").first.fill("4096")
        click(button(someone, "Save"))
        someone.sees("Saved.")
    with within(3, "permissions") as click:
        click(someone.page.get_by_role("tab", name="Access"))
        click(button(someone, "Change the access list"))
        expect(someone.dialog().get_by_label("Who")).to_be_focused()
        someone.page.keyboard.type("users")
        someone.page.keyboard.press("Escape") if someone.page.get_by_role("option").count() else None
        click(button(someone, "Change it"))
        expect(someone.page.get_by_role("row").filter(has_text="users")).to_be_visible()
    queue_of(someone, "AMS-1", r"private$\made")
    with within(3, "delete a queue") as click:
        click(button(someone, "More actions"))
        click(item(someone, "Delete the queue"))
        someone.dialog().get_by_label("Type made to confirm").fill("made")
        click(button(someone, "Delete the queue"))
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Queues")


def test_keys_are_shown_and_a_link_is_simulated(someone: Person) -> None:
    someone.go()
    with within(1, "keys") as click:
        click(someone.page.get_by_role("link", name="Keys & certificates"))
        someone.sees("BRE-1")
    someone.go()
    with within(3, "rotate keys") as click:
        click(someone.page.get_by_role("link", name="Keys & certificates"))
        of_one = someone.page.get_by_role("region", name="BRE-1", exact=True)  # its settings permit it
        click(of_one.get_by_role("button", name="Rotate…"))
        click(button(someone, "Rotate the keys of BRE-1 now"))
        expect(someone.dialog()).to_contain_text("The keys are rotated.")
    someone.page.keyboard.press("Escape")
    someone.go()
    with within(3, "simulate") as click:
        click(someone.page.get_by_role("button", name=re.compile("Amsterdam – Bremen")))
        click(someone.page.get_by_role("link", name="Simulate an outage of this link"))
        someone.sees(re.compile("journeys? between sites"))


def test_a_queue_is_purged(someone: Person) -> None:
    queue_of(someone, "BRE-1", r"private$\invoices")
    with within(3, "purge") as click:
        click(button(someone, "More actions"))
        click(item(someone, "Purge"))
        someone.dialog().get_by_label("Type invoices to confirm").fill("invoices")
        click(button(someone, "Purge the queue"))
        expect(someone.dialog()).to_have_count(0)
        someone.sees("The queue is empty.")


def test_a_name_and_enter_go_there_before_the_answer_has_come(someone: Person) -> None:
    someone.go("jobs")
    expect(someone.page.get_by_role("heading", level=1)).to_have_text("Jobs")
    someone.page.keyboard.press("Control+k")
    expect(someone.page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
    someone.page.keyboard.insert_text("billing;journal")
    someone.page.keyboard.press("Enter")
    expect(someone.page.get_by_role("heading", level=1)).to_have_text("billing;journal")
