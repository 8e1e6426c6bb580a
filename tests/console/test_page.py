"""The console in a browser: each screen, each operation from click to effect, and a person of each role."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import expect

import qmnode
from mqenterprise.commands.directory_option import directory_settings
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.keys.publication import Publication
from qmnode import Message
from qmnode.structures.guid import guid_to_text
from tests.console.browser import awaited, browser, done, person
from tests.console.conftest import HERE
from tests.console.drawn import overview
from tests.console.shown import SECRET, failed, filled_with_messages
from tests.lab.addresses import HOST
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Route

    from tests.console.conftest import ConsoleLab

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture(scope="module")
def filled(lab: ConsoleLab) -> ConsoleLab:
    return filled_with_messages(lab)


@pytest.fixture(scope="module")
def window(filled: ConsoleLab) -> Iterator[Browser]:
    with browser() as started:
        yield started


SCREENS: dict[str, str | re.Pattern[str]] = {
    "": "Map",
    "?at=Berlin": "Map",
    "queues": "Queues",
    "search?queue=*&where=label%3Dorder*": "Search messages",
    "waiting": "Waiting messages",
    "nodes/ALPHA": re.compile("^ALPHA"),
    "failures": "Failures",
    "life": "A message's life",
    "routes?from=ALPHA&to=GAMMA": "Routes",
    "routes?without=GAMMA": "Routes",
    "keys": "Keys and certificates",
    "plan": "Plan",
    "jobs": "Jobs",
    "audit": "Audit",
    "queues/ALPHA/ALPHA%5Cprivate%24%5Corders": "orders",
    "queues/ALPHA/ALPHA%5Cprivate%24%5Corders?tab=history": "orders",
    "queues/ALPHA/ALPHA%5Cprivate%24%5Corders?tab=properties": "orders",
    "queues/ALPHA/ALPHA%5Cprivate%24%5Corders?tab=access": "orders",
}


CLIPPED = """
() => [...document.querySelectorAll("[role=cell]")].filter((cell) => cell.scrollWidth > cell.clientWidth)
  .map((cell) => cell.innerText)
