"""The door matrix over AMQP: each kind of link, as tokens with and without SIDs and as nobody in particular."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
from proton import Delivery
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, LinkDetached, SendException

import qmnode.amqp
from qmnode import QueueManager
from qmnode.amqp.door import AmqpDoor
from qmnode.amqp.links import DoorLink
from qmnode.security.principals import Principals
from qmnode.settings.node import NodeSettings
from qmnode.structures.security_descriptor import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, NETWORK, Sid
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.amqp.conftest import Browsing, amqp_message, connected, in_thread
from tests.doors.directory import Groups
from tests.doors.expectation import DOMAIN, MEMBER, STRANGER, Matrix, Who, allowed, described, descriptors
from tests.management.conftest import digest

AWAY = frozenset({EVERYONE, AUTHENTICATED_USERS, NETWORK})
TOKENS: dict[str, tuple[str, Sid | None, Who]] = {
    "owner": ("operate", DOMAIN.owner, Who(AWAY | {DOMAIN.owner})),
    "member": ("operate", MEMBER, Who(AWAY | {MEMBER, DOMAIN.group})),
    "stranger": ("operate", STRANGER, Who(AWAY | {STRANGER})),
    "reader": ("read", DOMAIN.declared, Who(AWAY | {DOMAIN.declared}, reads_only=True)),
    "operator": ("operate", None, Who(AWAY)),  # the access lists count for every name
}
PRINCIPALS = {name: who for name, (_, _, who) in TOKENS.items()} | {
    "nobody": Who(frozenset({ANONYMOUS, NETWORK})),
}
DESCRIPTORS = descriptors(DOMAIN)
NAMES = {f"q{number}": text for number, text in enumerate(DESCRIPTORS)}
Link = Callable[[BlockingConnection, str], object]


def sender(client: BlockingConnection, name: str) -> object:
    return client.create_sender(name)


def receiver(client: BlockingConnection, name: str, *options: ReceiverOption) -> object:
    return client.create_receiver(name, credit=0, options=list(options))


def relay(client: BlockingConnection, name: str) -> object:
    """A link without an address, on which a message names the queue."""
    link = client.create_sender(None)
    try:
        link.send(amqp_message(b"", address=name))
    except SendException:
        link.close()
        raise
    return link


ROWS: dict[str, tuple[Right, Link]] = {
    "IncomingLink": (Right.MQSEC_WRITE_MESSAGE, sender),
    "IncomingLink, format name": (
        Right.MQSEC_WRITE_MESSAGE, lambda client, name: sender(client, f"DIRECT=OS:HERE\\PRIVATE$\\{name.upper()}"),
    ),
    "RelayLink": (Right.MQSEC_WRITE_MESSAGE, relay),
    "OutgoingLink": (Right.MQSEC_RECEIVE_MESSAGE, receiver),
    "OutgoingLink, browsing": (Right.MQSEC_PEEK_MESSAGE, lambda client, name: receiver(client, name, Browsing())),
    "OutgoingLink, journal": (
        Right.MQSEC_RECEIVE_JOURNAL_MESSAGE, lambda client, name: receiver(client, f"queue://{name};journal"),
    ),
}  # fmt: skip
MACHINE: dict[str, tuple[frozenset[str], Link]] = {
    "OutgoingLink, dead letters": (frozenset(), lambda client, _: receiver(client, "system$;deadletter", Browsing())),
    "OutgoingLink, machine journal": (frozenset(), lambda client, _: receiver(client, "system$;journal", Browsing())),
    "IncomingLink, elsewhere": (
        frozenset(TOKENS) - {"reader"}, lambda client, _: sender(client, r"DIRECT=OS:elsewhere\private$\orders"),
    ),
}  # fmt: skip
NO_QUEUE = {"CoordinatorLink": "transactions need no right: each of their operations is on a link that has asked"}


def links(package: ModuleType) -> set[str]:
    """The classes of links that there are."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        for name, one in inspect.getmembers(loaded, inspect.isclass):
            if one is not DoorLink and callable(getattr(one, "delivery", None)) and hasattr(one, "pass_ended"):
                found.add(name)
    return found


