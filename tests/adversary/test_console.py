"""Pages, people and nodes that mean no good to the console: its own pages in the browser are the only ones it obeys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import qmnode
from qmnode.console.port import Answer
from qmnode.console.sign_in import ATTEMPTS, REQUEST_SIZE
from tests.adversary.attacks import Area, attack
from tests.adversary.played_console import (
    JOB,
    SCRIPT,
    TOKEN,
    URL,
    PlayedNode,
    browser,
    console,
    document,
    honest,
    sign_in,
)

if TYPE_CHECKING:
    from tests.console.conftest import ConsoleLab


@attack(
    Area.CONSOLE,
    can="make a signed-in browser send a change",
    promised="a change needs the token that only the console's own page has",
)
async def test_a_change_without_the_token_of_the_page_is_refused() -> None:
    node = PlayedNode()
    async with browser(console(ALPHA=node)) as client:
        await sign_in(client)
        asked = len(node.asked)
        for wrong in ("", "x", "é", client.headers["X-CSRF-Token"][:-1]):
            headers = {"X-CSRF-Token": wrong.encode("latin-1", "ignore").decode("ascii", "ignore")}
            assert (await client.post("/api/nodes/ALPHA/v1/jobs", json=JOB, headers=headers)).status_code == 403
        assert len(node.asked) == asked
        assert (await client.post("/api/nodes/ALPHA/v1/jobs", json=JOB)).status_code == 200


@attack(
    Area.CONSOLE,
    can="make a signed-in browser rotate the keys of a node",
    promised="a rotation needs the token that only the console's own page has, and the console's own origin",
)
async def test_keys_are_not_rotated_from_another_page() -> None:
    node = PlayedNode()
    wanted = {"action": "rotate", "version": 1}
    async with browser(console(ALPHA=node)) as client:
        await sign_in(client)
        asked = len(node.asked)
        for headers in (
            {"X-CSRF-Token": ""},
            {"X-CSRF-Token": client.headers["X-CSRF-Token"][:-1]},
            {"Origin": "https://evil.test"},
            {"Origin": "null"},
        ):
            answer = await client.post("/api/nodes/ALPHA/v1/keys/rotation", json=wanted, headers=headers)
            assert answer.status_code == 403, headers
        assert len(node.asked) == asked
        await client.post("/api/nodes/ALPHA/v1/keys/rotation", json=wanted)
        assert len(node.asked) == asked + 1


@attack(
    Area.CONSOLE,
    can="use the page's token of another session",
    promised="such a token is valid for its own session only",
)
async def test_the_token_of_another_session_is_refused() -> None:
    served = console()
    async with browser(served) as mine, browser(served) as other:
        await sign_in(mine)
        await sign_in(other)
        headers = {"X-CSRF-Token": other.headers["X-CSRF-Token"]}
        assert (await mine.post("/api/nodes/ALPHA/v1/jobs", json=JOB, headers=headers)).status_code == 403


@attack(
    Area.CONSOLE,
    can="send a change from a page of another site",
    promised="the origin of a change must be the console itself",
)
async def test_a_change_from_another_page_is_refused() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        for origin in (
            "https://evil.test",
            "null",
            f"{URL}.evil.test",
            f"{URL}:8443",
            "https://console.test@evil.test",
        ):
            headers = {"Origin": origin}
            assert (await client.post("/api/nodes/ALPHA/v1/jobs", json=JOB, headers=headers)).status_code == 403, origin
        client.headers.pop("Origin")
        assert (await client.post("/api/nodes/ALPHA/v1/jobs", json=JOB)).status_code == 403


@attack(
    Area.CONSOLE,
    can="sign a browser in from a page of another site",
    promised="the origin of a sign-in must be the console itself",
)
async def test_nobody_is_signed_in_from_another_page() -> None:
    async with browser(console(), Origin="https://evil.test") as client:
        assert (await sign_in(client)).status_code == 403
        assert not client.cookies


@attack(
    Area.CONSOLE,
    can="read the API from a page of another site",
    promised="browsers report the other site, and the console refuses the request",
)
async def test_readings_from_another_page_are_refused() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        for site in ("cross-site", "same-site"):
            assert (await client.get("/api/overview", headers={"Sec-Fetch-Site": site})).status_code == 403
        answer = await client.get("/api/overview", headers={"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


@attack(
    Area.CONSOLE,
    can="make a host name of the attacker's own lead to the console (DNS rebinding)",
    promised="the console refuses requests with other host names",
)
async def test_other_host_names_are_refused() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        for host in ("evil.test", "console.test.evil.test", "console.test@evil.test", "", "[", "127.0.0.1"):
            headers = {"Host": host, "Origin": f"https://{host}"}
            for path in ("/", "/api/session", "/api/overview"):
                assert (await client.get(path, headers=headers)).status_code == 403, (host, path)


@attack(
    Area.CONSOLE,
    can="guess or forge the cookie of a session",
    promised="the console accepts only cookies that it has issued",
)
async def test_forged_cookies_are_no_session() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        ((name, value),) = client.cookies.items()
    async with browser(console()) as stranger:
        for forged in ("x", value[:-1], value.upper(), "admin", "A" * 5000):
            answer = await stranger.get("/api/overview", headers={"Cookie": f"{name}={forged}"})
            assert answer.status_code == 401


@attack(
    Area.CONSOLE,
    can="run a script in a page of the console",
    promised="the script can read neither the cookie nor the person's token of the management API",
)
async def test_the_browser_gets_a_cookie_that_scripts_cannot_read_and_never_the_token() -> None:
    async with browser(console()) as client:
        answer = await sign_in(client)
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith("__host-console=")
        for needed in ("httponly", "samesite=strict", "secure", "path=/"):
            assert needed in cookie
        for path in ("/api/session", "/api/overview", "/api/queues", "/api/nodes/ALPHA/v1/node"):
            found = await client.get(path)
            assert found.status_code == 200
            assert TOKEN not in found.text + str(found.headers)


@attack(
    Area.CONSOLE,
    can="use a cookie again after its owner has signed out",
    promised="the session has ended",
)
async def test_an_ended_session_is_not_used_again() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        assert (await client.delete("/api/session")).status_code == 204
        client.cookies.clear()
        assert (await client.get("/api/overview", headers={"Cookie": cookie})).status_code == 401


@attack(
    Area.CONSOLE,
    can="plant a cookie in a browser before its user signs in",
    promised="each sign-in makes a new session",
)
async def test_a_planted_cookie_is_not_taken_over() -> None:
    served = console()
    async with browser(served) as attacker, browser(served) as victim:
        await sign_in(attacker)
        ((name, planted),) = attacker.cookies.items()
        victim.cookies.set(name, planted, domain="console.test")
        answer = await victim.post("/api/session", json={"method": "token", "token": TOKEN})
        assert answer.status_code == 200
        assert planted not in answer.headers["set-cookie"]
        assert (await attacker.get("/api/overview")).status_code == 401


@attack(
    Area.CONSOLE,
    can="try many tokens",
    promised="after ten wrong tokens within a minute, the console accepts no more from this address",
)
async def test_tokens_are_not_guessed() -> None:
    served = console()
    async with browser(served) as client:
        for number in range(ATTEMPTS):
            assert (await sign_in(client, f"wrong{number}")).status_code == 401
        assert (await sign_in(client, "wrong")).status_code == 429
        assert (await sign_in(client)).status_code == 429


@attack(
    Area.CONSOLE,
    can="put line ends and more into a token",
    promised="the console passes no such token on to a node",
)
async def test_a_token_is_one_word() -> None:
    node = PlayedNode()
    async with browser(console(ALPHA=node)) as client:
        for token in ("a\r\nX-Evil: 1", "a b", "", "é", "a" * 2000, "a\x00b"):
            assert (await sign_in(client, token)).status_code == 401
        for wrong in ({"method": "token", "token": 7}, {"method": "other", "token": TOKEN}, [], {"token": TOKEN}):
            assert (await client.post("/api/session", json=wrong)).status_code == 422
    assert node.asked == []


@attack(
    Area.CONSOLE,
    can="claim more roles in a request",
    promised="a person has only the roles that the node reports for the token",
)
async def test_roles_are_not_claimed() -> None:
    node = PlayedNode(lambda path: document({"name": "r", "role": "read"}) if path == "/v1/caller" else honest(path))
    async with browser(console(ALPHA=node)) as client:
        wanted = {"method": "token", "token": TOKEN, "roles": ["administer"], "role": "administer"}
        answer = await client.post("/api/session", json=wanted, headers={"X-Role": "administer"})
        assert answer.json()["roles"] == ["read"]
        assert (await client.get("/api/session", params={"roles": "administer"})).json()["roles"] == ["read"]


@attack(
    Area.CONSOLE,
    can="choose the path of a request so that the console requests other resources of a node or another server",
    promised="the console passes on requests for listed resources only",
)
async def test_no_path_leads_out_of_the_api() -> None:
    node = PlayedNode()
    async with browser(console(ALPHA=node)) as client:
        await sign_in(client)
        asked = len(node.asked)
        for path in (
            "../../metrics", "node/../../../openapi.json", "%2e%2e/metrics", "..%2f..%2fmetrics", "/evil.test/",
            "node%2f..%2f..%2fmetrics", "metrics", "openapi.json", "queues/a/b", "jobs/1/%2e%2e/%2e%2e/node/online", "",
            "node%00", "node/online/x", "queues/a/messages/1/2/3", "keys/reload/x", "keys/rotation/x",
            "https:%2f%2fevil.test",
        ):  # fmt: skip
            target = httpx.URL(URL).copy_with(raw_path=f"/api/nodes/ALPHA/v1/{path}".encode())
            request = client.build_request("GET", target)
            assert (await client.send(request)).status_code in (403, 404), path
        assert len(node.asked) == asked


@attack(
    Area.CONSOLE,
    can="name any machine as the one to which the console sends a request",
    promised="the console sends requests to machines of the directory only",
)
async def test_only_known_machines_are_asked() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        for machine in ("127.0.0.1:22", "ALPHA@evil.test", "evil.test", "ALPHA%2fx", "*", "ALPHA%00"):
            answer = await client.get(f"/api/nodes/{machine}/v1/node")
            assert answer.status_code == 404, machine


@attack(
    Area.CONSOLE,
    can="store a script in a label, name or body",
    promised="the script travels as data, and no page runs it",
)
async def test_a_stored_script_is_data() -> None:
    async with browser(console()) as client:
        await sign_in(client)
        answer = await client.get("/api/queues")
        assert answer.json()["queues"][0]["label"] == SCRIPT
        assert answer.headers["content-type"] == "application/json"
        for found in (answer, await client.get("/"), await client.get("/none")):
            policy = found.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert found.headers["x-content-type-options"] == "nosniff"


@attack(
    Area.CONSOLE,
    can="show the console in a frame of another page",
    promised="browsers refuse to show it there",
)
async def test_the_console_is_in_no_frame() -> None:
    async with browser(console()) as client:
        for path in ("/", "/api/session"):
            headers = (await client.get(path)).headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"


@attack(
    Area.CONSOLE,
    can="send a request without end",
    promised="the console refuses it at 16 MiB",
)
async def test_a_request_without_end_is_refused() -> None:
    node = PlayedNode()
    async with browser(console(ALPHA=node)) as client:
        await sign_in(client)
        asked = len(node.asked)
        answer = await client.post("/api/nodes/ALPHA/v1/jobs", content=b" " * (REQUEST_SIZE + 1))
        assert answer.status_code == 413
        assert len(node.asked) == asked


@attack(
    Area.CONSOLE,
    can="name a queue so that a downloaded file gets a name of the attacker's choice",
    promised="each download has the same safe name",
)
async def test_a_download_has_a_safe_name() -> None:
    lines = Answer(200, b"{}\n", "application/x-ndjson", 'attachment; filename="evil.exe"')
    node = PlayedNode(lambda path: lines if path == "/v1/messages/export" else honest(path))
    async with browser(console(ALPHA=node)) as client:
        await sign_in(client)
        answer = await client.get("/api/nodes/ALPHA/v1/messages/export", params={"queue": "evil.exe\r\n"})
        assert answer.headers["content-disposition"] == 'attachment; filename="messages.jsonl"'


@pytest.mark.servers
@attack(
    Area.CONSOLE,
    can="as a person with the role read, try to get bodies of messages",
    promised="no byte of a body leaves the node",
)
def test_the_role_read_receives_no_byte_of_a_body(console_lab: ConsoleLab) -> None:
    secret = "sesame-4711"
    body = f"<Order><Word>{secret}</Word></Order>".encode()
    console_lab.fill("hidden", qmnode.Message(body, label="order", recoverable=True, extension=secret.encode()))
    with console_lab.signed_in("read") as client:
        found = client.get("nodes/ALPHA/v1/queues/hidden/messages").json()
        lookup = found["messages"][0]["lookup_identifier"]
        wire = json.dumps(found)
        queue = "nodes/ALPHA/v1/queues/hidden"
        for form in ("none", "text", "base64", "decoded"):
            wire += client.get(f"{queue}/messages", params={"body": form}).text
            wire += client.get(f"{queue}/messages/{lookup}", params={"body": form}).text
            wire += client.get("messages", params={"queue": "hidden", "body": form}).text
            wire += client.get("nodes/ALPHA/v1/dead-letters", params={"body": form}).text
        for criterion in (f"body=*{secret}*", f"value.Order.Word={secret}"):
            wire += client.get("messages", params={"queue": "hidden", "where": criterion}).text
        wire += client.get("nodes/ALPHA/v1/messages/export", params={"queue": "hidden"}).text
        wire += client.get("failures", params={"queue": "hidden"}).text
        wire += client.post(f"{queue}/receive", json={"limit": 1}).text
        wire += client.post(f"{queue}/messages/{lookup}/edit", json={"dry_run": True}).text
    for form in (secret, body.hex(), "c2VzYW1l", "PE9yZGVy"):
        assert form not in wire
    assert console_lab.count("hidden") == 1


@pytest.mark.servers
@attack(
    Area.CONSOLE,
    can="as a person with the role read, try to start, undo or cancel jobs",
    promised="the node refuses each attempt, and the audit log has it",
)
def test_the_role_read_begins_and_steers_no_job(console_lab: ConsoleLab) -> None:
    console_lab.fill("jobs", qmnode.Message(b"x", recoverable=True))
    wanted: dict[str, Any] = {"kind": "delete", "queues": ["jobs"]}
    with console_lab.signed_in("operate") as operator:
        paused = operator.post("nodes/ALPHA/v1/jobs", json=wanted | {"dry_run": True}).json()["job"]
    with console_lab.signed_in("read") as client:
        for path, content in (
            ("jobs", wanted),
            (f"jobs/{paused}", {"action": "undo"}),
            (f"jobs/{paused}", {"action": "cancel"}),
            ("queues/jobs/receive", {"limit": 1}),
            ("dead-letters/retry", {}),
        ):
            assert client.post(f"nodes/ALPHA/v1/{path}", json=content).status_code == 403, path
        assert client.delete("nodes/ALPHA/v1/queues/jobs").status_code == 403
        assert client.put("nodes/ALPHA/v1/node/online", json={"online": False}).status_code == 403
    assert console_lab.count("jobs") == 1
    assert [entry["outcome"] for entry in console_lab.audit("ALPHA") if entry["who"] == "read"][-7:] == ["denied"] * 7
