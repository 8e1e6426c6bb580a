"""Strangers take no table from those who have earned a place in it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from qmnode.shares import Kind
from qmnode.transport import connection
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.crowds import COUNT, CROWDS, Crowded, crowded
from tests.adversary.lab import HIGHEST, outgoing, send
from tests.adversary.peer import PORT, Peer, session
from tests.forwarding.enterprise import Machine
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, loopback_address

FIRST = HIGHEST - (80_000 << 32)
"""A sequence identifier of about now."""


def spelled(text: str, number: int) -> str:
    """One of the ways to write a name in upper and lower case."""
    letters = [place for place, letter in enumerate(text) if letter.isalpha()]
    found = list(text)
    for bit, place in enumerate(letters):
        found[place] = text[place].upper() if number >> bit & 1 else text[place].lower()
    return "".join(found)


def begun(lab: Crowded, number: int, source: bytes, queue: str = r"private$\tx") -> bytes:
    """The first message of a sequence."""
    name = wire.direct(rf"{lab.direct}\{queue}")
    return wire.UserMessage(source=source, message_id=number + 1, queue=name, place=wire.Place(FIRST, 1, 0)).packet()


async def positions(lab: Crowded) -> int:
    return len(await lab.target.incoming_sequences())


@attack(
    Area.SEQUENCES,
    can="begin sequences of invented sources until there is no place for another one, from one address, from ten of "
    "different blocks, or from one /64",
    promised="half of the places are for declared machines; no block has all of the others",
)
@pytest.mark.parametrize("crowd", CROWDS)
async def test_invented_sources_leave_places_for_new_sequences(tmp_path: Path, crowd: str) -> None:
    async with crowded(tmp_path, crowd, transfer={"incoming_sequences": 60}) as lab:

        async def say(peer: Peer, _: int) -> None:
            await peer.say(*(begun(lab, number, wire.identifier()) for number in range(64)))

        waited = await lab.attack(say)
        assert await positions(lab) <= 30
        await lab.honest()
        async with session(lab.bystander, lab.address, wire.identifier()) as peer:
            before = await positions(lab)
            await peer.say(begun(lab, 1, wire.identifier()))
            assert await positions(lab) == before + 1
        await lab.stop("TARGET")
        await lab.start("TARGET", transfer={"incoming_sequences": 60})
        await lab.honest()
    print(f"{crowd}: a new session took {waited:.3f} s")


@attack(
    Area.SEQUENCES,
    can="begin a sequence for each way to write a queue's name in upper and lower case",
    promised="all of them are one sequence",
)
async def test_spellings_of_a_queue_are_one_sequence(tmp_path: Path) -> None:
    async with crowded(tmp_path, "one", transfer={"incoming_sequences": 60}) as lab:
        source = wire.identifier()

        async def say(peer: Peer, _: int) -> None:
            names = (spelled(r"private$\tx", number) for number in range(64))
            await peer.say(*(begun(lab, number, source, name) for number, name in enumerate(names)))

        await lab.attack(say)
        assert await positions(lab) == 1
        assert (await lab.target.queue(TRANSACTIONAL)).message_count == 1
        await lab.honest()


@attack(
    Area.HISTORY,
    can="send messages of invented sources until the history of message identifiers has no place for another one, "
    "from ten addresses of different blocks, or of one /64, also after a restart",
    promised="sources of others stay in the history: their messages are delivered once",
)
@pytest.mark.parametrize("crowd", CROWDS)
async def test_invented_sources_push_nobody_out_of_the_history(tmp_path: Path, crowd: str) -> None:
    limits = {"history_sources": 40, "history_sparse_pages": 40}
    async with crowded(tmp_path, crowd, transfer=limits) as lab:
        await lab.stop("FRIEND")
        friend = lab.machines["FRIEND"]
        plain = wire.direct(rf"{lab.direct}\private$\plain")
        honest = {friend.listens: bytes(friend.identifier), lab.bystander: wire.identifier()}

        def letter(source: bytes, number: int) -> bytes:
            return wire.UserMessage(source=source, message_id=number, queue=plain).packet()

        async def once_more() -> None:
            for address, source in honest.items():
                async with session(address, lab.address, source) as peer:
                    await peer.say(letter(source, 7))

        async def say(peer: Peer, _: int) -> None:
            await peer.say(*(letter(wire.identifier(), number) for number in range(1, 65)))

        async def count() -> int:
            return (await lab.target.queue(r".\private$\plain")).message_count

        await once_more()
        waited = await lab.attack(say)
        expected = 2 + 64 * len(lab.strangers)
        await once_more()
        assert await count() == expected
        await lab.stop("TARGET")
        await lab.start("TARGET", transfer=limits)
        await lab.attack(say)
        await once_more()
        assert await count() == expected + 64 * len(lab.strangers)
        await lab.start("FRIEND")
        await lab.honest()
        await eventually(lambda: len(lab.target.network.accepted) <= 4)
    print(f"{crowd}: a new session took {waited:.3f} s")


@attack(
    Area.RESOURCES,
    can="name another administration queue in each message, at addresses where nobody is, from one address, from ten "
    "of different blocks, or from one /64",
    promised="declared machines get the acknowledgments that they ask for",
)
@pytest.mark.parametrize("crowd", CROWDS)
async def test_answers_to_strangers_leave_outgoing_queues_for_answers_to_others(tmp_path: Path, crowd: str) -> None:
    async with crowded(tmp_path, crowd, quotas={"outgoing_queues": 40}) as lab:
        plain = wire.direct(rf"{lab.direct}\private$\plain")

        def asking(number: int) -> bytes:
            admin = wire.direct(rf"TCP:192.0.2.{number % 250}\private$\answers{number}")
            return wire.UserMessage(
                source=wire.identifier(), message_id=number + 1, queue=plain, asks=wire.ACK_ARRIVAL, admin=admin
            ).packet()

        async def say(peer: Peer, stranger: int) -> None:
            await peer.say(*(asking(100 * stranger + number) for number in range(40)))

        waited = await lab.attack(say)
        assert 1 <= len(outgoing(lab.target)) <= 10
        await lab.honest()
        answered = [await lab.acknowledged(name) for name in ("FRIEND", "SEALED")]
        assert answered == [COUNT, COUNT]
    print(f"{crowd}: a new session took {waited:.3f} s")


@contextmanager
def silent_host() -> Iterator[str]:
    """The address of a host that answers no attempt to connect: its queue of new connections is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((address := loopback_address(), PORT))
        listening.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((address, PORT))
        yield address


