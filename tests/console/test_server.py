"""The console's server: who is signed in, what all nodes say, and what is passed on to one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

import qmnode
from qmnode.console.sign_in import IDLE, LONGEST, MOST, ConsoleSession, Sessions
from tests.console.conftest import TOKENS
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from tests.console.conftest import ConsoleLab

pytestmark = [pytest.mark.servers]


def state_of(client: httpx.Client, machine: str) -> dict[str, Any]:
    nodes = client.get("overview").json()["nodes"]
    return next(node for node in nodes if node["machine"] == machine)


def test_who_is_signed_in(lab: ConsoleLab) -> None:
    with lab.browser() as client:
        nobody = client.get("session").json()
        assert (nobody["signed_in"], nobody["csrf"], nobody["features"]) == (
            False,
            "",
            ["map", "routes", "audit", "plan"],
        )
        assert client.get("overview").status_code == 401
    for role, roles in {
        "read": ["read"],
        "bodies": ["read", "bodies"],
        "operate": ["read", "bodies", "operate"],
        "administer": ["read", "bodies", "operate", "administer"],
    }.items():
        with lab.signed_in(role) as client:
            session = client.get("session").json()
            assert (session["signed_in"], session["name"], session["roles"]) == (True, role, roles)
            assert TOKENS[role] not in client.get("session").text
            assert client.delete("session").status_code == 204
            assert client.get("overview").status_code == 401


def test_the_plan_asks_nodes_as_the_person_may(lab: ConsoleLab) -> None:
    with lab.signed_in("administer") as client:
        machines = {one["machine"]: one for one in client.get("plan/nodes").json()["machines"]}
    (step,) = machines["ALPHA"]["steps"]
    assert (step["action"], step["queue"], step["changes"]["label"]["to"]) == ("create", "wanted", "Wanted")
    assert machines["BETA"]["steps"] == [] and machines["BETA"]["error"] is None
    with lab.signed_in("operate") as client:
        assert client.get("plan/nodes").status_code == 403


def test_the_map_says_what_is_down(lab: ConsoleLab) -> None:
    with lab.signed_in("read") as client:
        wait_until(lambda: state_of(client, "GAMMA")["state"] == "down", 20, "the node that is down is seen")

        def states() -> dict[str, str]:
            return {node["machine"]: node["state"] for node in client.get("overview").json()["nodes"]}

        expected = {"ALPHA": "up", "BETA": "up", "GAMMA": "down"}
        wait_until(lambda: states() == expected, 30, "the state of each node is seen")
        overview = client.get("overview").json()
        assert "no connection" in state_of(client, "GAMMA")["reason"]
        (link,) = overview["links"]
        assert (link["first"], link["second"], link["cost"]) == ("Amsterdam", "Berlin", 5)
        wait_until(lambda: client.get("overview").json()["links"][0]["state"] == "up", 30, "the link is up")
        assert sorted(link["gates"]) == ["ALPHA", "BETA"]
        assert overview["directory"]["reason"] == ""


def test_the_queues_of_all_nodes_in_one_list(lab: ConsoleLab) -> None:
    for machine in ("ALPHA", "BETA"):
        lab.fill("list", *[qmnode.Message(b"x", recoverable=True)] * (3 if machine == "ALPHA" else 5), at=machine)
    with lab.signed_in("read") as client:

        def rows() -> list[dict[str, Any]]:
            page = client.get("queues", params={"search": "private$\\list", "sort": "message_count"}).json()
            return [row for row in page["queues"] if row["queue_type"] == "private"]

        wait_until(lambda: [row["message_count"] for row in rows()] == [3, 5], 20, "both nodes say what they have")
        assert [row["machine"] for row in rows()] == ["ALPHA", "BETA"]
        one = client.get("queues", params={"machine": "beta", "search": "list", "limit": 1}).json()
        assert one["queues"][0]["machine"] == "BETA"
        for name in ("sorted b", "sorted a"):
            for machine in ("BETA", "ALPHA"):
                lab.fill(name, at=machine)

        def order(**asked: str) -> list[tuple[str, str]]:
            page = client.get("queues", params={"search": "private$\\sorted", **asked}).json()
            return [(row["pathname"].rpartition("\\")[2], row["machine"]) for row in page["queues"]]

        expected = [(name, machine) for name in ("sorted a", "sorted b") for machine in ("ALPHA", "BETA")]
        wait_until(lambda: len(order()) == 4, 20, "all queues are listed")
        assert order() == expected, "by the name that is shown, and not by the machine before it"
        assert order(sort="message_count") == expected, "equals are by name"
        assert order(sort="message_count", descending="true") == expected
        assert order(sort="machine") == sorted(expected, key=lambda one: one[::-1])
        wrong = client.get("queues", params={"sort": "color"})
        assert wrong.status_code == 422
        assert "message_count" in wrong.json()["detail"]


def test_journals_and_dead_letters_are_listed_and_system_queues_when_they_are_asked_for(lab: ConsoleLab) -> None:
    async def use() -> None:
        async with await lab.nodes["ALPHA"].connect() as qm:
            await qm.create_queue(r".\private$\kept", journaling=True)
            name = r"DIRECT=OS:.\private$\kept"
            asked = qmnode.Message(b"x", recoverable=True, negative_journaling_requested=True)
            async with await qm.open_queue(name, qmnode.Access.SEND) as queue:
                await queue.send_many([asked] * 5)
            async with await qm.open_queue(name, qmnode.Access.RECEIVE) as queue:
                await queue.receive_many(2, 30)
                await queue.purge()

    asyncio.run(use())
    with lab.signed_in("read") as client:

        def names(**asked: str) -> dict[str, tuple[str, int]]:
            rows = client.get("queues", params={"machine": "ALPHA", "limit": 1000, **asked}).json()["queues"]
            return {row["pathname"].partition("\\")[2]: (row["queue_type"], row["message_count"]) for row in rows}

        wait_until(lambda: r"private$\kept;JOURNAL" in names(), 20, "the journal is listed")
        assert names()[r"private$\kept;JOURNAL"] == ("journal", 2)
        assert names(search="kept")[r"private$\kept;JOURNAL"] == ("journal", 2)
        assert names()["SYSTEM$;DEADLETTER"] == ("dead letters", 3)
        assert "SYSTEM$;DEADXACT" not in names(), "empty ones only when they are looked for"
        assert "SYSTEM$;DEADXACT" in names(search="dead")
        assert "system" not in {kind for kind, _ in names().values()}
        assert {kind for kind, _ in names(type="system").values()} == {"system"}
        assert set(names(type="dead letters")) == {"SYSTEM$;DEADLETTER", "SYSTEM$;DEADXACT"}


def test_a_refusal_is_no_outage(lab: ConsoleLab) -> None:
    lab.fill("only here", qmnode.Message(b"x", label="one", recoverable=True))
    with lab.signed_in("read") as client:
        wait_until(lambda: state_of(client, "BETA")["state"] == "up", 20, "BETA is up")
        wrong = client.get("messages", params={"where": "colour=red"})
        assert wrong.status_code == 400
        assert "colour" in wrong.json()["detail"]
        assert client.get("messages", params={"queue": "nowhere"}).status_code == 404
        page = client.get("messages", params={"queue": "only here"}).json()
        assert [one["message"]["label"] for one in page["found"]] == ["one"]
        assert "BETA" not in {one["machine"] for one in page["stale"]}, "it has no such queue, and it answers"
        found = client.get("audit").json()["stale"]
        assert {one["machine"] for one in found if one["refused"]} == {"ALPHA", "BETA"}


def test_an_export_is_passed_on_as_it_comes(lab: ConsoleLab) -> None:
    lab.fill("exported", *[qmnode.Message(b"x" * 1000, recoverable=True)] * 300)
    alone = f"https://127.0.0.1:{lab.ports['ALPHA']}"
    with (
        lab.signed_in("bodies") as of_all,
        httpx.Client(base_url=f"{alone}/api/", verify=lab.trust(), headers={"Origin": alone}) as own,
    ):
        assert own.post("session", json={"method": "token", "token": TOKENS["bodies"]}).status_code == 200
        for client in (of_all, own):
            answer = client.get("nodes/ALPHA/v1/messages/export", params={"queue": "exported"})
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-disposition"].startswith("attachment")
            assert len(answer.text.splitlines()) == 300
            wrong = client.get("nodes/ALPHA/v1/messages/export", params={"queue": "nowhere"})
            assert (wrong.status_code, "nowhere" in wrong.json()["detail"]) == (404, True)
    with lab.signed_in("read") as reader:
        refused = reader.get("nodes/ALPHA/v1/messages/export", params={"queue": "exported"})
        assert refused.status_code in (400, 403)


def test_why_messages_wait_is_asked_of_all_nodes(lab: ConsoleLab) -> None:
    async def send() -> None:
        async with await lab.nodes["BETA"].connect() as qm:
            name = r"DIRECT=OS:nowhere.invalid\private$\q"
            async with await qm.open_queue(name, qmnode.Access.SEND) as queue:
                await queue.send(qmnode.Message(b"x", recoverable=True))

    asyncio.run(send())
    with lab.signed_in("read") as client:

        def found(**asked: Any) -> list[dict[str, Any]]:
            rows = client.get("waiting", params=asked).json()["waiting"]
            return [row for row in rows if "nowhere" in row["queue"]]

        wait_until(lambda: found(), 60, "it is known why the message waits")
        (row,) = found(at="BETA")
        assert (row["at"], row["messages"], bool(row["step"])) == ("BETA", 1, True)
        assert found(at="ALPHA") == []
        assert found(link=["Amsterdam", "Berlin"]) == [], "a direct name crosses no link"
        assert client.get("waiting", params={"link": "Amsterdam"}).status_code == 422


def test_an_operation_from_the_browser_to_the_node(lab: ConsoleLab) -> None:
    lab.fill("from", *[qmnode.Message(b"%d" % number, recoverable=True) for number in range(4)])
    lab.fill("to")
    wanted = {"kind": "move", "queues": ["from"], "target": "to"}
    with lab.signed_in("read") as reader:
        refused = reader.post("nodes/ALPHA/v1/jobs", json=wanted)
        assert refused.status_code == 403
    with lab.signed_in("operate") as client:
        dry = client.post("nodes/ALPHA/v1/jobs", json=wanted | {"dry_run": True}).json()
        assert dry["dry_run"]
        job = client.post("nodes/alpha/v1/jobs", json=wanted)
        assert job.status_code == 201, job.text
        number = job.json()["job"]

        def state() -> str:
            found = {(one["machine"], one["job"]): one["state"] for one in client.get("jobs").json()["jobs"]}
            return str(found["ALPHA", number])

        wait_until(lambda: state() == "done", 30, "the job ends")
        log = client.get(f"nodes/ALPHA/v1/jobs/{number}/log").json()
        assert len(log["entries"]) == 4
    assert (lab.count("from"), lab.count("to")) == (0, 4)
    assert any(entry["who"] == "operate" for entry in lab.audit("ALPHA"))
    assert not any(entry["who"] == "read" and entry["outcome"] == "done" for entry in lab.audit("ALPHA"))


def test_messages_and_their_bodies(lab: ConsoleLab) -> None:
    lab.fill("bodies", qmnode.Message(b"<Order><Id>7</Id></Order>", label="one", recoverable=True))
    with lab.signed_in("bodies") as client:
        (found,) = client.get("messages", params={"queue": "bodies", "body": "decoded"}).json()["found"]
        assert (found["machine"], found["message"]["decoded"]) == ("ALPHA", {"Order": {"Id": "7"}})
        path = "nodes/ALPHA/v1/queues/bodies/messages"
        assert client.get(path, params={"body": "text"}).json()["messages"][0]["text"].startswith("<Order>")
        assert client.delete("nodes/ALPHA/v1/queues/bodies/messages").status_code == 403
    with lab.signed_in("read") as client:
        seen = client.get("nodes/ALPHA/v1/queues/bodies/messages").text
        assert "one" in seen
        assert "Order" not in seen
        assert client.get("nodes/ALPHA/v1/queues/bodies/messages", params={"body": "text"}).status_code == 403
        assert client.get("messages", params={"queue": "bodies", "body": "decoded"}).json()["found"] == []


def test_a_search_goes_on_over_all_nodes(lab: ConsoleLab) -> None:
    for machine in ("ALPHA", "BETA"):
        messages = [qmnode.Message(b"x", label=f"{machine} {number}", recoverable=True) for number in range(5)]
        lab.fill("search", *messages, at=machine)
    with lab.signed_in("read") as client:
        labels, cursor = [], ""
        for _ in range(20):
            wanted = {"queue": "search", "limit": "2", "cursor": cursor}
            page = client.get("messages", params={**wanted, "machine": ["ALPHA", "BETA"]}).json()
            labels += [one["message"]["label"] for one in page["found"]]
            cursor = page["next"] or ""
            if not cursor:
                break
    assert sorted(labels) == sorted(f"{machine} {number}" for machine in ("ALPHA", "BETA") for number in range(5))


def test_the_audit_log_is_for_administrators(lab: ConsoleLab) -> None:
    with lab.signed_in("operate") as client:
        client.post("nodes/BETA/v1/queues", json={"name": "audited"})
        page = client.get("audit").json()
        assert page["entries"] == []
        assert any("administer" in one["reason"] for one in page["stale"])
    with lab.signed_in("administer") as client:
        entries = client.get("audit", params={"machine": "BETA"}).json()["entries"]
        assert any(entry["action"] == "create_queue" and entry["who"] == "operate" for entry in entries)


def test_keys_are_rotated_by_administrators_on_the_console_s_own_page_only(lab: ConsoleLab) -> None:
    path, before = "nodes/BETA/v1/keys/rotation", lab.keys("BETA")
    for role in ("read", "operate"):
        with lab.signed_in(role) as client:
            assert client.get(path).status_code == 403
            assert client.post(path, json={"action": "rotate", "version": 1}).status_code == 403
    with lab.signed_in("administer") as client:
        shown = client.get(path).json()
        wanted = {"action": "rotate", "version": shown["plan"]["version"]}
        assert client.post(path, json=wanted, headers={"X-CSRF-Token": "guessed"}).status_code == 403
        assert client.post(path, json=wanted, headers={"Origin": "https://evil.test"}).status_code == 403
        assert (client.get(path).json()["run"], lab.keys("BETA")) == (None, before)
        elsewhere = client.get("nodes/ALPHA/v1/keys/rotation").json()
        assert (elsewhere["permitted"], "management.key_rotation.enabled" in elsewhere["fault"]) == (False, True)
        assert client.post("nodes/ALPHA/v1/keys/rotation", json=wanted).status_code == 400


def test_routes_are_explained_and_simulated(lab: ConsoleLab) -> None:
    with lab.signed_in("read") as client:
        explained = client.get("routes/explain", params={"from": "ALPHA", "to": "GAMMA"}).json()
        assert explained["arrives"]
        assert explained["path"][0] == "ALPHA"
        unknown = client.get("routes/explain", params={"from": "ALPHAA", "to": "GAMMA"})
        assert unknown.status_code == 404
        assert "ALPHA" in unknown.json()["detail"]
        simulated = client.get("routes/simulate", params={"link": "Amsterdam-Berlin"}).json()
        assert simulated["waiting"]


def test_a_node_that_is_killed_is_down_within_five_seconds_and_its_part_is_stale(lab: ConsoleLab) -> None:
    with lab.signed_in("read") as client:
        wait_until(lambda: state_of(client, "BETA")["state"] == "up", 20, "BETA is up")
        lab.nodes["BETA"].kill()
        wait_until(lambda: state_of(client, "BETA")["state"] == "down", 20, "BETA is down")
        page = client.get("queues", params={"machine": "BETA"}).json()
        assert page["queues"]
        (stale,) = page["stale"]
        assert stale["machine"] == "BETA"
        assert stale["as_of"] is not None
        (link,) = client.get("overview").json()["links"]
        assert (link["state"], "BETA" in link["reason"]) == ("down", True)
        lab.nodes["BETA"].launch()
        lab.nodes["BETA"].wait_for("ready")
        wait_until(lambda: state_of(client, "BETA")["state"] == "up", 30, "BETA is up again")


def test_a_node_alone_serves_its_own_console(lab: ConsoleLab) -> None:
    base = f"https://127.0.0.1:{lab.ports['ALPHA']}"
    with httpx.Client(base_url=f"{base}/api/", verify=lab.trust(), headers={"Origin": base}) as client:
        answer = client.post("session", json={"method": "token", "token": TOKENS["operate"]})
        assert answer.json()["enterprise"] == "ALPHA"
        assert [node["machine"] for node in client.get("overview").json()["nodes"]] == ["ALPHA"]
        assert client.get("nodes/ALPHA/v1/node").json()["computer_name"] == "ALPHA"
    page = httpx.get(f"{base}/", verify=lab.trust())
    assert page.headers["content-type"].startswith("text/html")
    program = httpx.get(f"{base}/v1/node", verify=lab.trust(), headers={"Authorization": "Bearer read-token"})
    assert program.json()["computer_name"] == "ALPHA"
    other = f"https://127.0.0.1:{lab.ports['BETA']}/"
    assert httpx.get(other, verify=lab.trust()).status_code == 401


def test_wrong_values_and_names_pass_the_console_as_they_would_reach_the_node(lab: ConsoleLab) -> None:
    alone = f"https://127.0.0.1:{lab.ports['ALPHA']}"
    with (
        lab.signed_in("operate") as of_all,
        httpx.Client(base_url=f"{alone}/api/", verify=lab.trust(), headers={"Origin": alone}) as own,
    ):
        session = own.post("session", json={"method": "token", "token": TOKENS["operate"]})
        own.headers["X-CSRF-Token"] = session.json()["csrf"]
        for number, client in enumerate((of_all, own)):
            name = f"by console/{number} é"
            made = client.post("nodes/ALPHA/v1/queues", json={"name": name, "label": "\U0001f600" * 62})
            assert made.status_code == 201, made.text
            at = f"nodes/ALPHA/v1/queues/{quote(name, safe='')}"
            assert client.get(at).json()["label"] == "\U0001f600" * 62
            for answer, sentence in (
                (client.patch(at, json={"label": "\U0001f600" * 63}), "at most 124 UTF-16 units"),
                (client.post(f"{at}/messages", json={"messages": [{"label": "\U0001f600" * 125}]}), "249 UTF-16 units"),
                (client.patch(at, content=b'{"label": "a", "label": "b"}'), "'label' is twice"),
                (client.get(f"{at}/messages?limitt=1"), "did you mean 'limit'?"),
                (client.get("nodes/ALPHA/v1/queues/nosuch%2Fqueue"), "there is no queue"),
                (client.get("nodes/ALPHA/v1/queues/DIRECT=http:%2F%2Fhost%2Fmsmq%2Fq"), "HTTP transport"),
            ):
                assert answer.status_code >= 400 and sentence in answer.json()["detail"], answer.text
            assert client.delete(at).status_code == 204


class Nothing:
    """A view of no node."""

    async def close(self) -> None:
        pass


async def test_sessions_end() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    idle = await sessions.begin(ConsoleSession("idle", (), Nothing()))  # type: ignore[arg-type]
    busy = await sessions.begin(ConsoleSession("busy", (), Nothing()))  # type: ignore[arg-type]
    while now < LONGEST:
        assert sessions.find(busy) is not None
        now += IDLE / 2
    now += 1
    assert sessions.find(idle) is None
    assert sessions.find(busy) is None


async def test_a_person_with_many_sessions_ends_none_of_another() -> None:
    sessions = Sessions()
    other = await sessions.begin(ConsoleSession("other", (), Nothing()))  # type: ignore[arg-type]
    first = await sessions.begin(ConsoleSession("many", (), Nothing()))  # type: ignore[arg-type]
    for _ in range(MOST):
        last = await sessions.begin(ConsoleSession("many", (), Nothing()))  # type: ignore[arg-type]
    assert sessions.find(other) is not None
    assert sessions.find(first) is None
    assert sessions.find(last) is not None
