"""Signing in by LDAP and by an OpenID Connect provider: each node decides what the person may do, and audits them."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

import qmnode
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Change, ChangeKind
from tests.amqp.foreign import installed
from tests.console.browser import PATIENCE, browser, done, person
from tests.console.conftest import CLIENT_SECRET, PASSWORD, PEOPLE
from tests.lab.addresses import HOST
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser, Page

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.console.conftest import ConsoleLab

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@contextmanager
def ldap(lab: ConsoleLab, name: str, password: str = PASSWORD) -> Iterator[tuple[httpx.Client, httpx.Response]]:
    with lab.browser() as client:
        answer = client.post("session", json={"method": "ldap", "user": name, "password": password})
        if answer.status_code == 200:
            client.headers["X-CSRF-Token"] = answer.json()["csrf"]
        yield client, answer


def test_a_person_of_the_directory_has_the_role_that_the_node_gives_their_groups(lab: ConsoleLab) -> None:
    lab.fill("people", qmnode.Message(b"x", recoverable=True))
    with ldap(lab, "ALICE") as (client, answer):
        assert (answer.json()["name"], answer.json()["roles"]) == ("console:alice", ["read", "bodies", "operate"])
        assert client.delete("nodes/ALPHA/v1/queues/people/messages").status_code == 204
    with ldap(lab, "bob") as (client, answer):
        assert answer.json()["roles"] == ["read"]
        assert client.delete("nodes/BETA/v1/queues/people").status_code == 403
    entries = [entry for entry in lab.audit("ALPHA") if entry["who"] == "console:alice"]
    assert [entry["outcome"] for entry in entries] == ["done"]


def test_a_person_without_a_group_that_a_node_names_comes_not_in(lab: ConsoleLab) -> None:
    with ldap(lab, "carol") as (client, answer):
        assert answer.status_code == 401
        assert "management.consoles" in answer.json()["detail"]
        assert client.get("overview").status_code == 401


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", "wrong"), ("alice", ""), ("nobody", PASSWORD), ("", PASSWORD), ("*", PASSWORD),
        ("alice)(uid=*", PASSWORD), ("alic*", PASSWORD), ("cn=admin", PASSWORD),
    ],
    ids=range(8),
)  # fmt: skip
def test_wrong_names_and_passwords_are_refused_alike(lab: ConsoleLab, name: str, password: str) -> None:
    with ldap(lab, name, password) as (_, answer):
        assert answer.status_code == 401
        assert answer.json()["detail"] == "the directory does not know this name, or the password is wrong"


def provided(lab: ConsoleLab) -> Path:
    """The file with the groups of each person at the provider."""
    return lab.folder / "provided.json"


def set_provided(lab: ConsoleLab, people: Mapping[str, tuple[str, ...]]) -> None:
    new = provided(lab).with_suffix(".new")
    new.write_text(json.dumps(people))
    new.replace(provided(lab))


@pytest.fixture(scope="module")
def provider(lab: ConsoleLab) -> Iterator[str]:
    """Another project's OpenID Connect provider."""
    place = installed("provider", "npm", "ci", "--no-audit", "--no-fund", sources=Path(__file__).parent)
    set_provided(lab, PEOPLE)
    process = subprocess.Popen(
        ["node", "provider.mjs", str(lab.provider), f"{lab.url}api/oidc/callback", CLIENT_SECRET, str(provided(lab))],
        cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://{HOST}:{lab.provider}"

    def answers() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{address}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, 60, "the provider answers")
        yield address
    finally:
        process.terminate()
        process.wait(240)


@pytest.fixture(scope="module")
def window(lab: ConsoleLab) -> Iterator[Browser]:
    with browser() as started:
        yield started


