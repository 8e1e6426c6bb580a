"""Heartbeats through applications: each probe sends a marked message to a queue, and says whether it came through.

The acknowledgments of the message, or the answer to it, come to a temporary queue of the probe, whose address is in its
messages alone. A message that goes over declared routing links is traced, and the reports on it name the machines that
it passed (MS-MQQB 3.1.5.8.9).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.administration.tracing import mark_of, next_hop_of
from qmnode.errors import MessageQueuingError
from qmnode.model import temporary_queues
from qmnode.model.api import Access, Share
from qmnode.model.message import Acknowledgment, Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.waiting_reasons import REFUSED, Waiting, WaitReason
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import QueueAccess

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager
    from qmnode.security.principals import Principals
    from qmnode.settings.probes import ProbeSettings

log = structlog.get_logger(__name__)

_PREFIX: Final = "heartbeats$"
_QUOTA: Final = 64
"""Kilobytes of acknowledgments and answers that may wait for a probe."""
_AT_ONCE: Final = 64
_ACKNOWLEDGED: Final = (
    Acknowledgment.POSITIVE_ARRIVAL
    | Acknowledgment.POSITIVE_RECEIVE
    | Acknowledgment.NEGATIVE_ARRIVAL
    | Acknowledgment.NEGATIVE_RECEIVE
)
_REPORTS: Final = 1_000
"""The latest messages of the queue for reports, among which those of a heartbeat are."""
_LATE: Final = frozenset(
    {MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT, MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT}
)
_LEFT: Final = 10
"""Seconds after the deadline until a missed message expires. Until then the node can say why it waits."""
_QUIET: Final = 3600.0
"""Seconds of a wait for acknowledgments."""


class Missed(Exception):
    """A heartbeat that did not come through: the reason, the sentence, and the step to take."""

    def __init__(self, reason: str, sentence: str, step: str = "") -> None:
        super().__init__(sentence)
        self.reason, self.sentence, self.step = reason, sentence, step


@dataclass(slots=True)
class State:
    """The result of a probe."""

    name: str
    queue: str
    expects: str
    healthy: bool | None = None
    """Whether the last heartbeat came through; None before the first has ended."""
    reason: str = ""
    """A reason for waiting, or ``link``; empty if it came through."""
    sentence: str = ""
    step: str = ""
    since: float = 0.0
    """When it first was so, in seconds since 1970 (UTC)."""
    last_success: float = 0.0
    seconds: float = 0.0
    """From the sending of the last heartbeat that came through to its acknowledgment or answer."""
    sent: int = 0
    missed: int = 0


class Probes:
    """The probes of a node, while they run."""

    def __init__(self, manager: QueueManager, principals: Principals | None) -> None:
        self._manager = manager
        self._principals = principals
        self._running: dict[str, _Probe] = {}
        self._changing = asyncio.Lock()
        manager.probes = self.states

    def states(self) -> tuple[dict[str, Any], ...]:
        """The results, for ``NodeStatus.probes``."""
        return tuple(asdict(one.state) for one in self._running.values())

    async def start(self, settings: Mapping[str, ProbeSettings]) -> None:
        """Begin to send heartbeats."""
        await temporary_queues.clear(self._manager, _PREFIX)
        await self.apply(settings)

    async def apply(self, settings: Mapping[str, ProbeSettings]) -> None:
        """Let exactly these run. Those whose settings stay go on."""
        async with self._changing:
            for name, one in list(self._running.items()):
                if settings.get(name) != one.settings:
                    del self._running[name]
                    await one.stop()
            for name, wanted in settings.items():
                if name not in self._running:
                    self._running[name] = one = _Probe(self._manager, self._principals, name, wanted)
                    await one.start()
            self._running = {name: self._running[name] for name in settings}

    async def stop(self) -> None:
        """End all heartbeats, and drop their warnings."""
        await self.apply({})


class _Probe:
    """One probe. Messages in its queue are removed at once, and believed if they are about the heartbeat under way."""

    def __init__(
        self, manager: QueueManager, principals: Principals | None, name: str, settings: ProbeSettings
    ) -> None:
        self._manager, self._principals, self._name, self.settings = manager, principals, name, settings
        self.state = State(name, settings.queue, settings.expects)
        self._queue = ""
        """The path name of the queue for acknowledgments and answers."""
        self._under_way = b""
        """The identifier of the heartbeat that is under way; empty between two."""
        self._heard: set[MessageClass] = set()
        """The classes of the messages about it."""
        self._news = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to send heartbeats."""
        self._queue = await temporary_queues.create(self._manager, _PREFIX, f"Answers to probe {self._name}", _QUOTA)
        begin = asyncio.get_running_loop().create_task
        self._tasks = [
            begin(self._hear(), name=f"answers to probe {self._name}"), begin(self._run(), name=f"probe {self._name}")
        ]  # fmt: skip

    async def stop(self) -> None:
        """End the heartbeats, and drop their warning."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._manager.troubles.pop(f"probe {self._name}", None)
        await temporary_queues.delete(self._manager, self._queue)

    def _address(self) -> str:
        """The name by which others send to the queue."""
        manager = self._manager
        network, queue = manager.context.network, manager.names.find(self._queue)
        if network is not None and network.sites_of(manager.identifier):
            return f"PRIVATE={guid_to_text(manager.identifier)}\\{queue.private_queue_number:08x}"
        return f"DIRECT=OS:{queue.pathname}"

    async def _hear(self) -> None:
        """Receive acknowledgments and answers, as long as the probe runs."""
        async with await self._manager.open_queue(f"DIRECT=OS:{self._queue}") as queue:
            while True:
                try:
                    messages = await queue.receive_many(_AT_ONCE, _QUIET)
                except MessageQueuingError as error:
                    if error.code is not ErrorCode.MQ_ERROR_IO_TIMEOUT:
                        log.warning("the queue for heartbeats cannot be read", reason=error.sentence)
                        await asyncio.sleep(1)
                    continue
                believed = [one for one in messages if self._under_way == one.correlation_identifier != b""]
                if believed:
                    async with self._news:
                        self._heard.update(MessageClass(one.message_class) for one in believed)
                        self._news.notify_all()

    async def _run(self) -> None:
        settings = self.settings
        await asyncio.sleep(random.uniform(0, min(1.0, settings.period / 10)))  # noqa: S311 (not all at once)
        while True:
            began, sent, missed = time.monotonic(), self._manager.clock.time(), None
            try:
                await self._beat(settings)
            except Missed as error:
                missed = error
            except MessageQueuingError as error:
                denied = error.code is ErrorCode.MQ_ERROR_ACCESS_DENIED
                missed = Missed(WaitReason.ACCESS if denied else WaitReason.REFUSED, error.sentence)
            self._ended(missed, time.monotonic() - began)
            if (recorder := self._manager.recorder) is not None:
                reason, sentence = (missed.reason, missed.sentence) if missed else ("", "")
                recorder.heartbeat(self._name, settings.queue, sent, reason, sentence)
            await asyncio.sleep(max(0.0, settings.period - (time.monotonic() - began)))

    def _ended(self, missed: Missed | None, seconds: float) -> None:
        state, now, trouble = self.state, self._manager.clock.time(), f"probe {self._name}"
        healthy, reason = missed is None, missed.reason if missed is not None else ""
        if (state.healthy, state.reason) != (healthy, reason):
            state.since = now
            words = str(missed or "")
            log.log(20 if healthy else 30, "a probe changed", probe=self._name, healthy=healthy, reason=words)
        state.healthy, state.reason = healthy, reason
        if missed is None:
            state.sentence = state.step = ""
            state.last_success, state.seconds = now, seconds
            self._manager.troubles.pop(trouble, None)
            return
        state.missed += 1
        state.sentence, state.step = missed.sentence, missed.step
        self._manager.troubles[trouble] = f"{missed.sentence}; {missed.step}" if missed.step else missed.sentence

    async def _beat(self, settings: ProbeSettings) -> None:
        """Send one heartbeat and wait until it came through. Raises Missed."""
        local = self._local(settings)
        if local is not None:
            await self._check_access(local)
        manager, name, address = self._manager, self._name, self._address()
        message = Message(
            f"Heartbeat {name} of {manager.computer_name}".encode(),
            label=f"heartbeat {name}",
            acknowledgements_requested=_ACKNOWLEDGED,
            administration_queue_format_name=address,
            time_to_reach_queue=int(settings.deadline) + _LEFT,
            time_to_be_received=int(settings.deadline) + _LEFT,
        )
        if settings.expects == "answered":
            message.response_queue_format_name = address
        if settings.links:
            message.tracing_requested = True
        until = asyncio.get_running_loop().time() + settings.deadline
        queue = await manager.opening.open_queue(settings.queue, Access.SEND, Share.DENY_NONE, None)
        assert isinstance(queue, OpenQueueDescriptor)
        async with queue:
            # It may be received, and answered, before it is on disk.
            await queue.send_many([message], "single" if settings.transactional else None, self._begins)
        self.state.sent += 1
        identifier = self._under_way
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until), self._news:
                    while not self._came_through(settings):
                        await self._news.wait()
            if not self._came_through(settings):
                raise await self._late(settings, local)
        finally:
            self._under_way = b""
        if settings.links:
            await self._check_links(identifier, settings, until)

    def _begins(self, identifiers: list[bytes]) -> None:
        (self._under_way,) = identifiers
        self._heard.clear()

    def _local(self, settings: ProbeSettings) -> Queue | None:
        name, names = parse_single_format_name(settings.queue), self._manager.names
        return names.local(name) if names.is_local(name) else None

    async def _check_access(self, queue: Queue) -> None:
        """A probe has no right that the access list of the queue does not give to the account of the node."""
        if self._principals is None:
            return
        principal = await self._principals.of_local_user(os.geteuid(), os.getgroups())
        if not GuardedQueueManager(self._manager, principal).may(queue, QueueAccess.MQSEC_WRITE_MESSAGE):
            raise Missed(
                WaitReason.ACCESS, f"{queue.pathname} does not let {principal}, the account of the node, send",
                f"`qmnode queue acl allow '{queue.pathname}' {principal.user} send`",
            )  # fmt: skip

    def _came_through(self, settings: ProbeSettings) -> bool:
        """Whether it was received, or answered. Raises Missed for a refusal."""
        for kind in self._heard:
            if kind in REFUSED:
                reason, words = REFUSED[kind]
                raise Missed(reason, f"the machine of {settings.queue} {words}")
            if kind not in _LATE and kind >= MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q:
                raise Missed(WaitReason.REFUSED, f"{settings.queue}: {kind.name}")
        wanted = MessageClass.MQMSG_CLASS_NORMAL if settings.expects == "answered" else _RECEIVED
        return wanted in self._heard

    async def _late(self, settings: ProbeSettings, local: Queue | None) -> Missed:
        heard, within = self._heard, f"within {settings.deadline:g} s"
        if _RECEIVED in heard:
            sentence = f"the receiver of {settings.queue} took it, and answered nothing {within}"
            return Missed(WaitReason.RECEIVER, sentence, "look at the program that receives from the queue")
        if MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE in heard or local is not None:
            found = Waiting(WaitReason.RECEIVER, f"nobody received it from {settings.queue} {within}", settings.queue)
            return Missed(found.reason, found.sentence, found.step)
        for one in await self._manager.waiting():
            if not one.queue or one.queue.casefold() == settings.queue.casefold():
                return Missed(one.reason, one.sentence, one.step)
        sentence = f"no acknowledgment of its arrival in {settings.queue} came {within}"
        return Missed(WaitReason.WINDOW, sentence, "`mqenterprise trace --label 'heartbeat *'` shows where they are")

    # Routing links

    async def _check_links(self, identifier: bytes, settings: ProbeSettings, until: float) -> None:
        """Raise Missed unless the reports on the message show a way over the declared links, and no others."""
        wanted = {frozenset(site.lower() for site in link) for link in settings.links}
        while True:
            hops = await self._reports(mark_of(identifier))
            complete = any(not next_hop for _, _, next_hop in hops)
            if complete or asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(0.2)
        if not complete:
            raise Missed(
                "link", "it was received, and its reports did not say over which links it went",
                "see that tracing.report_queue is a public queue of this node, with the access to it",
            )  # fmt: skip
        network = self._manager.context.network
        machines = [machine for _, machine, _ in sorted(hops)]
        sites = [network.sites_of(machine) if network is not None else set() for machine in machines]
        crossed = set()
        for near, far in pairwise(sites):
            if near & far:
                continue
            ends = [frozenset((one, other)) for one in near for other in far]
            crossed.add(next((end for end in ends if end in wanted), ends[0] if ends else frozenset()))
        if crossed != wanted:
            raise Missed(
                "link", f"it went over the routing links {_words(crossed)}; declared are {_words(wanted)}",
                "`mqenterprise route explain --now` shows the way by the directory",
            )  # fmt: skip

    async def _reports(self, mark: str) -> list[tuple[int, Guid, str]]:
        """The reports on a message: the hops before, the reporting machine, and the address that it sent it to."""
        manager = self._manager
        found: list[tuple[int, Guid, str]] = []
        name = f"PUBLIC={guid_to_text(manager.context.traced.report_queue)}"
        async with await manager.open_queue(name, Access.PEEK) as queue:
            lookup = 0
            for _ in range(_REPORTS):
                try:
                    report = await queue.peek_by_lookup_id(lookup, "prev" if lookup else "last")
                except MessageQueuingError:
                    break
                lookup = report.lookup_identifier
                if report.message_class == MessageClass.MQMSG_CLASS_REPORT and report.label[:13] == mark:
                    next_hop, hops = next_hop_of(report)
                    found.append((2 * hops + (not next_hop), Guid(report.identifier[:16]), next_hop))
        return found


def _words(links: set[frozenset[str]]) -> str:
    return ", ".join(sorted("-".join(sorted(link)) for link in links)) or "none"


_RECEIVED: Final = MessageClass.MQMSG_CLASS_ACK_RECEIVE