"""
"""The cells of tables that do not show the whole of their text."""
HEIGHTS = 'new Set([...document.querySelectorAll(".side .nav-link")].map((one) => one.offsetHeight)).size'
"""How many heights the entries of the navigation have; none on a phone."""


@pytest.mark.parametrize(
    ("width", "scheme"), [(400, "dark"), (1180, "light"), pytest.param(2560, "dark", marks=pytest.mark.soak)]
)
def test_each_screen_opens_by_its_address_and_axe_finds_nothing_serious(
    filled: ConsoleLab, window: Browser, width: int, scheme: str
) -> None:
    with person(filled, window, width=width, scheme=scheme) as someone:
        for place, heading in SCREENS.items():
            someone.go(place)
            expect(someone.page.get_by_role("heading", level=1)).to_have_text(heading)
            someone.page.wait_for_load_state("networkidle")
            if width == 400:
                widest = someone.page.evaluate("document.documentElement.scrollWidth")
                assert widest <= width, f"{place} is {widest} pixels wide"
            if place == "":
                someone.sees(re.compile(r"The directory differs from its declaration by \d+ changes?\."))
            if place == "queues":
                assert "system, transactional" not in someone.page.evaluate(CLIPPED)
            if place == "keys":
                assert someone.page.evaluate(HEIGHTS) in (0, 1), "an entry of the navigation needs two lines"
            if place == "plan":
                step = someone.page.get_by_role("listitem").filter(has_text="Change routing link Amsterdam · Berlin")
                expect(step.locator("dd")).to_have_text("5 → 3")
                if someone.page.get_by_role("button", name="Compare nodes").count():
                    someone.click("Compare nodes")
                    at_node = someone.page.get_by_role("listitem").filter(
                        has_text="Create private queue wanted · ALPHA"
                    )
                    expect(at_node.locator("dd")).to_have_text(["Wanted"])
            assert someone.serious() == [], place


def test_nobody_comes_in_without_a_token_and_a_deep_link_waits_for_it(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window, None) as someone:
        someone.go("failures")
        someone.page.get_by_label("Token").and_(someone.page.locator("[type=password]")).fill("not-a-token")
        someone.click("Sign in")
        expect(someone.page.get_by_role("alert")).to_contain_text("no node knows this token")
        assert someone.serious() == []
        someone.page.get_by_label("Token").and_(someone.page.locator("[type=password]")).fill("operate-token")
        someone.page.keyboard.press("Enter")
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Failures")
        someone.click("Signed in as operate")
        someone.page.get_by_role("menuitem", name="Sign out", exact=True).click()
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_what_others_wrote_is_text(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.queue("hostile")
        link = someone.page.get_by_role("link", name=re.compile("onerror"))
        expect(link).to_have_text("<img src=x onerror=alert(1)>[U+202E]gnp.exe␇")
        link.click()
        someone.sees("<script>alert(1)</script>")
        expect(someone.page.locator("main script, main img")).to_have_count(0)
        someone.queue("hostile")
        someone.page.get_by_role("link", name="raw", exact=True).click()
        someone.sees(re.compile("00000000 {2}00 01 02 03"))


def test_a_node_of_several_hosts_says_where_it_is_active_and_who_stands_by(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("nodes/BETA")
        doors = someone.page.get_by_role("region", name="Doors")
        expect(doors).to_contain_text(re.compile(rf"{re.escape(HERE)} is active since .+ ago.*cor-b stands by"))


def test_each_role_sees_and_receives_what_it_may(filled: ConsoleLab, window: Browser) -> None:
    for role in ("read", "bodies", "operate"):
        with person(filled, window, role) as someone:
            someone.queue("secrets")
            someone.page.get_by_role("link", name="sealed").click()
            someone.sees("Size of the body")
            facts = someone.page.get_by_role("region", name="Properties").locator("dl")
            expect(facts).to_contain_text("NORMAL")
            expect(facts).not_to_contain_text(re.compile("MQMSG_CLASS|B \\("))
            if role == "read":
                someone.sees("you need the role bodies")
                assert SECRET not in someone.wire()
                assert "message_class" in someone.wire()
            else:
                someone.sees(SECRET)
            expect(someone.button("Edit and send again")).to_have_count(int(role == "operate"))
            expect(someone.button("Delete…")).to_have_count(int(role == "operate"))


def test_selected_messages_are_moved_after_the_node_has_said_what_will_happen(
    filled: ConsoleLab, window: Browser
) -> None:
    with person(filled, window, "operate") as someone:
        someone.queue("scratch")
        someone.select("order 1", "order 3")
        someone.click("Move…")
        target = someone.dialog().get_by_label("Target")
        preview = someone.button("Show what will happen", someone.dialog())
        target.fill(r"BETA\private$\mistyped")
        preview.click()
        expect(someone.dialog()).to_contain_text(r"No such queue is known: BETA lists no queue private$\mistyped")
        expect(someone.dialog()).to_contain_text("look in the dead letters of that machine")
        assert someone.serious() == []
        target.fill("mistyped")
        preview.click()
        expect(someone.dialog().get_by_role("alert")).to_contain_text("has no queue mistyped: create it first")
        for text, offered in (("inv", r"BETA\private$\invoices"), ("la", "later")):
            target.fill(text)
            expect(someone.dialog().locator("datalist option").first).to_have_attribute("value", offered)
        target.fill("later")
        someone.button("Show what will happen", someone.dialog()).click()
        someone.button("Move 2 messages", someone.dialog()).click()
        expect(someone.dialog().locator(".job-progress .state").first).to_have_text("done")
        expect(someone.dialog()).to_contain_text("2 selected messages of")  # and not all of them
        someone.button("Close", someone.dialog().locator(".dialog-actions")).click()
        assert done(lambda: (filled.count("scratch"), filled.count("later"))) == (4, 2)
        someone.go("jobs?show=previews")
        row = someone.page.get_by_role("row").filter(has_text="Move scratch → later")
        expect(row).to_contain_text(re.compile("preview.*2 messages would be moved"))
        someone.queue("later")
        someone.page.get_by_role("link", name="order 1").click()
        someone.page.get_by_role("link", name="Its life").click()
        someone.page.get_by_role("listitem").filter(has_text="Moved").get_by_role("link", name="Job").wait_for()
        story = someone.page.locator("ol.life > li")
        expect(story.filter(has_text="Arrived")).to_contain_text("in scratch")
        expect(story.filter(has_text="Moved")).to_contain_text("scratch → later, by operate")
        expect(story.filter(has_text="In a queue")).to_contain_text("since")
        someone.go("jobs?show=changes")
        someone.page.get_by_role("link", name=re.compile("Move scratch → later")).first.click()
        someone.sees("moved")
        someone.click("Undo the job…")
        someone.button("Undo the job", someone.dialog()).click()
        expect(someone.page.get_by_role("heading", level=1)).to_contain_text("Undo of job")
        done(lambda: wait_until(lambda: filled.count("scratch") == 6, 60, "the messages are back"))


def test_messages_that_meet_a_condition_are_copied_and_deleted(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window, "operate") as someone:
        someone.queue("scratch", "?where=label%3D*5")
        expect(someone.page.get_by_role("link", name="order 5")).to_be_visible()
        someone.click("Copy…")
        someone.dialog().get_by_label("Target").fill("later")
        someone.confirm("Copy 1 message")
        someone.click("Delete…")
        someone.confirm("Delete 1 message")
        assert done(lambda: (filled.count("scratch"), filled.count("later"))) == (5, 1)


def test_failures_of_a_group_return_to_where_they_failed(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window, "operate") as someone:
        someone.go("failures")
        group = someone.page.get_by_role("listitem").filter(has_text="Sales.PriceMissing")
        someone.button("Return…", group).click()
        someone.confirm("Return 3 messages")
        done(lambda: wait_until(lambda: filled.count("sales") == 3, 60, "three failures are back"))
        someone.click("Return all…")
        someone.confirm("Return 6 messages")
        done(lambda: wait_until(lambda: filled.count("error") == 0, 60, "all are back"))
        someone.go("failures")
        someone.sees("No failed message.")


def test_a_queue_is_made_filled_edited_purged_and_deleted(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("queues?machine=ALPHA")
        someone.click("New queue")
        someone.dialog().get_by_label("Name").fill("made")
        someone.click("Create the queue")
        expect(someone.dialog()).to_have_count(0)  # it has a label, too
        someone.page.get_by_role("textbox", name="Label").fill("Made in the console")
        someone.click("Save")
        someone.sees("Saved.")
        assert awaited(lambda: label_of(filled, "made")) == "Made in the console"
        someone.page.get_by_role("tab", name="Access").click()
        someone.click("Change the access list")
        someone.dialog().get_by_label("Who").fill("users")
        someone.page.keyboard.press("Escape") if someone.page.get_by_role("option").count() else None
        someone.click("Change it")
        expect(someone.page.get_by_role("row").filter(has_text="users")).to_be_visible()
        someone.page.get_by_role("tab", name="Messages").click()
        someone.click("Send a message")
        someone.dialog().get_by_label("Label").fill("first")
        someone.dialog().get_by_label("Text of the body").fill("Grüße 7")
        someone.button("Send", someone.dialog()).click()
        someone.page.get_by_role("link", name="first").click()
        someone.sees("Grüße 7")
        someone.click("Edit and send again")
        someone.dialog().get_by_label("Text of the body").fill("Grüße 8")
        someone.click("Show what will happen")
        expect(someone.dialog()).to_contain_text("It changes:")
        someone.button("Send it again", someone.dialog()).click()
        someone.page.get_by_role("link", name="first").click()
        someone.sees("Grüße 8")
        someone.click("Its life") if someone.button("Its life").count() else someone.page.get_by_text(
            "Its life"
        ).click()
        someone.sees("In a queue")
        someone.queue("made")
        for item, button in (("Purge…", "Purge the queue"), ("Delete the queue…", "Delete the queue")):
            someone.click("More actions")
            expect(someone.page.get_by_role("menuitem", name="Purge…")).to_contain_text("the queue stays")
            expect(someone.page.get_by_role("menu")).to_have_css("opacity", "1")
            # Mantine's own anchor of the focus is no item of the menu.
            assert [one for one in someone.serious() if not one.startswith("aria-required-children")] == []
            someone.page.get_by_role("menuitem", name=item).click()
            expect(someone.button(button, someone.dialog())).to_be_disabled()
            someone.dialog().get_by_label("Type made to confirm").fill("made")
            someone.button(button, someone.dialog()).click()
            expect(someone.dialog()).to_have_count(0)
            someone.sees(f"made was {'purged' if item == 'Purge…' else 'deleted'}.")
            if item == "Purge…":
                assert done(lambda: filled.count("made")) == 0
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Queues")
        with pytest.raises(qmnode.MessageQueuingError):
            done(lambda: filled.count("made"))
        someone.go("audit?what=delete+queue")
        someone.sees("delete queue")
        someone.go("audit?what=create+queue")
        row = someone.page.get_by_role("row").filter(has=someone.page.get_by_text("made", exact=True))
        row.get_by_text("ALPHA").click()
        expect(someone.dialog()).to_contain_text("properties")
        assert someone.serious() == []
        someone.page.keyboard.press("Escape")
        someone.go("audit?show=previews")
        row = someone.page.get_by_role("row").filter(has_text="edit message")
        expect(row.get_by_text("preview", exact=True)).to_be_visible()
        someone.go("audit?what=edit")
        expect(row.get_by_text("done", exact=True)).to_be_visible()


def test_a_queue_whose_rights_are_refused_says_that_it_is_made(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("queues?machine=ALPHA")
        someone.click("New queue")
        someone.dialog().get_by_label("Name").fill("half")
        someone.dialog().get_by_label("Who may send").fill("nobody knows this one")
        someone.click("Create the queue")
        expect(someone.dialog()).to_contain_text("The queue is made. Its access list is not as you gave it")
        expect(someone.dialog().get_by_role("alert")).to_contain_text("nobody knows this one")
        expect(someone.button("Create the queue", someone.dialog())).to_be_disabled()
        someone.dialog().get_by_role("link", name="See its access").click()
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("half")
        expect(someone.page.get_by_role("tab", name="Access", selected=True)).to_be_visible()
        assert done(lambda: filled.count("half")) == 0


def test_a_wrong_quota_is_said_at_its_field_and_is_not_saved(filled: ConsoleLab, window: Browser) -> None:
    done(lambda: filled.fill("heavy", Message(b"x" * 4000, recoverable=True)))
    with person(filled, window) as someone:
        someone.queue("heavy", "?tab=properties")
        quota = someone.page.get_by_label("Quota in KB")
        save = someone.button("Save")
        for wrong in ("-7", "abc", "0", "1.5", "99999999999999"):
            quota.fill(wrong)
            someone.sees("A whole number from 1 to 4,294,967,294, or empty.")
            expect(quota).to_have_value(wrong)
            expect(quota).to_have_attribute("aria-invalid", "true")
            expect(save).to_be_disabled()
        quota.fill("1")
        someone.sees(re.compile(r"It holds 4\.\d KB already: it takes no message until it holds less\."))
        assert someone.serious() == []
        quota.press("Enter")
        expect(someone.page.get_by_text("Saved.")).to_be_in_viewport()
        assert awaited(lambda: quota_of(filled, "heavy")) == 1
        someone.go("queues?machine=ALPHA")
        someone.click("New queue")
        someone.dialog().get_by_label("Name").fill("zz=x")
        someone.dialog().get_by_label("Quota in KB").fill("0")
        expect(someone.button("Create the queue", someone.dialog())).to_be_disabled()
        someone.dialog().get_by_label("Quota in KB").fill("7")
        someone.click("Create the queue")
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("zz=x")
        assert awaited(lambda: quota_of(filled, "zz=x")) == 7


def test_a_queue_of_a_hostile_name_is_purged_by_the_name_that_is_shown(filled: ConsoleLab, window: Browser) -> None:
    name = "<b>evil</b>=\u202ex"
    done(lambda: filled.fill(name, Message(b"x", recoverable=True)))
    with person(filled, window) as someone:
        someone.queue(name)
        someone.click("More actions")
        someone.page.get_by_role("menuitem", name="Purge…").click()
        field = someone.dialog().get_by_label("Type <b>evil</b>=[U+202E]x to confirm")
        field.fill("<b>evil</b>=x")
        expect(someone.button("Purge the queue", someone.dialog())).to_be_disabled()
        field.fill("<b>evil</b>=[U+202E]x")
        someone.click("Purge the queue")
        expect(someone.dialog()).to_have_count(0)
        assert done(lambda: filled.count(name)) == 0
        someone.queue("hostile")
        someone.page.get_by_role("link", name=re.compile("onerror")).click()
        someone.click("Edit and send again")
        expect(someone.dialog()).to_contain_text("With its hidden characters: <img src=x onerror=alert(1)>[U+202E]gnp")


def test_an_edit_is_kept_until_one_says_otherwise_and_goes_to_where_the_message_failed(
    filled: ConsoleLab, window: Browser
) -> None:
    done(lambda: filled.fill("shop.error", failed(77, "Sales.PriceMissing"), failed(78, "Sales.PriceMissing")))
    with person(filled, window, "operate") as someone:
        before = done(lambda: filled.count("sales"))
        someone.queue("shop.error")
        someone.page.get_by_role("link", name="failed 77").click()
        someone.click("Edit and send again")
        body = someone.dialog().get_by_label("Text of the body")
        expect(body).to_be_focused()
        expect(someone.dialog().get_by_label("Send it to another queue")).to_have_value("sales")
        body.fill('{"Order":{"Id":77}')
        expect(someone.dialog()).to_contain_text("The text was JSON, and no longer is:")
        someone.page.mouse.click(5, 400)
        someone.page.keyboard.press("Escape")
        expect(someone.page.get_by_role("alertdialog")).to_contain_text("What you typed is lost when this closes.")
        assert someone.serious() == []
        someone.click("Go on editing")
        expect(body).to_have_value('{"Order":{"Id":77}')
        body.fill('{"Order":{"Id":770}}')
        expect(someone.dialog()).not_to_contain_text("no longer is")
        someone.click("Show what will happen")
        someone.click("Send it again")
        someone.sees("Sent to sales.")
        assert done(lambda: (filled.count("sales"), filled.count("shop.error"))) == (before + 1, 1)
        someone.page.get_by_role("link", name="failed 78").click()
        someone.click("Edit and send again")
        body.fill("lost")
        someone.page.keyboard.press("Escape")
        someone.click("Close without it")
        expect(someone.dialog()).to_have_count(0)


async def quota_of(lab: ConsoleLab, queue: str) -> int:
    async with await lab.nodes["ALPHA"].connect() as qm:
        return (await qm.queue(rf".\private$\{queue}")).quota


async def label_of(lab: ConsoleLab, queue: str) -> str:
    async with await lab.nodes["ALPHA"].connect() as qm:
        return (await qm.queue(rf".\private$\{queue}")).label


def test_several_queues_are_purged_and_deleted_at_once(filled: ConsoleLab, window: Browser) -> None:
    names = ("bulk a", "bulk b")
    for name in names:
        done(lambda name=name: filled.fill(name, Message(b"x", recoverable=True)))  # type: ignore[misc]
    with person(filled, window) as someone:
        for verb, button in (("Purge…", "Purge 2 queues"), ("Delete…", "Delete 2 queues")):
            someone.go("queues?name=bulk")
            for name in names:
                someone.page.get_by_role("checkbox", name=f"Select {name} on ALPHA").check()
            someone.click(verb)
            expect(someone.button(button, someone.dialog())).to_be_disabled()
            someone.dialog().get_by_label("Type 2").fill("2")
            someone.button(button, someone.dialog()).click()
            expect(someone.dialog()).to_contain_text("2 of 2 queues done")
            assert someone.serious() == []
            someone.button("Close", someone.dialog().locator(".dialog-actions")).click()
            if verb == "Purge…":
                assert done(lambda: [filled.count(name) for name in names]) == [0, 0]
        someone.sees("No queue matches.")


def test_keys_rotate_with_the_command_that_the_page_shows(filled: ConsoleLab, window: Browser) -> None:
    keys_file = filled.folder / "keys.yaml"
    keys_file.write_text(json.dumps({"directory": f"{filled.folder}/{{computer}}/store", "reload_interval": 1}))
    options = ["--directory", str(filled.folder / "directory.yaml"), "--keys", str(keys_file)]

    def run(*command: str) -> None:
        whole = [sys.executable, "-m", *command, *options]
        ran = subprocess.run(whole, cwd=PROJECT, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    before = done(lambda: filled.keys("BETA"))
    with person(filled, window, "operate") as someone:
        someone.go("keys")
        panel = someone.page.get_by_role("region", name="BETA", exact=True)
        rows = panel.locator("tbody tr").filter(has=someone.page.locator(".mono"))
        expect(rows).to_have_count(len(before))
        someone.button("Rotate…", panel).click()
        expect(someone.dialog().get_by_role("listitem")).to_have_count(4)
        command = someone.dialog().get_by_text("mqenterprise keys rotate").inner_text().split()
        assert command == ["mqenterprise", "keys", "rotate", "BETA"]
        expect(someone.dialog()).to_contain_text("a person with the role administer can rotate")
        expect(someone.button("Rotate the keys of BETA now", someone.dialog())).to_have_count(0)
        someone.page.keyboard.press("Escape")
        run(*command)
        someone.button("Read the key store again", panel).click()
        expect(rows).to_have_count(len(before) + 1)
        (new,) = done(lambda: filled.keys("BETA")).keys() - before.keys()
        done(lambda: wait_until(lambda: filled.keys("BETA")[new] == "current", 30, "the node has read it"))
        expect(rows.filter(has=someone.page.locator(f"[title='{new}']"))).to_contain_text("current")
        assert new in done(lambda: published(filled, "BETA"))


def encryption_keys(lab: ConsoleLab, state: str) -> set[str]:
    """The fingerprints of BETA's encryption keys in a state that the directory shows or has shown."""
    with httpx.Client(verify=lab.trust(), headers={"Authorization": "Bearer read-token"}) as client:
        keys = client.get(f"https://{HOST}:{lab.ports['BETA']}/v1/keys").json()["keys"]
    return {key["fingerprint"] for key in keys if key["purpose"] == "encryption" and key["state"] == state}


