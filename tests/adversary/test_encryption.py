"""An encrypted message tells nobody whether it decrypted: nobody reads it by asking.

MALLORY has seen an encrypted message from A to B, and sends copies of it to B with other contents, from an address of
his own. B even tells refusals (``send_insecure_nacks``), which it does not by default.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message
from qmnode.security.protector import FAILURES, TRUSTED, IncomingSecurity, Refused
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.user_message import DirectQueueFormatName, PropertyFlags, UserFlags, UserMessage
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import Peer, acceptor, session
from tests.certificates.enterprise import HOUR, QUEUE, Enterprise, two_nodes, user_certificate

BODY = b"a secret of several blocks of the cipher, which nobody else may read"
ARRIVED = "MQMSG_CLASS_ACK_REACH_QUEUE"
ALL_ANSWERS = PropertyFlags.of(PA=1, PR=1, NA=1, NR=1)
QUERIES = 24
FIRST = 1_000_000


@dataclass
class Seen:
    """What MALLORY has: B's address, and a packet that passed him."""

    enterprise: Enterprise
    packet: UserMessage
    queue: str
    """B's queue, by a name that messages are encrypted for."""
    own: str

    def query(self, number: int, flip: dict[int, int], **more: Any) -> bytes:
        """The packet as message ``number`` with bytes of its ciphertext changed. All answers are to come to
        MALLORY's own address."""
        properties = self.packet.message_properties_header
        body = bytearray(properties.message_body)
        for place, mask in flip.items():
            body[place] ^= mask
        header = self.packet.user_header
        name = DirectQueueFormatName(direct_format_name=rf"TCP:{self.own}\private$\answers")
        flags = header.flags & ~UserFlags.AQ.mask | UserFlags.of(AQ=7)
        return self.packet.replace(
            session_header=None,
            user_header=header.replace(message_id=number, admin_queue=name, flags=flags, sent_time=int(time.time())),
            message_properties_header=properties.replace(message_body=bytes(body), flags=ALL_ANSWERS, **more),
        ).write()

    def last_question(self, number: int) -> bytes:
        """A message in clear for no queue, of which B tells: its answer comes behind all others."""
        return wire.UserMessage(
            source=wire.identifier(), message_id=number, queue=wire.direct(rf"TCP:{self.target}\private$\none"),
            admin=wire.direct(rf"TCP:{self.own}\private$\answers"), asks=0x0F, body=b"last",
        ).packet()  # fmt: skip

    @property
    def target(self) -> str:
        return self.enterprise.addresses["B"]


@pytest.fixture
async def seen(tmp_path: Path, own: str) -> AsyncIterator[Seen]:
    async with two_nodes(tmp_path, key_reload_interval=HOUR, public_key_lifetime=3_600_000) as enterprise:
        queue = await enterprise.queue_on_b()
        security = enterprise.b.network.security
        judge, packets = security.admission.judge, []

        async def passes(arrivals: Sequence[Any], now: float) -> Any:
            packets.extend(one.packet for one in arrivals)
            return await judge(arrivals, now)

        security.admission.judge = passes  # type: ignore[method-assign]
        await send_secret(enterprise, queue)
        security.admission.judge = judge  # type: ignore[method-assign]
        yield Seen(enterprise, UserMessage.parse(packets[0]), queue, own)


async def send_secret(enterprise: Enterprise, queue: str) -> None:
    """A and B at work: the message arrives, and A learns of it."""
    async with await enterprise.a.open_queue(queue, Access.SEND) as out:
        outcome, arrived = await enterprise.ends_as(out, Message(BODY, privacy_level=PrivacyLevel.ADVANCED))
    assert arrived is not None and (outcome, arrived.body) == (ARRIVED, BODY)


