"""Every declared value holds: for each row of the table it is declared, applied, and seen at a running node.

What is observed is the behaviour, not the record. The rows drive the tests: a row without an observation fails.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

import qmnode
from mqenterprise.cli import app
from mqenterprise.directory.ldap_names import child
from mqenterprise.topology import drawing
from mqenterprise.topology.plan import FixedError
from qmnode.objects.rows import Door, Kind, Property
from qmnode.objects.table import PRIVATE_QUEUE, ROWS
from qmnode.structures.enumerations import AuthenticationLevel, MessageClass, PrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_bytes, guid_to_text
from tests.effects.binds import ANNE, BOB
from tests.effects.lab import FAST, LISTED, LONG, Lab, Phase
from tests.lab.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

    Seen = Callable[[Lab, Phase], Coroutine[None, None, None]]

pytestmark = [
    pytest.mark.servers,
    pytest.mark.one_server(reason="nodes read both servers by one port; what travels is tested on both"),
]

DECLARED, CHANGED, REMOVED = Phase
ARRIVED: Final = "MQMSG_CLASS_ACK_REACH_QUEUE"
NACK: Final = "MQMSG_CLASS_NACK_"
COUNT: Final = 300
NARROW: Final = 400_000.0
SEEN: Final[dict[tuple[Kind, str], Seen]] = {}
EVERY: Final = [(kind, row) for kind, rows in ROWS.items() for row in rows.at(Door.DECLARATION) if row.obeyed_by]


def sees(kind: Kind, *names: str) -> Callable[[Seen], Seen]:
    """The observation of a row, in each phase."""

    def entered(seen: Seen) -> Seen:
        SEEN.update(((kind, name), seen) for name in names)
        return seen

    return entered


@pytest.fixture(scope="module")
def lab(slapd: EmbeddedDirectory) -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="effects"))  # short: it has sockets in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Lab(slapd, folder)
        try:
            lab.start()
            yield lab
        finally:
            lab.close()
            shutil.rmtree(folder, ignore_errors=True)


# The enterprise


@sees(Kind.ENTERPRISE, "default_time_to_live")
async def a_message_without_a_time_has_that_of_the_enterprise(lab: Lab, phase: Phase) -> None:
    name = lab.format_name(r"far\orders")
    async with lab.one as one:
        out = await one.open_queue(name, qmnode.Access.SEND)
        if phase is DECLARED:
            dead = await one.open_queue(r"DIRECT=OS:.\SYSTEM$;DEADLETTER")

            async def dies() -> bool:
                await out.send(qmnode.Message(b"short-lived", negative_journaling_requested=True))
                try:
                    message = await dead.receive(timeout=5)
                except qmnode.MessageQueuingError:
                    return False
                return message.message_class == MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT

            await until(dies, "a message dies after a second")
            return
        waiting = await one.open_queue(name, qmnode.Access.RECEIVE | qmnode.Access.ADMIN)
        expected = {CHANGED: 3600, REMOVED: 345_600}[phase]

        async def lives() -> bool:
            await out.send(qmnode.Message(b"timed", label="timed"))
            last = None
            with suppress(qmnode.MessageQueuingError):
                while True:
                    message = await waiting.receive(timeout=0)
                    last = message if message.label == "timed" else last
            return last is not None and last.time_to_reach_queue == expected

        await until(lives, f"messages have {expected} s")


@sees(Kind.ENTERPRISE, "weakened_security")
async def the_node_logs_in_to_the_directory_in_place_of_its_callers(lab: Lab, phase: Phase) -> None:
    """Whether a user creates a queue whom the directory refuses; on both servers in test_weakened_security.py."""

    async def creates() -> bool:
        async with qmnode.connect(lab.nodes["one"].socket, lab.users.login(BOB)) as one:
            try:
                await one.create_queue(r".\of-the-node")
            except qmnode.MessageQueuingError as error:
                assert error.code is ErrorCode.MQ_ERROR_ACCESS_DENIED, error
                return False
        async with lab.one as one:
            await one.delete_queue(r".\of-the-node")
        return True

    async def is_so() -> bool:
        return await creates() == (phase is DECLARED)

    await until(is_so, "the node creates it, or Bob may not")


@sees(Kind.ENTERPRISE, "access")
async def who_is_on_the_list_changes_the_enterprise(lab: Lab, phase: Phase) -> None:
    """Whose login the directory lets do it; on both servers in test_access_lists.py."""
    expected = {DECLARED: [ANNE], CHANGED: [BOB], REMOVED: []}[phase]
    assert await asyncio.to_thread(lab.users.changes_the_enterprise) == expected


# Sites, links and machines: the way of a message


@sees(Kind.SITE, "access")
async def who_is_on_the_list_changes_a_site(lab: Lab, phase: Phase) -> None:
    expected = {DECLARED: [ANNE], CHANGED: [BOB], REMOVED: []}[phase]
    assert await asyncio.to_thread(lab.users.changes_a_site, "b") == expected


@sees(Kind.SITE, "foreign")
async def a_foreign_site_is_reached_through_a_connector(lab: Lab, phase: Phase) -> None:
    await (lab.connects("outsider") if phase is DECLARED else lab.waits("outsider"))


@sees(Kind.ROUTING_LINK, "cost")
async def the_cheaper_way_is_taken(lab: Lab, phase: Phase) -> None:
    await lab.goes("one", "far", "gate-c" if phase is DECLARED else "gate-b")


@sees(Kind.ROUTING_LINK, "site_gates")
async def the_gates_of_a_link_are_passed(lab: Lab, phase: Phase) -> None:
    if phase is REMOVED:
        await lab.waits("far-gated")
    else:
        await lab.goes("one", "far-gated", "gate-d" if phase is DECLARED else "gate-e")


@sees(Kind.ROUTING_LINK, "description")
async def the_drawing_of_the_enterprise_has_it(lab: Lab, phase: Phase) -> None:
    drawn = await asyncio.to_thread(lambda: drawing.svg(drawing.graph_of(lab.target.snapshot().table), "lab"))
    assert [word in drawn for word in ("leased", "fibre")] == [phase is DECLARED, phase is CHANGED]


@sees(Kind.MACHINE, "sites")
async def a_machine_is_reached_in_its_site(lab: Lab, phase: Phase) -> None:
    by = {DECLARED: "mover", CHANGED: "gate-c" if lab.phase is DECLARED else "gate-b", REMOVED: "gate-c"}
    await lab.goes("one", "mover", by[phase])


@sees(Kind.MACHINE, "routing_server")
async def a_client_sends_through_the_routing_servers_of_its_site(lab: Lab, phase: Phase) -> None:
    """TWO has routing servers of its own choice until the third phase, so all is seen there."""
    if phase is not REMOVED:
        return
    others = ("one", "server-a", "server-b")
    await lab.goes("two", "far", *others)
    declaration = lab.declaration(phase)
    (helper,) = (machine for machine in declaration["machines"] if machine["name"] == "helper")
    for roles, servers in ((["routing_server"], (*others, "helper")), (["client"], others)):
        helper["roles"] = roles
        await asyncio.to_thread(lab.apply, declaration)
        await lab.goes("two", "far", *servers)


@sees(Kind.MACHINE, "out_routing_servers")
async def messages_leave_through_the_servers_that_are_named(lab: Lab, phase: Phase) -> None:
    by = {DECLARED: ("server-a",), CHANGED: ("one",), REMOVED: ("one", "server-a", "server-b")}
    await lab.goes("two", "far", *by[phase])


@sees(Kind.MACHINE, "in_routing_servers")
async def messages_come_in_through_the_servers_that_are_named(lab: Lab, phase: Phase) -> None:
    await lab.goes("one", "near", {DECLARED: "server-a", CHANGED: "server-b", REMOVED: "near"}[phase])


@sees(Kind.MACHINE, "foreign")
async def a_foreign_system_is_reached_through_its_connector(lab: Lab, phase: Phase) -> None:
    await (lab.connects("alien") if phase is DECLARED else lab.goes("one", "alien", "alien"))


@sees(Kind.MACHINE, "dns_name")
async def a_machine_is_called_by_its_name(lab: Lab, phase: Phase) -> None:
    """When it is no longer declared, it stays as it is."""
    await lab.goes("one", "named", "named" if phase is DECLARED else "renamed")


# Machines: quotas, and what is for people


async def takes(lab: Lab, size: int) -> bool:
    """Whether ONE takes a message, which is received again."""
    path = r".\private$\weighed"
    async with lab.one as one:
        with suppress(qmnode.MessageQueuingError):
            await one.create_queue(path, journaling=True)
        out = await one.open_queue(f"DIRECT=OS:{path}", qmnode.Access.SEND)
        try:
            await out.send(qmnode.Message(bytes(size)))
        except qmnode.MessageQueuingError as error:
            assert error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
            return False
        await (await one.open_queue(f"DIRECT=OS:{path}")).receive(timeout=60)
        return True


@sees(Kind.MACHINE, "quota")
async def a_machine_refuses_messages_beyond_its_quota(lab: Lab, phase: Phase) -> None:
    more, less = {DECLARED: (3_300_000, 2_300_000), CHANGED: (2_300_000, 500_000), REMOVED: (0, 3_300_000)}[phase]

    async def is_so() -> bool:
        return await takes(lab, less) and not (more and await takes(lab, more))

    await until(is_so, f"ONE takes {less} bytes, and not {more}")


@sees(Kind.MACHINE, "journal_quota")
async def journals_keep_no_copies_beyond_the_quota(lab: Lab, phase: Phase) -> None:
    size, kept = {DECLARED: (100_000, 0), CHANGED: (100_000, 1), REMOVED: (400_000, 1)}[phase]

    async def is_so() -> bool:
        journal = r"DIRECT=OS:.\private$\weighed;JOURNAL"
        await takes(lab, 1)
        async with lab.one as one:
            copies = await one.open_queue(journal)
            with suppress(qmnode.MessageQueuingError):
                while True:
                    await copies.receive(timeout=0)
            await takes(lab, size)
            return (await one.queue(r".\private$\weighed")).journal_message_count == kept

    await until(is_so, f"{kept} copies of {size} bytes")


@sees(Kind.MACHINE, "version")
async def the_pipeline_knows_the_version(lab: Lab, phase: Phase) -> None:
    from mqenterprise.pipeline.sources.directory_source import TABLES

    rows = await asyncio.to_thread(lambda: list(TABLES["queue_managers"].rows(lab.directory)))
    (version,) = (row["version"] for row in rows if row["node"].lower() == "one")
    assert version == {DECLARED: "7.1", CHANGED: "7.2", REMOVED: ""}[phase]


# Queues


@sees(Kind.QUEUE, "label")
async def a_queue_shows_its_label(lab: Lab, phase: Phase) -> None:
    await lab.at_two("label")
    expected = {DECLARED: "first", CHANGED: "second", REMOVED: ""}[phase]

    async def is_so() -> bool:
        async with lab.two as two:
            return (await two.queue(rf".\{lab.prefix}label")).label == expected

    await until(is_so, f"the label is {expected!r}")
    shown = await asyncio.to_thread(lab.nodes["two"].command, "queue", "show", rf".\{lab.prefix}label", "--json")
    assert json.loads(shown.stdout)["label"] == expected, shown.stderr


@sees(Kind.QUEUE, "type")
async def a_queue_has_its_type(lab: Lab, phase: Phase) -> None:
    await lab.at_two("type")
    expected = {DECLARED: 0x11, CHANGED: 0x66, REMOVED: 0}[phase]

    async def is_so() -> bool:
        async with lab.two as two:
            return bytes((await two.queue(rf".\{lab.prefix}type")).type)[0] == expected

    await until(is_so, f"the type begins with {expected:x}")


@sees(Kind.QUEUE, "transactional")
async def a_transactional_queue_takes_no_other_messages(lab: Lab, phase: Phase) -> None:
    """It is so from its creation on: another declaration is refused."""
    if phase is DECLARED:
        await lab.becomes(f"{NACK}NOT_TRANSACTIONAL_MSG", "transactional")
        await lab.becomes(ARRIVED, "plain")
        return
    declaration = lab.declaration(phase)
    for queue in declaration["queues"]:
        if queue["name"] == "transactional":
            queue["transactional"] = False
    bring = lab.bring_document if lab.prefix else lab.apply
    with pytest.raises((FixedError, qmnode.MessageQueuingError), match="transactional"):
        await asyncio.to_thread(bring, declaration)


@sees(Kind.QUEUE, "journaling")
async def a_journaling_queue_keeps_copies(lab: Lab, phase: Phase) -> None:
    await lab.at_two("journal")

    async def is_so() -> bool:
        return await copies(lab, "journal", 10) == (phase is DECLARED)

    await until(is_so, "the journal gets copies, or none")


@sees(Kind.QUEUE, "journal_quota")
async def a_journal_keeps_no_copies_beyond_its_quota(lab: Lab, phase: Phase) -> None:
    await lab.at_two("journal_quota")
    size, kept = {DECLARED: (20_000, 0), CHANGED: (20_000, 1), REMOVED: (100_000, 1)}[phase]

    async def is_so() -> bool:
        return await copies(lab, "journal_quota", size) == kept

    await until(is_so, f"{kept} copies of {size} bytes")


async def copies(lab: Lab, name: str, size: int) -> int:
    """How many copies of a message that is received from a queue of TWO go into its journal, which is empty then."""
    async with lab.two as two:
        await (await two.open_queue(rf"DIRECT=OS:.\{lab.prefix}{name}", qmnode.Access.SEND)).send(
            qmnode.Message(bytes(size))
        )
        await (await two.open_queue(rf"DIRECT=OS:.\{lab.prefix}{name}")).receive(timeout=60)
        journal = await two.open_queue(rf"DIRECT=OS:.\{lab.prefix}{name};JOURNAL")
        found = 0
        with suppress(qmnode.MessageQueuingError):
            while True:
                await journal.receive(timeout=0)
                found += 1
        return found


@sees(Kind.QUEUE, "max_deliveries")
async def a_message_is_a_dead_letter_after_its_last_delivery(lab: Lab, phase: Phase) -> None:
    left = {DECLARED: 0, CHANGED: 1, REMOVED: 1}[phase]

    async def is_so() -> bool:
        return len(await hundreds_of_seconds(lab, "max_deliveries", 1)) == left

    await until(is_so, f"{left} messages are left after a failure")
    if phase is not DECLARED:
        left = 0 if phase is CHANGED else 1
        assert len(await hundreds_of_seconds(lab, "max_deliveries", 2)) == left


@sees(Kind.QUEUE, "retry_pause", "retry_longest_pause")
async def a_failed_message_waits(lab: Lab, phase: Phase) -> None:
    for name, otherwise in (("retry_pause", 0), ("retry_longest_pause", 30)):

        async def is_so(name: str = name, expected: int = {DECLARED: 7, CHANGED: 5, REMOVED: otherwise}[phase]) -> bool:
            return await hundreds_of_seconds(lab, name, 1) == [expected]

        await until(is_so, f"{name} is obeyed")


@sees(Kind.QUEUE, "retry_factor")
async def each_failure_multiplies_the_pause(lab: Lab, phase: Phase) -> None:
    expected = {DECLARED: 2, CHANGED: 1, REMOVED: 0}[phase]

    async def is_so() -> bool:
        return await hundreds_of_seconds(lab, "retry_factor", 2) == [expected]

    await until(is_so, f"the second pause is {expected} hundred seconds")


async def hundreds_of_seconds(lab: Lab, name: str, failures: int) -> list[int]:
    """The pause of a message of an otherwise empty queue of TWO after so many failures; nothing if it is gone."""
    async with lab.two as two:
        queue = await two.open_queue(rf"DIRECT=OS:.\{lab.prefix}{name}")
        await queue.purge()
        await (await two.open_queue(rf"DIRECT=OS:.\{lab.prefix}{name}", qmnode.Access.SEND)).send(qmnode.Message(b"1"))
        for _ in range(failures):
            message = await queue.receive_begin(timeout=60)
            await queue.receive_end(message.lookup_identifier, delete=False)
        try:
            left = await queue.peek(timeout=0)
        except qmnode.MessageQueuingError:
            return []
        return [int(max(0.0, left.next_try - left.arrival_time) // 100)]


@sees(Kind.QUEUE, "quota")
async def a_queue_refuses_messages_beyond_its_quota(lab: Lab, phase: Phase) -> None:
    if phase is not DECLARED:
        await lab.becomes(ARRIVED, "quota", 10_000)
    if phase is not REMOVED:
        await lab.becomes(f"{NACK}Q_EXCEED_QUOTA", "quota", 10_000)


@sees(Kind.QUEUE, "authentication")
async def an_authenticated_queue_refuses_an_unsigned_message(lab: Lab, phase: Phase) -> None:
    await lab.becomes(f"{NACK}BAD_SIGNATURE" if phase is DECLARED else ARRIVED, "authenticate")


@sees(Kind.QUEUE, "privacy_level")
async def a_private_queue_refuses_a_clear_message_and_a_public_one_an_encrypted(lab: Lab, phase: Phase) -> None:
    clear, encrypted = {
        DECLARED: (f"{NACK}BAD_ENCRYPTION", ARRIVED),
        CHANGED: (ARRIVED, f"{NACK}BAD_ENCRYPTION"),
        REMOVED: (ARRIVED, ARRIVED),
    }[phase]
    await lab.becomes(clear, "privacy_level")
    if not lab.prefix:  # nobody encrypts to a direct format name
        await lab.becomes(encrypted, "privacy_level", privacy_level=PrivacyLevel.ADVANCED)


@sees(Kind.QUEUE, "base_priority")
async def the_queue_with_the_higher_priority_is_served_first(lab: Lab, phase: Phase) -> None:
    names = "base_priority", "plain"
    formats = [lab.format_name(rf"two\{name}") for name in names]
    expected = {DECLARED: 100, CHANGED: -100, REMOVED: 0}[phase]
    for name in names:
        await lab.becomes(ARRIVED, name)
    async with lab.one as one, lab.two as two:

        async def is_known() -> bool:
            return (await one.queue(formats[0])).base_priority == expected

        await until(is_known, f"ONE knows the priority {expected}")
        if phase is REMOVED:
            return
        for name in names:
            with suppress(qmnode.MessageQueuingError):
                emptied = await two.open_queue(rf"DIRECT=OS:.\{name}")
                while True:
                    await emptied.receive(timeout=0)
        lab.link.narrow.rate = NARROW
        try:
            for name in formats:
                await one.pause_queue(name)
                out = await one.open_queue(name, qmnode.Access.SEND)
                await out.send_many([qmnode.Message(bytes(1000), recoverable=True, time_to_reach_queue=LONG)] * COUNT)
            for name in formats:
                await one.resume_queue(name)
            ends = []
            for name in names:
                queue = await two.open_queue(rf"DIRECT=OS:.\{name}")
                arrived = [(await queue.receive(timeout=120)).arrival_time for _ in range(COUNT)]
                ends.append(arrived)
        finally:
            lab.link.narrow.rate = FAST
    high, low = ends if expected > 0 else reversed(ends)
    # A window was under way, and a sixteenth is let through. Side by side the two would end together.
    assert sum(at < max(high) for at in low) < 2 * COUNT / 3


@sees(Kind.QUEUE, "access")
async def who_is_not_on_the_list_is_refused(lab: Lab, phase: Phase) -> None:
    """A list that is no longer declared stays as it is."""
    await lab.becomes(f"{NACK}ACCESS_DENIED" if phase is DECLARED else ARRIVED, "access")


@sees(Kind.USER, "certificates")
async def a_signature_is_verified_with_the_certificates_of_the_user(lab: Lab, phase: Phase) -> None:
    outcome = ARRIVED if phase is DECLARED else f"{NACK}BAD_SIGNATURE"
    await lab.becomes(outcome, "signed", authentication_level=AuthenticationLevel.SIG30)


async def got_by_list(lab: Lab, name: str) -> list[str]:
    """The queues of TWO that got a message that was sent to a distribution list."""
    dn = child(name, lab.directory.connection.dialect.contexts.users)
    entry = await asyncio.to_thread(lab.directory.connection.read, dn, ("objectGUID",))
    identifier = guid_to_text(guid_from_bytes(entry.attributes["objectguid"][0]))
    async with lab.two as two:
        out = await two.open_queue(f"DL={identifier}", qmnode.Access.SEND)
        await out.send(qmnode.Message(b"to all", label=name))
        found = []
        for queue in LISTED:
            opened = await two.open_queue(rf"DIRECT=OS:.\{queue}")
            with suppress(qmnode.MessageQueuingError):
                while True:
                    await opened.receive(timeout=0)
                    found.append(queue)
        return found


@sees(Kind.DISTRIBUTION_LIST, "members")
async def each_member_gets_a_message_to_the_list(lab: Lab, phase: Phase) -> None:
    for name in LISTED:
        await lab.at_two(name)
    if phase is REMOVED:
        with pytest.raises(qmnode.MessageQueuingError):
            await got_by_list(lab, "staff")
        return
    expected = [LISTED[phase]]

    async def is_so() -> bool:
        return await got_by_list(lab, "staff") == expected

    await until(is_so, f"{expected} gets it")


@sees(Kind.QUEUE_ALIAS, "format_name")
async def an_alias_leads_to_the_queue_that_it_names(lab: Lab, phase: Phase) -> None:
    expected = [LISTED[0 if phase is DECLARED else 1]]
    await lab.at_two(expected[0])

    async def is_so() -> bool:
        return await got_by_list(lab, "aliased") == expected

    await until(is_so, f"{expected} gets it")


@pytest.mark.parametrize("row", [row for _, row in EVERY], ids=[f"{kind}.{row.name}" for kind, row in EVERY])
@pytest.mark.parametrize("phase", Phase, ids=[phase.name.lower() for phase in Phase])
async def test_a_declared_value_holds(lab: Lab, phase: Phase, row: Property) -> None:
    (kind,) = (kind for kind, one in EVERY if one is row)
    assert (kind, row.name) in SEEN, f"nothing observes {kind}.{row.name}: add an observation to this file"
    await asyncio.to_thread(lab.enter, phase)
    await SEEN[kind, row.name](lab, phase)


PRIVATE: Final = {name: row for name, row in PRIVATE_QUEUE.items() if row.obeyed_by and name != "duplicate_window"}
"""What is obeyed of private queues. Duplicates of AMQP messages are looked at in ``tests/amqp``."""


@pytest.mark.parametrize("name", ["access", *PRIVATE])
@pytest.mark.parametrize("phase", Phase, ids=[phase.name.lower() for phase in Phase])
async def test_a_value_of_a_private_queue_holds(lab: Lab, phase: Phase, name: str) -> None:
    """The document of its machine brings it."""
    await asyncio.to_thread(lab.enter, phase)
    lab.prefix = "private$\\"
    try:
        await SEEN[Kind.QUEUE, name](lab, phase)
    finally:
        lab.prefix = ""


async def an_address_is_one_of_the_machine(lab: Lab, phase: Phase) -> None:
    expected = {DECLARED: "192.0.2.7", CHANGED: "192.0.2.8"}.get(phase)
    async with lab.two as two:
        for address in ("192.0.2.7", "192.0.2.8"):
            name = rf".\private$\at-{address}-{phase}"
            with suppress(qmnode.MessageQueuingError):
                await two.create_queue(name)
            out = await two.open_queue(f"DIRECT=TCP:{address}{name[1:]}", qmnode.Access.SEND)
            await out.send(qmnode.Message(b"7"))
            assert bool((await two.queue(name)).message_count) is (address == expected), address


async def a_bridge_calls_its_peer(lab: Lab, phase: Phase) -> None:
    expected = {DECLARED: "broker", CHANGED: "other-broker"}.get(phase)
    if expected:
        before = lab.peers.calls[expected]

        async def is_called() -> bool:
            return lab.peers.calls[expected] > before + 1

        await until(is_called, f"{expected} is called again and again")
    async with lab.two as two:
        running = (await two.status()).bridges
    assert [bridge.peer for bridge in running] == ([f"amqp://{lab.peers.addresses[expected]}:1801"] if expected else [])


@pytest.mark.parametrize("seen", [an_address_is_one_of_the_machine, a_bridge_calls_its_peer])
@pytest.mark.parametrize("phase", Phase, ids=[phase.name.lower() for phase in Phase])
async def test_what_the_document_of_a_machine_declares_holds(lab: Lab, phase: Phase, seen: Seen) -> None:
    await asyncio.to_thread(lab.enter, phase)
    await seen(lab, phase)


LASTING: Final = (
    (Kind.ENTERPRISE, "default_time_to_live"),
    (Kind.SITE, "foreign"),
    (Kind.ROUTING_LINK, "cost"),
    (Kind.MACHINE, "quota"),
    (Kind.QUEUE, "quota"),
    (Kind.USER, "certificates"),
)
"""A row of each kind."""


async def test_declared_values_outlive_a_restart_without_the_directory(lab: Lab) -> None:
    await asyncio.to_thread(lab.enter, DECLARED)
    for row in LASTING:
        await SEEN[row](lab, DECLARED)
    try:
        await asyncio.to_thread(lab.restart, directory=False)
        for row in LASTING:
            await SEEN[row](lab, DECLARED)
        one = json.loads((await asyncio.to_thread(lab.nodes["one"].command, "status", "--json")).stdout)
        two = json.loads(
            (await asyncio.to_thread(lab.nodes["two"].command, "queue", "show", r".\quota", "--json")).stdout
        )
    finally:
        await asyncio.to_thread(lab.restart, directory=True)
    quotas = one["quotas"]
    routing = json.loads((await asyncio.to_thread(lab.nodes["two"].command, "status", "--json")).stdout)["routing"]
    assert (routing["out_routing_servers"], routing["routing_server"]) == (["server-a"], False)
    assert (one["directory"], two["quota"]) == ("not confirmed", 8)
    assert (quotas["quota"], quotas["quota_source"]) == (3000, "directory")
    assert (quotas["default_time_to_live"], quotas["default_time_to_live_source"]) == (1, "directory")


def test_explain_names_the_road_the_line_the_loser_and_what_the_node_has(lab: Lab) -> None:
    lab.enter(DECLARED)
    for row in ((Kind.MACHINE, "quota"), (Kind.QUEUE, "label"), (Kind.ENTERPRISE, "default_time_to_live")):
        asyncio.run(SEEN[row](lab, DECLARED))
    place = lab.folder / "enterprise.yaml"
    known = ("--declared", str(place), "--directory", str(lab.directory_file))

    def explained(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["explain", *words])
        assert result.exit_code == code, result.output
        return result.output

    def lines(text: str) -> list[list[str]]:
        return [line.split("\t") for line in explained(text, *known, "--nodes", str(lab.nodes_file)).splitlines()]

    numbers = [at for at, line in enumerate(place.read_text().splitlines(), 1) if line.strip() == "quota: 3000"]
    assert lines("one.quota") == [
        ["one.quota comes by the directory: mSMQQuota"],
        ["from", "value", "where", "outcome"],
        ["declaration", "3000 KiB", f"{place}:{numbers[0]}", "applied"],
        ["directory", "3000 KiB", "mSMQQuota", "holds"],
        [
            "node.yaml", "5000 KiB", "quotas.queue_manager_quota",
            "lost: the directory wins, unless quotas.source is local",
        ],
        ["default", "1 GiB", "MS-MQDMPR 3.1.1.1", "not used"],
        ["node now", "3000 KiB", "", "from the directory"],
    ]  # fmt: skip
    assert lines(r"two\label.label")[-1][:2] == ["node now", "first"]
    assert lines("one.default_time_to_live")[-1][1:] == ["1", "", "from the directory"]
    assert lines("two.out_routing_servers")[-1][:2] == ["node now", "server-a"]
    alone = json.loads(explained("one.quota", *known[2:], "--json"))
    assert [one["where"] for one in alone["standings"]] == ["directory", "default"]
    assert alone["node"]["unknown"].startswith("say where the nodes are: --nodes FILE")
    assert "there is no machine nobody" in explained("nobody.quota", *known, "--nodes", str(lab.nodes_file), code=1)


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.parametrize("row", [row for _, row in EVERY], ids=[f"{kind}.{row.name}" for kind, row in EVERY])
async def test_a_change_holds_within_five_seconds_of_its_apply(lab: Lab, row: Property) -> None:
    (kind,) = (kind for kind, one in EVERY if one is row)
    await asyncio.to_thread(lab.enter, REMOVED)  # so that both others are applied
    for phase in (CHANGED, DECLARED):
        await asyncio.to_thread(lab.enter, phase)
        await SEEN[kind, row.name](lab, phase)
        took = time.monotonic() - lab.applied
        # The order over a narrow link takes its time to be seen.
        assert took < 5 or row.name == "base_priority", f"{phase.name}: {took:.1f} s"