def test_keys_rotate_by_click_in_the_node_and_in_the_directory(filled: ConsoleLab, window: Browser) -> None:
    (old,) = done(lambda: encryption_keys(filled, "current"))
    known = len(done(lambda: filled.keys("BETA")))
    with person(filled, window) as someone:
        someone.go("keys")
        panel = someone.page.get_by_role("region", name="BETA", exact=True)
        rows = panel.locator("tbody tr").filter(has=someone.page.locator(".mono"))
        expect(rows).to_have_count(known)
        someone.button("Rotate…", panel).click()
        steps = someone.dialog().get_by_role("listitem")
        expect(steps).to_have_count(3)
        expect(steps.nth(0)).to_contain_text("makes a new key for encryption (2048 bits)")
        expect(steps.nth(1)).to_contain_text("The directory shows the new key")
        expect(steps.nth(2).locator(f"[title='{old}']")).to_be_visible()
        expect(steps.nth(2)).to_contain_text("may still use it until")
        assert someone.serious() == []
        assert done(lambda: encryption_keys(filled, "current")) == {old}  # nothing happens before the confirmation
        expect(someone.dialog()).to_contain_text("Keys for signing stay as they are.")

        # Twice the same button, before the dialog shows another in its place.
        someone.button("Rotate the keys of BETA now", someone.dialog()).evaluate("it => { it.click(); it.click() }")
        expect(someone.dialog()).to_contain_text("The keys are rotated.")
        (new,) = done(lambda: encryption_keys(filled, "current"))
        assert new != old
        assert old in done(lambda: encryption_keys(filled, "previous"))
        assert new in done(lambda: published(filled, "BETA"))
        assert old not in done(lambda: published(filled, "BETA"))
        expect(
            someone.dialog().get_by_role("listitem").filter(has_text="current").locator("[title]")
        ).to_have_attribute("title", new)
        someone.button("Close", someone.dialog().locator(".dialog-actions")).click()
        expect(rows).to_have_count(known + 1)  # of two clicks one rotated
        expect(rows.filter(has=someone.page.locator(f"[title='{new}']"))).to_contain_text("current")

        someone.button("Rotate…", panel).click()
        someone.dialog().get_by_text("Roll back", exact=True).click()
        expect(steps.first.locator(f"[title='{old}']")).to_be_visible()
        someone.button("Roll back the keys of BETA now", someone.dialog()).click()
        expect(someone.dialog()).to_contain_text("The keys are rolled back.")
        assert done(lambda: encryption_keys(filled, "current")) == {old}
        assert new not in done(lambda: published(filled, "BETA"))
        someone.page.keyboard.press("Escape")
        someone.button("Rotate…", panel).click()
        someone.dialog().get_by_text("Retire", exact=True).click()
        expect(someone.dialog()).to_contain_text("No old key is due yet.")
        expect(someone.button("Retire old keys of BETA now", someone.dialog())).to_be_disabled()
        someone.page.keyboard.press("Escape")
        someone.go("audit?what=key+rotation")
        someone.sees("key rotation")
    ended = [entry for entry in done(lambda: filled.audit("BETA")) if entry["action"] == "key_rotation"]
    assert [(entry["who"], entry["details"]["action"], entry["outcome"]) for entry in ended] == [
        ("administer", "rotate", "done"), ("administer", "rollback", "done"),
    ]  # fmt: skip