class Answers:
    """What B sends to MALLORY's address, whichever of its queues it comes from: identifiers of messages."""

    def __init__(self, sessions: asyncio.Queue[Peer]) -> None:
        self._numbers: asyncio.Queue[int] = asyncio.Queue()
        self._sessions = sessions
        self._tasks = [asyncio.create_task(self._accept())]

    async def _accept(self) -> None:
        while True:
            self._tasks.append(asyncio.create_task(self._read(await self._sessions.get())))

    async def _read(self, peer: Peer) -> None:
        with suppress(ConnectionError, TimeoutError):
            while True:
                packet = await peer.next(0)
                peer.acknowledge()
                self._numbers.put_nowait(int.from_bytes(packet.correlation[16:20], "little"))

    async def until(self, last: int) -> Counter[int]:
        """How often each query was answered before this one was."""
        told: Counter[int] = Counter()
        async with asyncio.timeout(60):
            while (number := await self._numbers.get()) != last:
                told[number] += number >= FIRST
        return +told

    def stop(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def answers_to(own: str, identifier: bytes) -> AsyncIterator[Answers]:
    """What comes to an address."""
    async with acceptor(own, identifier) as sessions:
        answers = Answers(sessions)
        try:
            yield answers
        finally:
            answers.stop()


async def answers(seen: Seen, queries: Sequence[bytes], last: int, client: bytes) -> Counter[int]:
    """How often B answered each query, by its message identifier; without the last question's answer."""
    async with answers_to(seen.own, wire.identifier()) as told:
        for query in queries:
            await ask(seen, query, client)
        async with session(seen.own, seen.target, client) as peer:
            await peer.say(seen.last_question(last))
        return await told.until(last)


async def ask(seen: Seen, query: bytes, client: bytes) -> None:
    """Send one query, which ends its session: B has its source at another address."""
    async with session(seen.own, seen.target, client) as peer:
        peer.send(query)
        assert await peer.is_closed()


@attack(
    Area.ENCRYPTION,
    can="send copies of an encrypted message that the attacker has seen, with altered ciphertext, and ask for "
    "acknowledgments",
    promised="nothing shows whether a body decrypted: for altered and unaltered copies, there is no answer, and the "
    "session closes",
)
async def test_answers_do_not_tell_whether_a_body_decrypts(seen: Seen) -> None:
    at = -17  # of the block before the last: it flips a byte of the padding
    numbers = range(1_000_000, 1_000_000 + 2 * QUERIES, 2)
    queries = [
        query for number in numbers for query in (seen.query(number, {}), seen.query(number + 1, {at: 1 + number % 97}))
    ]
    told = await answers(seen, queries, 2_000_000, wire.identifier())
    assert not told
    await send_secret(seen.enterprise, seen.queue)


@attack(
    Area.ENCRYPTION,
    can="send such copies in a session in the name of the message's source, from the attacker's own address",
    promised="a name alone makes nobody a declared peer: there is no answer",
)
async def test_the_name_of_a_declared_peer_brings_no_answers(seen: Seen) -> None:
    client = bytes(seen.enterprise.identifiers["A"])
    queries = [seen.query(1_000_000 + number, {-17: 1} if number % 2 else {}) for number in range(2 * FAILURES + 2)]
    assert not await answers(seen, queries, 2_000_000, client)
    await send_secret(seen.enterprise, seen.queue)


@attack(
    Area.ENCRYPTION,
    can="send altered copies from the address of a declared peer, as a router does that was taken over",
    promised="after three failures under a session key, the node answers no message under this key; the peer's "
    "messages still arrive",
)
async def test_a_declared_peer_gets_no_answers_after_a_few_failures(seen: Seen) -> None:
    enterprise = seen.enterprise
    seen.own = enterprise.addresses["A"]
    client = bytes(enterprise.identifiers["A"])
    source, target = seen.own, seen.target
    await enterprise.nodes.pop("A").close()
    bad = [seen.query(1_000_000 + number, {-17: 1}) for number in range(FAILURES)]
    good = [seen.query(1_000_100 + number, {}) for number in range(4)]
    async with answers_to(source, client) as back, session(source, target, client) as peer:
        await peer.say(seen.query(1_000_099, {}))
        await back.until(1_000_099)  # honest so far: answered
        await peer.say(*bad, *good, seen.last_question(2_000_000))
        told = await back.until(2_000_000)
    assert not set(told) & {1_000_100 + number for number in range(4)}
    queue = await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}")
    assert [one.body for one in await queue.receive_many(10, timeout=60)] == [BODY] * 5


@attack(
    Area.ENCRYPTION,
    can="put an invalid signature on an altered copy, so that the node looks at the body twice",
    promised="a body that does not decrypt and a signature that does not verify are refused with the same message "
    "class",
)
async def test_a_failed_signature_and_a_failed_padding_have_one_answer(seen: Seen) -> None:
    incoming: IncomingSecurity = seen.enterprise.b.network.security.protector._incoming
    header = seen.packet.security_header
    assert header is not None
    signed = seen.packet.replace(
        security_header=header.replace(signature=bytes(128), sender_cert=user_certificate()),
        message_properties_header=seen.packet.message_properties_header.replace(hash_algorithm=0x800C),
    )
    outcomes = []
    for flip in ({}, {-17: 1}):
        body = bytearray(signed.message_properties_header.message_body)
        for place, mask in flip.items():
            body[place] ^= mask
        packet = signed.replace(
            message_properties_header=signed.message_properties_header.replace(message_body=bytes(body))
        )
        outcome = incoming.open(packet.write(), time.time(), TRUSTED)
        assert isinstance(outcome, Refused), outcome
        outcomes.append((outcome.message_class, outcome.silent, outcome.key_missing))
    assert outcomes[0] == outcomes[1]


@attack(
    Area.ENCRYPTION,
    can="measure how long the receiver takes to close the session that delivered an altered copy",
    promised="a few measurements do not show whether the body decrypted",
)
async def test_time_does_not_tell_whether_a_body_decrypts(seen: Seen) -> None:
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * QUERIES):
        good = bool(number % 2)
        query = seen.query(1_000_000 + number, {} if good else {-17: 1})
        async with session(seen.own, seen.target, wire.identifier()) as peer:
            began = time.perf_counter()
            peer.send(query)
            assert await peer.is_closed()
            times[good].append(time.perf_counter() - began)
    good, bad = (statistics.median(times[one]) for one in (True, False))
    print(f"decrypted: {good * 1000:.2f} ms, not: {bad * 1000:.2f} ms")
    assert 0.4 < good / bad < 2.5
