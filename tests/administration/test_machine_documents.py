"""The document of a machine: what it makes, changes and deletes, and what it leaves alone, at the queues themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qmnode
from qmnode.administration import turns as pacing
from qmnode.administration.asker import Asker
from qmnode.administration.document_faults import DocumentFault
from qmnode.administration.machine_documents import read_document
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.queue_collection import QueueCollection
from qmnode.model.queue_manager import QueueManager as ModelManager
from qmnode.objects.rows import FLAG, GUID, MULTICAST, QUOTA, Property
from qmnode.objects.table import PRIVATE_QUEUE
from qmnode.structures.security_descriptor import QUEUE_RIGHTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NODE = Asker("the node")
ACCESS = [{"to": "anonymous", "deny": ["send"]}, {"to": "everyone", "allow": ["get_properties", "send"]}]
SND = {"to": "everyone", "allow": ["snd"]}
ORDERS = {"name": "orders", "label": "Orders", "transactional": True, "quota": "100MB", "access": ACCESS}


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        yield manager


async def apply(qm: qmnode.QueueManager, *queues: dict[str, Any], **options: bool) -> list[tuple[str, str]]:
    """What it did, to which queue."""
    done = await qm.operations.apply_document(NODE, {"queues": list(queues)}, **options)
    return [(step["action"], step["queue"]) for step in done["steps"]]


async def names(qm: qmnode.QueueManager) -> set[str]:
    return {queue.pathname.rpartition("\\")[2] for queue in await qm.queues([qmnode.QueueType.PRIVATE])}


async def send(qm: qmnode.QueueManager, name: str) -> None:
    async with await qm.open_queue(rf"DIRECT=OS:.\private$\{name}", qmnode.Access.SEND) as queue:
        await queue.send_many([Message(b"7", recoverable=True)])


async def test_a_queue_is_made_as_declared_and_a_second_time_changes_nothing(qm: qmnode.QueueManager) -> None:
    assert await apply(qm, ORDERS, dry_run=True) == [("create", "orders")]
    assert await names(qm) == set()
    assert await apply(qm, ORDERS) == [("create", "orders")]
    made = await qm.queue(r".\private$\orders")
    assert (made.label, made.transactional, made.quota, made.declared) == ("Orders", True, 102_400, True)
    assert await apply(qm, ORDERS) == []


async def test_the_access_list_is_the_declared_one_and_counts(qm: qmnode.QueueManager) -> None:
    from qmnode.security.principals import parsed
    from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE

    await apply(qm, ORDERS)
    descriptor = parsed(await qm.queue_security(r".\private$\orders"))
    assert descriptor is not None and descriptor.dacl is not None
    entries = [(ace.entry.sid, ace.entry.mask) for ace in descriptor.dacl.aces]  # type: ignore[union-attr]
    send, see = int(QUEUE_RIGHTS["send"]), int(QUEUE_RIGHTS["get_properties"])
    assert entries == [(ANONYMOUS, send), (EVERYONE, send | see)]


async def test_what_was_changed_by_hand_is_found_and_put_back(qm: qmnode.QueueManager) -> None:
    await apply(qm, ORDERS)
    before = await qm.queue_security(r".\private$\orders")
    await qm.set_queue(r".\private$\orders", label="Mine", quota=5)
    await qm.set_queue(r".\private$\orders", security=b"")
    done = await qm.operations.apply_document(NODE, {"queues": [ORDERS]}, dry_run=True)
    (drift,) = done["steps"]
    assert drift["changes"]["label"] == {"from": "Mine", "to": "Orders"}
    assert drift["changes"]["quota"] == {"from": 5, "to": 102_400}
    assert await apply(qm, ORDERS) == [("change", "orders")]
    assert (await qm.queue(r".\private$\orders")).label == "Orders"
    assert await qm.queue_security(r".\private$\orders") == before
    assert await apply(qm, ORDERS) == []


async def test_an_omitted_property_has_its_default_and_an_omitted_access_list_stays(qm: qmnode.QueueManager) -> None:
    await apply(qm, ORDERS)
    before = await qm.queue_security(r".\private$\orders")
    await apply(qm, {"name": "orders", "transactional": True})
    now = await qm.queue(r".\private$\orders")
    assert (now.label, now.quota) == ("", 0xFFFFFFFF)
    assert await qm.queue_security(r".\private$\orders") == before


async def test_only_what_a_document_made_is_deleted_and_only_by_prune(qm: qmnode.QueueManager) -> None:
    await qm.create_queue(r".\private$\own")
    await qm.create_queue(r".\private$\taken")
    await apply(qm, {"name": "made"}, {"name": "taken", "label": "declared since"})
    assert await apply(qm) == []
    assert await names(qm) == {"own", "taken", "made"}
    assert await apply(qm, prune=True) == [("delete", "made")]
    assert await names(qm) == {"own", "taken"}


async def test_a_queue_with_messages_is_deleted_only_with_the_word_for_it(qm: qmnode.QueueManager) -> None:
    await apply(qm, {"name": "full"}, {"name": "aside"}, {"name": "read", "journaling": True}, {"name": "empty"})
    await send(qm, "full")
    await send(qm, "aside")
    await qm.create_queue(r".\private$\aside;later")
    job = await qm.operations.start_job(NODE, "move", ["aside"], target="aside;later")
    async with asyncio.timeout(60):
        while (await qm.operations.show_job(NODE, job["job"]))["state"] == "running":
            await asyncio.sleep(0.01)
    await send(qm, "read")
    async with await qm.open_queue(r"DIRECT=OS:.\private$\read") as queue:
        await queue.receive()
    kept = [("keep", "aside"), ("delete", "empty"), ("keep", "full"), ("keep", "read")]
    assert await apply(qm, prune=True, dry_run=True) == kept
    assert await apply(qm, prune=True) == kept
    assert await names(qm) == {"full", "aside", "read", "aside;later"}
    assert await apply(qm, prune=True, with_messages=True) == [("delete", one) for one in ("aside", "full", "read")]
    assert await names(qm) == set()


async def test_a_message_that_comes_after_the_plan_keeps_its_queue(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(qm, {"name": "old"})
    create = ModelManager.create_queue

    async def create_late(manager: ModelManager, *args: Any, **settings: Any) -> Any:
        await send(qm, "old")
        return await create(manager, *args, **settings)

    monkeypatch.setattr(ModelManager, "create_queue", create_late)
    assert await apply(qm, {"name": "new"}, prune=True) == [("create", "new"), ("keep", "old")]
    assert await names(qm) == {"old", "new"}
    async with await qm.open_queue(r"DIRECT=OS:.\private$\old") as queue:
        assert (await queue.receive()).body == b"7"


async def test_a_queue_made_again_by_hand_meanwhile_is_neither_deleted_nor_changed(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(qm, {"name": "old"}, {"name": "orders"})
    create = ModelManager.create_queue

    async def create_late(manager: ModelManager, *args: Any, **settings: Any) -> Any:
        monkeypatch.setattr(ModelManager, "create_queue", create)
        for name in ("old", "orders"):
            await qm.delete_queue(rf".\private$\{name}")
            await qm.create_queue(rf".\private$\{name}", label="by hand")
        return await create(manager, *args, **settings)

    monkeypatch.setattr(ModelManager, "create_queue", create_late)
    with pytest.raises(MessageQueuingError, match=r"'orders' meanwhile.*apply again"):
        await apply(qm, {"name": "new"}, {"name": "orders", "label": "declared"}, {"name": "last"}, prune=True)
    assert await names(qm) == {"old", "orders", "new", "last"}
    for name in ("old", "orders"):
        assert (await qm.queue(rf".\private$\{name}")).label == "by hand"


async def test_a_queue_that_is_declared_no_more_meanwhile_stays(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(qm, {"name": "old"})
    create = ModelManager.create_queue

    async def create_late(manager: ModelManager, *args: Any, **settings: Any) -> Any:
        await qm.set_queue(r".\private$\old", declared=False)
        return await create(manager, *args, **settings)

    monkeypatch.setattr(ModelManager, "create_queue", create_late)
    assert await apply(qm, {"name": "new"}, prune=True) == [("create", "new")]
    assert await names(qm) == {"old", "new"}


async def test_a_queue_that_somebody_makes_meanwhile_is_left_alone_and_all_else_is_done(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ModelManager.create_queue

    async def create_late(manager: ModelManager, *args: Any, **settings: Any) -> Any:
        monkeypatch.setattr(ModelManager, "create_queue", create)
        await qm.create_queue(r".\private$\b", label="by hand")
        return await create(manager, *args, **settings)

    monkeypatch.setattr(ModelManager, "create_queue", create_late)
    with pytest.raises(MessageQueuingError, match="apply again"):
        await apply(qm, {"name": "a"}, {"name": "b", "label": "declared"}, {"name": "c"})
    assert await names(qm) == {"a", "b", "c"}
    assert (await qm.queue(r".\private$\b")).label == "by hand"


async def test_a_large_document_leaves_turns_of_the_loop_to_others(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn for each queue in each part of the work: it is read, its accounts are named, it is compared."""
    monkeypatch.setattr(pacing, "_SLICE", 0.0)
    many = [{"name": f"endpoint-{number}", "access": ACCESS} for number in range(50)]
    await apply(qm, *many)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    assert await apply(qm, *many) == []
    task.cancel()
    assert turns >= 5 * len(many)