def test_a_rotation_without_the_directory_says_what_to_do_and_changes_nothing(
    filled: ConsoleLab, window: Browser
) -> None:
    account = filled.folder / "admitted-BETA" / "directory.yaml"
    elsewhere = account.with_name("elsewhere.yaml")
    before = done(lambda: filled.keys("BETA"))
    with person(filled, window) as someone:
        someone.go("keys")
        someone.button("Rotate…", someone.page.get_by_role("region", name="BETA", exact=True)).click()
        expect(someone.dialog().get_by_role("listitem")).to_have_count(3)
        account.rename(elsewhere)
        try:
            someone.button("Rotate the keys of BETA now", someone.dialog()).click()
            refusal = someone.dialog().get_by_role("alert").filter(has_text="No key was changed")
            expect(refusal).to_contain_text("directory.yaml cannot be read")
            assert someone.serious() == []
        finally:
            elsewhere.rename(account)
        assert done(lambda: filled.keys("BETA")) == before
        someone.button("Try again", someone.dialog()).click()
        expect(someone.dialog().get_by_role("listitem")).to_have_count(3)


def test_a_rotation_that_fails_after_its_start_says_what_to_do_next(filled: ConsoleLab, window: Browser) -> None:
    fault = "<b>ldaps://d</b> does not answer. When the directory answers, start rotate again"
    run = {
        "action": "rotate", "who": "administer", "state": "failed", "stage": "publishing", "changes": [],
        "begun": "2026-01-31T08:00:00Z", "ended": "2026-01-31T08:00:09Z", "fault": fault,
    }  # fmt: skip
    with person(filled, window) as someone:
        someone.go("keys")
        someone.button("Rotate…", someone.page.get_by_role("region", name="BETA", exact=True)).click()
        expect(someone.dialog().get_by_role("listitem")).to_have_count(3)
        someone.page.route(
            "**/keys/rotation",
            lambda route: route.fulfill(
                status=202 if route.request.method == "POST" else 200,
                json=run
                if route.request.method == "POST"
                else {"permitted": True, "plan": None, "fault": fault, "run": run},
            ),
        )
        someone.button("Rotate the keys of BETA now", someone.dialog()).click()
        expect(someone.dialog().get_by_role("alert")).to_contain_text(f"It failed: {fault}")
        expect(someone.dialog()).not_to_contain_text("under way")
        expect(someone.dialog().locator(".state").filter(has_text="failed")).to_be_visible()