def sign_in_at_the_provider(page: Page, name: str) -> None:
    """Its own pages for trials: a name, any password, and consent."""
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def test_a_person_comes_in_by_the_provider_and_acts_as_themselves(
    lab: ConsoleLab, window: Browser, provider: str
) -> None:
    done(lambda: lab.fill("provided", qmnode.Message(b"x", label="one", recoverable=True)))
    with person(lab, window, None) as someone:
        someone.go("queues/ALPHA/ALPHA%5Cprivate%24%5Cprovided")
        someone.page.get_by_role("link", name="Sign in with your organisation").click()
        sign_in_at_the_provider(someone.page, "alice")
        expect(someone.page.get_by_role("button", name="Signed in as console:alice")).to_be_visible()
        someone.queue("provided")
        someone.select("one")
        someone.click("Delete…")
        someone.confirm("Delete 1 message")
        assert done(lambda: lab.count("provided")) == 0
        cookies = {cookie["name"]: cookie for cookie in someone.context.cookies(lab.url)}
        assert (cookies["__Host-console"]["sameSite"], cookies["__Host-console"]["httpOnly"]) == ("Strict", True)
        assert "console-oidc" not in cookies
    assert any(entry["who"] == "console:alice" for entry in lab.audit("ALPHA"))


def test_a_person_whom_no_node_knows_is_told_so_on_the_page(lab: ConsoleLab, window: Browser, provider: str) -> None:
    with person(lab, window, None) as someone:
        someone.go()
        someone.page.get_by_role("link", name="Sign in with your organisation").click()
        sign_in_at_the_provider(someone.page, "carol")
        expect(someone.page.get_by_role("alert")).to_contain_text("no node gives carol a role", timeout=PATIENCE)
        assert someone.serious() == []


def test_an_answer_that_this_browser_did_not_ask_for_begins_no_session(lab: ConsoleLab, provider: str) -> None:
    with lab.browser() as client:
        for query in ("code=x&state=y", "", "error=access_denied&state="):
            answer = client.get(f"oidc/callback?{query}")
            assert answer.status_code == 302
            assert "has%20not%20begun" in answer.headers["location"].replace("+", "%20")
        began = client.get("oidc/start")
        assert began.headers["location"].startswith(f"{provider}/auth?")
        asked = dict(httpx.URL(began.headers["location"]).params)
        assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")
        wrong = client.get("oidc/callback", params={"code": "x", "state": "another"})
        assert "another" not in wrong.headers["location"]
        again = client.get("oidc/callback", params={"code": "x", "state": asked["state"]})
        assert "begin" in again.headers["location"], "a question is answered once"
        assert client.get("session").json()["signed_in"] is False
        began = client.get("oidc/start")
        state = dict(httpx.URL(began.headers["location"]).params)["state"]
        forged = client.get("oidc/callback", params={"code": "forged", "state": state})
        assert "refused" in forged.headers["location"]
        assert client.get("session").json()["signed_in"] is False