def without_row(found: set[str]) -> set[str]:
    return found - {name.partition(",")[0] for name in (*ROWS, *MACHINE, *NO_QUEUE)}


def test_every_kind_of_link_has_a_row() -> None:
    assert links(qmnode.amqp) >= {"IncomingLink", "OutgoingLink", "CoordinatorLink"}
    assert without_row(links(qmnode.amqp)) == set()


def test_a_kind_of_link_without_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class BackdoorLink:
        def delivery(self) -> None: ...

        def pass_ended(self) -> None: ...

    monkeypatch.setattr(importlib.import_module("qmnode.amqp.links"), "BackdoorLink", BackdoorLink, raising=False)
    assert without_row(links(qmnode.amqp)) == {"BackdoorLink"}


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
async def url(tmp_path: Path, groups: Groups) -> AsyncIterator[str]:
    tokens = tmp_path / "tokens.yaml"
    lines = [
        {"name": name, "role": role, "sha256": digest(name)} | ({"principal": str(sid)} if sid is not None else {})
        for name, (role, sid, _) in TOKENS.items()
    ]
    tokens.write_text(json.dumps(lines))
    tokens.chmod(0o600)
    settings = NodeSettings(
        data=tmp_path / "data",
        computer_name="HERE",
        amqp={"enabled": True, "address": "127.0.0.1", "port": 0, "tokens": tokens, "anonymous": True, "links": 4000},
        export={},
    )
    async with QueueManager.open(settings.data, settings) as manager:
        for name, text in NAMES.items():
            await manager.create_queue(rf".\private$\{name}", security=described(DESCRIPTORS[text], DOMAIN.owner))
        door = AmqpDoor(
            manager, settings, Principals(settings.security.model_copy(update={"principal_lifetime": 0}), groups)
        )
        await door.start()
        try:
            yield f"amqp://127.0.0.1:{door.port}"
        finally:
            await door.stop()


def is_granted(client: BlockingConnection, work: Link, name: str) -> bool:
    try:
        opened = work(client, name)
    except LinkDetached as error:
        assert "unauthorized-access" in str(error), error
        return False
    except SendException as error:
        assert error.state == Delivery.REJECTED, error
        return False
    opened.close()  # type: ignore[attr-defined]
    return True


async def test_no_denied_principal_succeeds_and_no_allowed_one_fails(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Matrix("AMQP")

    def work(principal: str) -> None:
        who = PRINCIPALS[principal]
        login = {"allowed_mechs": "PLAIN", "user": principal, "password": principal, "allow_insecure_mechs": True}
        with connected(url, **(login if principal in TOKENS else {})) as client:
            for (operation, (right, link)), (name, text) in product(ROWS.items(), NAMES.items()):
                expected = not who.reads_only and allowed(DESCRIPTORS[text], who, DOMAIN.owner, int(right))
                matrix.count(f"{principal}, {operation}, {text}", expected, is_granted(client, link, name))
            for operation, (may, link) in MACHINE.items():
                matrix.count(f"{principal}, {operation}", principal in may, is_granted(client, link, ""))

    for principal in PRINCIPALS:
        await in_thread(lambda principal=principal: work(principal))
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])
    assert matrix.cells >= 900


async def test_who_has_left_a_group_opens_no_further_link(url: str, groups: Groups) -> None:
    name = next(name for name, text in NAMES.items() if text == "group")

    def work() -> tuple[bool, bool]:
        login = {"allowed_mechs": "PLAIN", "user": "member", "password": "member", "allow_insecure_mechs": True}
        with connected(url, **login) as client:
            before = is_granted(client, sender, name)
            groups.left = True
            return before, is_granted(client, sender, name)

    assert await in_thread(work) == (True, False)