def attempts(own: str, target: str) -> int:
    """How many connections from one address to another nobody has answered yet. The kernel may list one twice while
    others come and go.
    """
    own, target = (socket.inet_aton(one)[::-1].hex().upper() for one in (own, target))
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return len({row[1] for row in rows if row[3] == "02" and row[1].startswith(own) and row[2].startswith(target)})


ENDLESS = 1000.0
"""Seconds of an attempt to connect that do not end in a test."""


def asking(lab: Crowded, number: int, address: str, source: bytes = b"") -> bytes:
    """A message that asks for an answer to another queue of a host for each number."""
    plain, admin = (
        wire.direct(rf"{place}\private$\{queue}")
        for place, queue in ((lab.direct, "plain"), (f"TCP:{address}", f"answers{number}"))
    )
    return wire.UserMessage(
        source=source or wire.identifier(), message_id=number + 1, queue=plain, asks=wire.ACK_ARRIVAL, admin=admin
    ).packet()


@asynccontextmanager
async def called_at(address: str) -> AsyncIterator[Callable[[], bool]]:
    """Whether the node has called a host, which accepts and says nothing."""
    called: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: called.append(writer), address, PORT)
    async with server:
        yield lambda: bool(called)
        for one in called:
            one.close()


@attack(
    Area.RESOURCES,
    can="as a stranger or with the identity of a machine, have answers sent to many queues of a host that answers no "
    "attempt to connect, also after a restart",
    promised="few attempts to connect for one peer are under way; those for others, also to its queues, do not wait",
)
@pytest.mark.parametrize("kind", [Kind.STRANGER, Kind.DECLARED])
async def test_attempts_to_answer_one_peer_keep_nobody_waiting(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", ENDLESS)
    async with crowded(tmp_path, "one") as lab:
        sender, source, count, most = lab.strangers[0], wire.identifier(), 100, 16
        if kind is Kind.DECLARED:
            await lab.stop("FRIEND")
            sender, source = lab.machines["FRIEND"].listens, bytes(lab.machines["FRIEND"].identifier)
            count, most = 300, 256
        with silent_host() as address:

            async def connects(queue: str) -> None:
                name = rf"DIRECT=TCP:{address}\private$\{queue}"
                before = attempts(lab.address, address)
                await send(lab.target, name, [b"not an answer"], transactional=False)
                await eventually(lambda: attempts(lab.address, address) > before, "it connects at once")

            async with session(sender, lab.address, source) as peer:
                await peer.say(*(asking(lab, number, address, source) for number in range(count)))
            for number in range(2):
                to_answer = [one for one in outgoing(lab.target) if one.payer.kind is kind]
                assert len(to_answer) == count - number
                begun = most + 2 * number  # after the restart, those that were not for the peer connect again
                await eventually(lambda begun=begun: attempts(lab.address, address) >= begun, "some connect")
                await connects(f"own{number}")
                await connects(to_answer[-1].pathname.rpartition("\\")[2])
                assert attempts(lab.address, address) <= begun + 2
                if not number:
                    await lab.stop("TARGET")
                    await lab.start("TARGET")
        if kind is Kind.DECLARED:
            await lab.start("FRIEND")
        await lab.honest()


@attack(
    Area.RESOURCES,
    can="do the same from ten addresses of different blocks, or of one /64",
    promised="an honest stranger of another block is called at once: a part of the attempts is left for the next one",
)
@pytest.mark.parametrize("crowd", ["ten", "network"])
async def test_attempts_to_answer_a_crowd_keep_no_other_stranger_waiting(
    tmp_path: Path, crowd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", ENDLESS)
    async with crowded(tmp_path, crowd) as lab:
        with silent_host() as address:

            async def say(peer: Peer, stranger: int) -> None:
                await peer.say(*(asking(lab, 40 * stranger + number, address) for number in range(40)))

            await lab.attack(say)
            assert len(outgoing(lab.target)) == 40 * len(lab.strangers)
            async with called_at(lab.bystander) as called:
                async with session(lab.bystander, lab.address, wire.identifier()) as peer:
                    await peer.say(asking(lab, 1, lab.bystander))
                await eventually(called, "the node calls")
                assert sum(bool(one.connection_history) for one in outgoing(lab.target)) <= 1, "no other attempt ended"


async def test_a_queue_that_a_stranger_used_first_waits_in_the_line_of_who_uses_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", ENDLESS)
    async with crowded(tmp_path, "one") as lab:
        await lab.stop("FRIEND")
        friend = lab.machines["FRIEND"]
        with silent_host() as address:
            async with called_at(friend.listens) as called:
                async with session(lab.strangers[0], lab.address, wire.identifier()) as peer:
                    await peer.say(*(asking(lab, number, address) for number in range(40)))
                    await peer.say(asking(lab, 1, friend.listens))
                async with session(friend.listens, lab.address, bytes(friend.identifier)) as peer:
                    await peer.say(asking(lab, 1, friend.listens, bytes(friend.identifier)))
                await eventually(called, "the node calls")
                assert sum(bool(one.connection_history) for one in outgoing(lab.target)) <= 1, "no other attempt ended"


async def test_machines_that_are_off_keep_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", ENDLESS)
    async with crowded(tmp_path, "one") as lab:
        with silent_host() as address:
            off = {f"OFF{number}": Machine(f"OFF{number}", ["north"], listens=address) for number in range(40)}
            machines = off | {"LATE": Machine("LATE", ["north"])}
            await lab.stop("TARGET")
            lab.machines.update(machines)
            lab.directory.write()
            await lab.start("TARGET")
            friend = lab.machines["FRIEND"]
            async with (
                called_at(machines["LATE"].listens) as called,
                session(friend.listens, lab.address, bytes(friend.identifier)) as peer,
            ):
                for number, machine in enumerate(machines.values(), 1):
                    await peer.say(
                        wire.UserMessage(
                            source=bytes(friend.identifier), message_id=number, queue=wire.private(1),
                            address=bytes(machine.identifier),
                        ).packet()
                    )  # fmt: skip
                await eventually(called, "the node calls")
                assert sum(bool(one.connection_history) for one in outgoing(lab.target)) <= 1, "no other attempt ended"