def sign_in_by_name(page: Page, name: str) -> None:
    page.get_by_text("Directory", exact=True).click()
    page.get_by_label("User name").fill(name)
    page.get_by_role("textbox", name="Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


@contextmanager
def members(slapd: EmbeddedDirectory, **groups: str) -> Iterator[None]:
    """Have each of these groups, such as ``staff="bob"``, only this member, and then those of before."""

    def set_members(members: Mapping[str, tuple[str, ...]]) -> None:
        with closing(LdapConnection(slapd.client_settings())) as connection:
            root = connection.root
            for group, names in members.items():
                dns = tuple(f"uid={name},ou=people,{root}".encode() for name in names)
                connection.modify(f"cn={group},ou=teams,{root}", [Change(ChangeKind.REPLACE, "member", dns)])

    names = {"operators": "Queue operators", "staff": "Staff"}
    done(lambda: set_members({names[group]: (member,) for group, member in groups.items()}))
    try:
        yield
    finally:
        before = {
            names[group]: tuple(one for one, theirs in PEOPLE.items() if names[group] in theirs) for group in groups
        }
        done(lambda: set_members(before))


def test_who_leaves_a_group_of_the_directory_loses_its_rights_in_a_session_that_runs(
    lab: ConsoleLab, slapd: EmbeddedDirectory
) -> None:
    done(lambda: lab.fill("left"))
    with ldap(lab, "alice") as (client, _):

        def purged() -> int:
            return client.delete("nodes/ALPHA/v1/queues/left/messages").status_code

        assert purged() == 204
        with members(slapd, operators="carol"):
            wait_until(lambda: purged() == 403, 30, "the node refuses")
            assert client.get("session").json()["roles"] == ["read"]
        wait_until(lambda: purged() == 204, 30, "the node lets her again")
        with members(slapd, operators="carol", staff="bob"):
            wait_until(lambda: purged() == 401, 30, "the session ends")
            told = client.get("session").json()
            assert (told["signed_in"], "management.consoles" in told["reason"]) == (False, True)
        assert purged() == 401


def test_who_leaves_a_group_of_the_provider_loses_its_rights_in_a_session_that_runs(
    lab: ConsoleLab, window: Browser, provider: str
) -> None:
    with person(lab, window, None) as someone:
        someone.go("queues")
        someone.page.get_by_role("link", name="Sign in with your organisation").click()
        sign_in_at_the_provider(someone.page, "alice")
        expect(someone.button("Signed in as console:alice")).to_be_visible()
        someone.go("queues")
        expect(someone.button("New queue")).to_be_visible()
        try:
            set_provided(lab, PEOPLE | {"alice": ("Staff",)})
            someone.page.reload()
            expect(someone.button("New queue")).to_have_count(0)
            expect(someone.page.get_by_role("heading", level=1)).to_have_text("Queues")
            set_provided(lab, {"bob": ("Staff",)})
            expect(someone.page.get_by_role("heading", name="Sign in")).to_be_visible()
            someone.sees(re.compile("Your session has ended. the provider refused"))
            assert someone.serious() == []
        finally:
            set_provided(lab, PEOPLE)


def test_what_somebody_types_outlasts_the_session(lab: ConsoleLab, window: Browser, slapd: EmbeddedDirectory) -> None:
    done(lambda: lab.fill("typed"))
    with person(lab, window, None) as someone:
        someone.queue("typed")
        sign_in_by_name(someone.page, "alice")
        someone.click("Send a message")
        someone.dialog().get_by_label("Label").fill("what took long to type")
        with members(slapd, operators="carol", staff="bob"):
            expect(someone.page.get_by_role("heading", name="Sign in")).to_be_visible()
            someone.sees("What you typed on this page is kept until you sign in again.")
            expect(someone.dialog()).to_be_hidden()
            assert someone.serious() == []
        sign_in_by_name(someone.page, "alice")
        expect(someone.dialog().get_by_label("Label")).to_have_value("what took long to type")
        someone.button("Send", someone.dialog()).click()
        expect(someone.dialog()).to_have_count(0)
        assert done(lambda: lab.count("typed")) == 1


@pytest.mark.soak
def test_a_person_of_the_directory_signs_in_out_everywhere_and_has_the_groups_of_now(
    lab: ConsoleLab, window: Browser, slapd: EmbeddedDirectory
) -> None:
    done(lambda: lab.fill("grouped", qmnode.Message(b"x", label="one", recoverable=True)))
    with person(lab, window, None) as here, person(lab, window, None) as there, person(lab, window, None) as bob:
        for someone, name in ((here, "alice"), (there, "alice"), (bob, "bob")):
            someone.go("queues")
            sign_in_by_name(someone.page, name)
            expect(someone.page.get_by_role("button", name=f"Signed in as console:{name}")).to_be_visible()
            assert someone.serious() == []
        expect(here.button("New queue")).to_be_visible()
        expect(bob.button("New queue")).to_have_count(0)

        here.page.get_by_role("button", name="Signed in as console:alice").click()
        here.page.get_by_role("menuitem", name="Sign out in all browsers").click()
        expect(here.page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(there.page.get_by_role("heading", name="Sign in")).to_be_visible()
        bob.page.reload()
        expect(bob.page.get_by_role("heading", level=1)).to_have_text("Queues")

        with members(slapd, operators="carol"):
            sign_in_by_name(here.page, "alice")
            expect(here.page.get_by_role("button", name="Signed in as console:alice")).to_be_visible()
            here.go("queues")
            expect(here.page.get_by_role("link", name="grouped").first).to_be_visible()
            expect(here.button("New queue")).to_have_count(0)