async def test_prune_looks_for_all_queues_once(qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    await apply(qm, *({"name": f"endpoint-{number}"} for number in range(30)))
    looks = 0
    values = dict.values

    def counted(collection: QueueCollection) -> Any:
        nonlocal looks
        looks += 1
        return values(collection)

    monkeypatch.setattr(QueueCollection, "values", counted)
    assert len(await apply(qm, prune=True)) == 30
    assert looks == 1


async def test_a_restored_older_store_is_made_true_again(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        await apply(manager, {"name": "first"})
        await manager.backup(tmp_path / "copy")
        await apply(manager, {"name": "second"}, prune=True)
    async with qmnode.QueueManager.open(tmp_path / "copy") as manager:
        assert await names(manager) == {"first"}
        assert await apply(manager, {"name": "second"}, prune=True) == [("create", "second"), ("delete", "first")]


async def test_nothing_is_begun_where_one_queue_cannot_be_as_declared(qm: qmnode.QueueManager) -> None:
    await qm.create_queue(r".\private$\plain")
    with pytest.raises(MessageQueuingError, match="transactional is false and cannot change"):
        await apply(qm, {"name": "new"}, {"name": "plain", "transactional": True})
    with pytest.raises(MessageQueuingError, match="would deny nobody"):
        await apply(qm, {"name": "new", "access": [{"to": "S-1-5-21-1-2-3-4", "deny": ["send"]}]})
    assert await names(qm) == {"plain"}


async def test_a_document_without_queues_does_not_prune_all(qm: qmnode.QueueManager) -> None:
    await apply(qm, {"name": "made"})
    for nothing in ({}, {"queues": None}):
        with pytest.raises(MessageQueuingError, match=r"write queues: \[\]"):
            await qm.operations.apply_document(NODE, nothing, prune=True)
    assert await names(qm) == {"made"}


async def test_three_hundred_queues_with_access_lists(qm: qmnode.QueueManager) -> None:
    many = [{"name": f"endpoint-{number}", "transactional": True, "access": ACCESS} for number in range(300)]
    assert len(await apply(qm, *many)) == 300
    assert await apply(qm, *many) == []
    assert await apply(qm, *many[:-1], prune=True) == [("delete", "endpoint-299")]


@pytest.mark.parametrize(
    ("queue", "place", "words"),
    [
        ({}, ("queues", 0), "needs its name"),
        ({"name": "a;b"}, ("queues", 0, "name"), "subqueue"),
        ({"name": r"private$\a"}, ("queues", 0, "name"), "write 'a'"),
        ({"name": ""}, ("queues", 0, "name"), ""),
        ({"name": 3}, ("queues", 0, "name"), "no text"),
        ({"name": "a", "lable": "x"}, ("queues", 0, "lable"), "did you mean label"),
        ({"name": "a", "journal": True}, ("queues", 0, "journal"), "its name is journaling"),
        ({"name": "a", "declared": True}, ("queues", 0, "declared"), "unknown"),
        ({"name": "a", "base_priority": 3}, ("queues", 0, "base_priority"), "only public queues"),
        ({"name": "a", "quota": "10XB"}, ("queues", 0, "quota"), "no size such as 10MB"),
        ({"name": "a", "quota": True}, ("queues", 0, "quota"), "true: expected KB"),
        ({"name": "a", "label": None}, ("queues", 0, "label"), "null: expected"),
        ({"name": "a", "quota": -1}, ("queues", 0, "quota"), "expected KB"),
        ({"name": "a", "transactional": "yes"}, ("queues", 0, "transactional"), "'yes': expected true or false"),
        ({"name": "a", "label": "x" * 125}, ("queues", 0, "label"), "124 UTF-16 units"),
        ({"name": "a", "privacy_level": "optinal"}, ("queues", 0, "privacy_level"), "did you mean optional"),
        ({"name": "a", "type": "orders"}, ("queues", 0, "type"), "'orders'"),
        ({"name": "a", "access": "everyone"}, ("queues", 0, "access"), "expected a list"),
        ({"name": "a", "access": [SND] * 801}, ("queues", 0, "access"), "at most 800"),
        ({"name": "a", "quota": 10**6000}, ("queues", 0, "quota"), "a very large number"),
        ({"name": "a", "label": [["x"] * 9]}, ("queues", 0, "label"), "a list: expected"),
        ({"name": "a" * 9_999_999}, ("queues", 0, "name"), ""),
        ({"name": "Order_Queue$"}, ("queues", 0, "name"), "take another name"),
        ({"name": "a", "access": [{"to": "bob"}]}, ("queues", 0, "access", 0, "to"), "user:alice"),
        ({"name": "a", "access": [SND]}, ("queues", 0, "access", 0, "allow", "snd"), "did you mean send"),
        ({"name": "a", "access": [{"to": "everyone", "may": []}]}, ("queues", 0, "access", 0, "may"), "unknown"),
        ({"name": "a", "access": [{"to": "everyone"}]}, ("queues", 0, "access", 0), "give allow or deny"),
        ({"name": "a", "owner": "nobody-such"}, ("queues", 0, "owner"), "has no user"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_what_to_write(queue: Any, place: tuple[Any, ...], words: str) -> None:
    with pytest.raises(DocumentFault) as caught:
        read_document({"queues": [queue]})
    assert caught.value.place == place and words in caught.value.sentence_alone


@pytest.mark.parametrize("wrong", [{"\x1b[31mred\n": 1}, {"name": "\x1b]0;x\x07;y"}, {"name": "a", "x\x1b": 1}])
def test_a_complaint_is_one_short_line_that_no_terminal_obeys(wrong: Any) -> None:
    with pytest.raises(DocumentFault) as caught:
        read_document({"queues": [wrong | {"x" * 999_999: 1}]})
    for text in (str(caught.value), caught.value.where, caught.value.sentence_alone):
        assert text.isprintable() and len(text) < 700


def test_a_list_in_itself_and_one_of_great_depth_are_no_values() -> None:
    within: list[Any] = []
    within.append(within)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for wrong in (within, deep):
        for queue in ({"name": wrong}, {"name": "a", "label": wrong}, {"name": "a", "owner": wrong}):
            with pytest.raises(DocumentFault, match="a list"):
                read_document({"queues": [queue]})


async def test_who_is_no_administrator_applies_and_sees_nothing(qm: qmnode.QueueManager) -> None:
    somebody = Asker("uid:1000", principal=object())
    with pytest.raises(MessageQueuingError, match="is for administrators"):
        await qm.operations.apply_document(somebody, {"queues": [ORDERS]}, dry_run=True)
    with pytest.raises(MessageQueuingError, match="is for administrators"):
        await qm.operations.show_document(somebody)


@pytest.mark.parametrize("key", ["remote_copy", "storage", "transport"])
def test_a_setting_of_the_node_is_refused_with_the_place_where_it_is_set(key: str) -> None:
    setting = "storage.remote_copy (or declare remote_copy of the machine for rollout.yml)" if key[0] == "r" else key
    with pytest.raises(DocumentFault) as caught:
        read_document({key: {}})
    assert caught.value.sentence_alone == f"documents do not have it: set {setting} in node.yaml"


def test_two_queues_of_one_name_are_refused() -> None:
    with pytest.raises(DocumentFault, match="there already"):
        read_document({"queues": [{"name": "orders"}, {"name": "ORDERS"}]})


def written(row: Property) -> st.SearchStrategy[Any]:
    form = row.form
    if form is FLAG:
        return st.booleans()
    if form is QUOTA:
        return st.none() | st.just("none") | st.integers(0, form.most) | st.just("3MB")
    if form is GUID:
        return st.none() | st.uuids().map(str)
    if form is MULTICAST:
        return st.none() | st.just("234.1.1.1:8001")
    if form.choices:
        return st.sampled_from(sorted(form.choices))
    if form.type is int:
        return st.integers(form.least, form.most)
    return st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


def is_name(text: str) -> bool:
    try:
        read_document({"queues": [{"name": text}]})
    except DocumentFault:
        return False
    return True


ODD = st.sampled_from(
    ["Ä ö-#1", "(a) b.c,d", "queue$", "日本", "a'b\"c", "-", "%2F&?", "\N{COMBINING ACUTE ACCENT}e", "x" * 124]
)
NAMES = st.from_regex(r"[A-Za-z][a-z0-9 .-]{0,20}[a-z]", fullmatch=True) | ODD
RIGHTS = st.sampled_from(sorted(QUEUE_RIGHTS)) | st.integers(1, 0xFFFFFFFF).map(hex)
ENTRIES = st.fixed_dictionaries(
    {"to": st.sampled_from(["everyone", "anonymous", "network", "Authenticated-Users", "uid:0", "gid:0"])},
    optional={verb: st.lists(RIGHTS, max_size=3) for verb in ("allow", "deny")},
).filter(lambda entry: len(entry) > 1) | st.fixed_dictionaries(
    {"to": st.just("S-1-5-21-1-2-3-1104"), "allow": st.lists(RIGHTS, max_size=3)}
)
QUEUES = st.lists(
    st.fixed_dictionaries(
        {"name": (NAMES | st.text(max_size=30)).filter(is_name)},
        optional={name: written(row) for name, row in PRIVATE_QUEUE.items()}
        | {"access": st.lists(ENTRIES, max_size=4), "owner": st.sampled_from(["root", "uid:7", "S-1-5-21-1-2-3-1105"])},
    ),
    max_size=4,
    unique_by=lambda queue: queue["name"].upper(),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(QUEUES, min_size=1, max_size=3))
async def test_a_node_has_the_document_that_made_it(tmp_path_factory: pytest.TempPathFactory, rounds: Any) -> None:
    """Document, node, document, round after round: applied to another node, what a node shows makes the same."""
    made: dict[str, Any] = {}
    async with qmnode.QueueManager.open(tmp_path_factory.mktemp("one") / "store") as one:
        for queues in rounds:
            for queue in queues:  # what cannot change stays
                transactional = made.setdefault(queue["name"].upper(), queue.get("transactional", False))
                queue["transactional"] = transactional
            made = {name: made[name] for name in (queue["name"].upper() for queue in queues)}
            await apply(one, *queues, prune=True)
            assert await apply(one, *queues, prune=True) == []
            assert {name.upper() for name in await names(one)} == set(made)
            shown = await one.operations.show_document(NODE)
            assert await apply(one, *shown["queues"], prune=True) == []
    async with qmnode.QueueManager.open(tmp_path_factory.mktemp("two") / "store") as two:
        await apply(two, *shown["queues"])
        assert await two.operations.show_document(NODE) == shown
        owned = [{name: value for name, value in queue.items() if name != "owner"} for queue in rounds[-1]]
        unlisted = {queue["name"].upper() for queue in owned if "access" not in queue}
        assert {queue.upper() for _, queue in await apply(two, *owned)} <= unlisted