def published(lab: ConsoleLab, machine: str) -> frozenset[str]:
    """The fingerprints of the keys that the directory shows for a node."""
    with EnterpriseDirectory(directory_settings(lab.folder / "directory.yaml")) as directory:
        publication = Publication(directory)
        (node,) = publication.nodes(computers=[machine])
        return publication.read(node).fingerprints


def test_colours_are_chosen_without_a_style_that_the_policy_forbids(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("queues")
        someone.click("Dark colours")
        expect(someone.button("Light colours")).to_be_visible()


def test_a_word_alone_is_looked_for_in_bodies(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("search")
        someone.page.get_by_label("Only messages where").fill("Contoso")
        someone.click("Find")
        expect(someone.page.get_by_role("link", name="order 0", exact=True).first).to_be_visible()


def test_a_life_has_the_move_to_a_subqueue(filled: ConsoleLab, window: Browser) -> None:
    done(lambda: filled.fill("parcels", Message(b"x", label="parcel 7", recoverable=True), at="BETA"))
    with filled.signed_in("administer") as client:
        (found,) = client.get("messages", params={"queue": "parcels"}).json()["found"]
        place = f"nodes/BETA/v1/queues/parcels/messages/{found['message']['lookup_identifier']}/move"
        assert client.post(place, json={"target": "parcels;later"}).status_code == 204
    with person(filled, window) as someone:
        someone.go(f"life?id={quote(found['message']['identifier'])}")
        story = someone.page.locator("ol.life > li")
        expect(story.filter(has_text="Arrived")).to_contain_text("in parcels on BETA")
        expect(story.filter(has_text="Moved")).to_contain_text("parcels → parcels;later, by administer")
        expect(story.filter(has_text="In a queue")).to_contain_text("parcel 7 in parcels;later on BETA")


def test_the_order_of_queues_is_shown_and_is_in_the_address(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("queues")
        expect(someone.page).to_have_url(re.compile("sort=pathname"))
        someone.sees("sorted by Queue ▲")
        column = someone.page.get_by_role("columnheader", name="Messages")
        column.get_by_role("button").click()
        expect(column).to_have_attribute("aria-sort", "descending")
        expect(someone.page).to_have_url(re.compile("sort=-message_count"))
        someone.sees("sorted by Messages ▼")
        expect(someone.page.locator('[data-row="0"]')).to_contain_text("orders")


def test_an_outgoing_queue_says_where_its_messages_go(filled: ConsoleLab, window: Browser) -> None:
    async def send() -> str:
        async with await filled.nodes["BETA"].connect() as qm:
            number = (await qm.queue(r".\private$\invoices")).private_queue_number
            name = rf"PRIVATE={guid_to_text(qm.identifier)}\{number:08x}"
        async with await filled.nodes["ALPHA"].connect() as qm, await qm.open_queue(name, qmnode.Access.SEND) as queue:
            await queue.send(Message(b"x", recoverable=True))
        return name

    name = awaited(send)

    def with_hops(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"next_hops": ["192.0.2.1:1801", "192.0.2.2:1801"]})

    with person(filled, window) as someone:
        place = quote(name, safe="")
        someone.page.route(f"**/api/nodes/ALPHA/v1/queues/{place}", with_hops)
        someone.go(f"queues/ALPHA/{place}")
        expect(someone.page.get_by_role("heading", level=1)).to_have_text(r"BETA\private$\invoices")
        expect(someone.page.locator(".page-head p")).to_have_text(f"outgoing queue on ALPHA · {name}")
        expect(someone.page.locator("dl.figures")).to_contain_text("192.0.2.1:1801, 192.0.2.2:1801")
        expect(someone.button("Pause")).to_be_visible()
        expect(someone.button("Send a message")).to_have_count(0)


def test_the_map_shows_bridges_and_says_where_no_node_is(filled: ConsoleLab, window: Browser) -> None:
    bridge = {"name": "shop", "direction": "out", "queue": "orders", "peer": "amqps://broker.example:5671"}
    bridge |= {"address": "orders.in", "connected": True, "since": "2026-01-01T00:00:00+00:00", "reason": ""}

    def seen(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        document["sites"].append({"name": "Mainframe", "foreign": True})
        document["nodes"][0] |= {"state": "trouble", "reason": "the disk is full", "warnings": ["the disk is full"]}
        document["nodes"][0]["bridges"] = [bridge | {"carried": 12, "repeated": 0, "rejected": 0, "failures": 0}]
        route.fulfill(response=answer, json=document)

    with person(filled, window) as someone:
        someone.page.route("**/api/overview", seen)
        someone.go()
        entry = someone.page.locator(".map-list").get_by_role("button", name="Mainframe")
        expect(entry).to_have_text("Mainframeno node")
        expect(someone.page.locator("g.site").filter(has_text="Mainframe")).to_contain_text("no node")
        entry.click()
        detail = someone.page.locator(".map-list .detail")
        expect(detail).to_contain_text("no node")
        expect(detail.locator(".state")).to_have_count(0)
        someone.go("?at=Amsterdam")
        expect(someone.page.locator("li.bridge")).to_contain_text(re.compile("shop connected.*orders → orders.in"))
        expect(detail.get_by_text("the disk is full")).to_have_count(1)
        assert someone.serious() == []
        someone.page.unroute_all(behavior="ignoreErrors")  # one may be under way


@pytest.mark.parametrize(
    ("sites", "width"),
    [pytest.param(60, 1280, marks=pytest.mark.soak), (300, 1280), pytest.param(300, 400, marks=pytest.mark.soak)],
)
def test_the_drawing_of_many_sites_fills_its_place(filled: ConsoleLab, window: Browser, sites: int, width: int) -> None:
    with person(filled, window, width=width) as someone:
        someone.page.route("**/api/overview", lambda route: route.fulfill(json=overview(sites)))
        someone.go()
        dots = someone.page.locator(".map .dot")
        expect(dots.first).to_be_visible()
        box = someone.page.locator(".map svg").first.bounding_box()
        assert box is not None and box["height"] < 820, "as high as the window at most, not as the list beside it"
        drawn = [one for one in (dot.bounding_box() for dot in dots.all()) if one is not None]
        high = max(one["y"] + one["height"] for one in drawn) - min(one["y"] for one in drawn)
        assert high > box["height"] / 2
        groups = someone.page.locator(".map .group")
        if sites == 300:
            assert 0 < dots.count() < 150
            before = dots.count()
            groups.first.click()
            expect(dots).not_to_have_count(before)
        else:
            assert (dots.count(), groups.count()) == (60, 0)


def test_a_page_that_is_older_than_the_console_asks_to_be_loaded_again(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go("queues")
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Queues")
        someone.page.route("**/assets/JobsScreen-*", lambda route: route.fulfill(status=404))
        jobs = someone.page.get_by_role("link", name="Jobs", exact=True)
        jobs.click()
        someone.sees("the console does not answer")  # the file alone is missing
        someone.page.route(filled.url, lambda route: route.fulfill(body="<html>another one</html>"))
        someone.page.route("**/assets/AuditScreen-*", lambda route: route.fulfill(status=404))
        someone.page.get_by_role("link", name="Audit", exact=True).click()
        someone.sees("The console was upgraded while this page was open")
        someone.page.unroute_all(behavior="ignoreErrors")
        someone.click("Reload")
        expect(someone.page.get_by_role("heading", level=1)).to_have_text("Audit")


def test_everything_is_reached_by_keyboard(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        page = someone.page
        someone.go("queues")
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
        page.keyboard.type("invoi")
        expect(page.get_by_role("dialog").get_by_text("invoices")).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("invoices")
        checkbox = page.get_by_role("checkbox", name="Select order 0", exact=True)
        checkbox.focus()
        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
        page.keyboard.press("Escape")
        expect(checkbox).to_be_focused()
        page.get_by_role("link", name="order 0").focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator('[data-row="1"] :focus')).to_have_count(1)


def test_a_node_that_hangs_is_seen_and_blocks_no_screen(filled: ConsoleLab, window: Browser) -> None:
    with person(filled, window) as someone:
        someone.go()
        expect(someone.page.get_by_role("alert")).to_contain_text("1 of 3 nodes is down: GAMMA")
        filled.nodes["BETA"].send_signal(signal.SIGSTOP)
        try:
            expect(someone.page.locator("main")).to_contain_text(re.compile(r"BETA"))
            expect(someone.page.locator(".notice").filter(has_text="BETA").first).to_be_visible()
            someone.go("queues")
            someone.sees("orders")
            expect(someone.page.locator(".notice.warn")).to_contain_text("BETA")
            someone.queue("orders")
            someone.sees("order 0")
        finally:
            filled.nodes["BETA"].send_signal(signal.SIGCONT)
        someone.go()
        expect(someone.page.get_by_role("alert")).not_to_contain_text("BETA")


def test_a_dead_letter_of_a_machine_that_nobody_knows_is_doubted_before_it_returns(
    filled: ConsoleLab, window: Browser
) -> None:
    async def expire() -> None:
        late = qmnode.Message(b"x", label="late", time_to_reach_queue=1, negative_journaling_requested=True)
        async with (
            await filled.nodes["ALPHA"].connect() as qm,
            await qm.open_queue(r"DIRECT=OS:NOBODY\private$\orders", qmnode.Access.SEND) as queue,
        ):
            await queue.send(late)

    async def purge() -> None:
        async with (
            await filled.nodes["ALPHA"].connect() as qm,
            await qm.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER", qmnode.Access.RECEIVE) as queue,
        ):
            await queue.purge()

    awaited(expire)
    with person(filled, window, "operate") as someone:
        someone.go("queues/ALPHA/system%24%3Bdeadletter")
        someone.page.get_by_role("link", name="late").wait_for()
        someone.click("Return all…")
        expect(someone.dialog()).to_contain_text("NOBODY")
        expect(someone.dialog().get_by_role("status").filter(has_text="NOBODY")).to_be_visible()
        assert someone.serious() == []
    awaited(purge)
