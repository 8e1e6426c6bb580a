"""Asks queue managers over MS-MQMR, and looks at messages over RemoteRead. It never receives, and opens to peek.

A machine's answers are a stranger's: names are cut, vectors and messages are counted, and each machine has a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from mqenterprise.survey.estate import Answer, Estate, Machine, Outgoing, Queue, Sample, shown
from mqenterprise.topology.names import fold
from qmnode.bodies.choice import read_headers, recognise
from qmnode.dcerpc.initiator import BindRefusedError
from qmnode.errors import MessageQueuingError, reason_of
from qmnode.model.api import Access, Seek
from qmnode.model.message import Message
from qmnode.remote_management.client import ManagementClient
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.client_queue import RemoteReadQueue
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_bytes, guid_to_text
from qmnode.structures.names import FormatName, QueueNameError, parse_single_format_name
from qmnode.structures.properties import ConnectedState, QueueLocation, QueueTransactional
from qmnode.structures.properties import ManagementMachineProperty as M
from qmnode.structures.properties import ManagementQueueProperty as Q

T = TypeVar("T")
MOST_QUEUES: Final = 10_000
"""Names of queues that a machine may give."""
_MOST_BYTES: Final = 16 << 20
"""Bytes of messages of one queue that are looked at."""
_AT_ONCE: Final = 8
"""Questions to one machine at a time."""
_OPEN_AT_ONCE: Final = 4
_COUNTS: Final = (
    Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT,
    Q.PROPID_MGMT_QUEUE_BYTES_IN_QUEUE,
    Q.PROPID_MGMT_QUEUE_JOURNAL_MESSAGE_COUNT,
    Q.PROPID_MGMT_QUEUE_BYTES_IN_JOURNAL,
    Q.PROPID_MGMT_QUEUE_XACT,
    Q.PROPID_MGMT_QUEUE_FORMATNAME,
)
_OUTGOING: Final = (
    Q.PROPID_MGMT_QUEUE_LOCATION,
    Q.PROPID_MGMT_QUEUE_STATE,
    Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT,
    Q.PROPID_MGMT_QUEUE_BYTES_IN_QUEUE,
    Q.PROPID_MGMT_QUEUE_NEXTHOPS,
)
SYSTEM_QUEUES: Final = frozenset(
    {
        "admin_queue$",
        "mqis_queue$",
        "msmqtriggersnotifications",
        "notify_queue$",
        "order_queue$",
        "triggers_queue$",
    }
)
"""Private queues that Message Queuing of Windows has for itself."""
_TRIGGERS: Final = frozenset({"msmqtriggersnotifications", "triggers_queue$"})
_TRANSACTIONAL: Final = {
    QueueTransactional.MGMT_QUEUE_TRANSACTIONAL_TYPE.value: True,
    QueueTransactional.MGMT_QUEUE_NOT_TRANSACTIONAL_TYPE.value: False,
}


@dataclass(frozen=True, slots=True)
class Asking:
    """How machines are asked."""

    options: RemoteReadOptions
    timeout: float = 30.0
    """Seconds for one machine, with everything that is asked of it."""
    connect_timeout: float = 5.0
    """Seconds until a machine that takes no connection counts as unavailable."""
    sample: int = 100
    """Messages of each queue that are looked at."""
    concurrency: int = 32
    """Machines that are asked at a time."""
    watch: float = 0.0
    """Seconds between two looks at the numbers of messages; 0 for one look."""


async def ask_all(estate: Estate, asking: Asking) -> None:
    """Ask all machines that have a host, side by side. Those that fail are noted."""
    turns = asyncio.Semaphore(asking.concurrency)

    async def ask(machine: Machine) -> None:
        async with turns:
            began = time.monotonic()
            await _Inquiry(estate, machine, asking).run()
            machine.seconds = round(time.monotonic() - began, 3)

    await asyncio.gather(*(ask(machine) for machine in list(estate.machines.values()) if machine.host))


class _Inquiry:
    """The questions to one machine."""

    def __init__(self, estate: Estate, machine: Machine, asking: Asking) -> None:
        self._estate, self._machine, self._asking = estate, machine, asking
        options = asking.options
        if machine.port is not None:
            options = replace(options, endpoint_mapper_port=machine.port)
        self._options = options
        self._active: frozenset[str] = frozenset()
        """The names of queues that have messages, or that programs have open."""

    async def run(self) -> None:
        machine = self._machine
        try:
            async with asyncio.timeout(self._asking.timeout):
                await self._manage()
                await self._look_at_messages()
        except TimeoutError:
            if machine.answer is Answer.ANSWERED:
                machine.notes.append(f"it was asked for {self._asking.timeout:g} s; the rest was not asked for")
                return
            machine.answer, machine.reason = Answer.UNAVAILABLE, f"no answer within {self._asking.timeout:g} s"
        except MessageQueuingError as error:
            denied = error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
            machine.answer = Answer.DENIED if denied else Answer.UNAVAILABLE
            machine.reason = _reason(error)

    # MS-MQMR

    async def _manage(self) -> None:
        client = await self._connected(
            lambda: ManagementClient.connect(self._machine.host, self._options, self._asking.timeout)
        )
        try:
            await self._see_machine(client)
            queues = [queue for queue in self._estate.of_machine(self._machine) if not _is_system(queue)]
            await _each(queues, lambda queue: self._see_queue(client, queue))
            if self._asking.watch:
                await asyncio.sleep(min(self._asking.watch, self._asking.timeout / 2))
                await _each(queues, lambda queue: self._see_again(client, queue))
        finally:
            client.close()

    async def _connected(self, connect: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._asking.connect_timeout):
                return await connect()
        except TimeoutError:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
                f"no connection within {self._asking.connect_timeout:g} s",
            ) from None

    async def _see_machine(self, client: ManagementClient) -> None:
        machine = self._machine
        active, private = await client.machine(M.PROPID_MGMT_MSMQ_ACTIVEQUEUES, M.PROPID_MGMT_MSMQ_PRIVATEQ)
        machine.answer = Answer.ANSWERED
        with suppress(MessageQueuingError):
            connected, version = await client.machine(M.PROPID_MGMT_MSMQ_CONNECTED, M.PROPID_MGMT_MSMQ_TYPE)
            machine.connected, machine.version = connected == ConnectedState.MSMQ_CONNECTED, shown(version or "")
        with suppress(MessageQueuingError):  # not before Windows Server 2003
            (machine.bytes,) = await client.machine(M.PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES)
        for name in self._bounded(private or (), "private queues"):
            self._found_private(name)
        names = self._bounded(active or (), "active queues")
        self._active = frozenset(map(fold, names))
        await _each(names, lambda name: self._see_active(client, name))
        machine.outgoing.sort(key=lambda one: one.name)
        await self._see_dead_letters(client)

    def _bounded(self, names: Sequence[str], what: str) -> Sequence[str]:
        if len(names) > MOST_QUEUES:
            self._machine.notes.append(f"it names {len(names):,} {what}: only {MOST_QUEUES:,} were looked at")
        return names[:MOST_QUEUES]

    def _found_private(self, path: str) -> None:
        before, _, name = path.rpartition("\\")
        if not name or not fold(before).endswith("private$"):
            self._machine.notes.append(f"it names a private queue that is none: '{shown(path)}'")
        elif fold(name) in SYSTEM_QUEUES:
            self._machine.triggers |= fold(name) in _TRIGGERS
        else:
            self._estate.queue(self._machine.name, name, private=True)

    async def _see_active(self, client: ManagementClient, text: str) -> None:
        """Note an outgoing queue. Queues of the machine itself are asked for by their own names."""
        name = _parsed(text)
        if name is None:
            self._machine.notes.append(f"it names an active queue that is none: '{shown(text)}'")
            return
        try:
            location, state, messages, size, hops = await client.queue(name, *_OUTGOING)
        except MessageQueuingError:
            return  # it may have gone meanwhile
        if location == QueueLocation.MGMT_QUEUE_REMOTE_LOCATION:
            next_hops = tuple(shown(hop) for hop in (hops or ())[:16])
            one = Outgoing(shown(text), shown(state or ""), messages or 0, size or 0, next_hops)
            self._machine.outgoing.append(one)

    async def _see_dead_letters(self, client: ManagementClient) -> None:
        machine = self._machine
        machine.dead_letters = await self._count(client, "DEADLETTER")
        machine.transactional_dead_letters = await self._count(client, "DEADXACT")
        machine.journal_messages = await self._count(client, "JOURNAL")

    async def _count(self, client: ManagementClient, suffix: str) -> int | None:
        names = [f"DIRECT=OS:{self._machine.name}\\SYSTEM$;{suffix}"]
        if self._machine.identifier:
            names.append(f"MACHINE={self._machine.identifier};{suffix}")
        inactive = False
        for text in names:
            name = _parsed(text)
            if name is None:
                continue
            try:
                (count,) = await client.queue(name, Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT)
            except MessageQueuingError as error:
                inactive |= error.code == ErrorCode.MQ_ERROR
                continue
            return int(count or 0)
        return 0 if inactive else None

    async def _see_queue(self, client: ManagementClient, queue: Queue) -> None:
        error: MessageQueuingError | None = None
        for name in _names_of(queue):
            try:
                counts = await client.queue(name, *_COUNTS)
            except MessageQueuingError as found:
                error = found
                continue
            queue.messages, queue.bytes, queue.journal_messages, queue.journal_bytes = (one or 0 for one in counts[:4])
            names = {fold(str(one)) for one in _names_of(queue)} | {fold(counts[5] or "")}
            queue.active = bool(queue.messages) or not self._active.isdisjoint(names)
            queue.learn("transactional", _TRANSACTIONAL.get(counts[4]), "MS-MQMR")
            return
        if error is not None and error.code == ErrorCode.MQ_ERROR:
            # Windows shows only queues with messages or programs that have them open (MS-MQMR 2.2.3.2).
            queue.active, queue.messages, queue.bytes = False, 0, 0
        else:
            queue.problem = "its name cannot be asked for" if error is None else _reason(error)

    async def _see_again(self, client: ManagementClient, queue: Queue) -> None:
        for name in _names_of(queue):
            with suppress(MessageQueuingError):
                (queue.later,) = await client.queue(name, Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT)
                return

    # RemoteRead

    async def _look_at_messages(self) -> None:
        waiting = [queue for queue in self._estate.of_machine(self._machine) if queue.messages and not queue.sample]
        if not waiting or not self._asking.sample:
            return
        try:
            node = await self._connected(lambda: RemoteNode.connect(self._machine.host, self._options))
        except MessageQueuingError as error:
            self._machine.remote_read = _reason(error)
            for queue in waiting:
                queue.not_sampled = self._machine.remote_read
            return
        try:
            await _each(waiting, lambda queue: self._sample(node, queue), _OPEN_AT_ONCE)
        finally:
            node.abort()

    async def _sample(self, node: RemoteNode, queue: Queue) -> None:
        error: MessageQueuingError | None = None
        for name in _names_of(queue):
            try:
                opened = await node.open_queue(name, Access.PEEK)
            except MessageQueuingError as found:
                error = found
                continue
            sample = queue.sample = Sample()
            try:
                await _look(opened, sample, min(self._asking.sample, queue.messages or 0))
            except MessageQueuingError as found:
                sample.incomplete = _reason(found)
            with suppress(MessageQueuingError):
                await opened.close()
            return
        queue.not_sampled = _reason(error) if error is not None else "it has no name that can be opened"


async def _look(queue: RemoteReadQueue, sample: Sample, most: int) -> None:
    """Look at messages: the first half from the front, the other from the end."""
    if not queue.session.takes_lookup_ids:
        await _follow(queue, sample, most)
        return
    seen: set[int] = set()
    front = (most + 1) // 2
    await _walk(queue, sample, seen, front, "first", "next")
    begin = len(seen)
    arrivals: list[float] = []
    if begin == front:
        await _walk(queue, sample, seen, most - front, "last", "prev", arrivals)
    if len(arrivals) > 1 and (span := max(arrivals) - min(arrivals)) > 0:
        sample.arrivals_an_hour = round((len(arrivals) - 1) / span * 3600, 1)
    if len(seen) < most and not sample.incomplete:
        sample.incomplete = "it had fewer messages when they were looked at"


async def _follow(queue: RemoteReadQueue, sample: Sample, most: int) -> None:
    """Look at messages of a queue manager without lookup identifiers (MS-MQQP), from the front."""
    async with queue.cursor() as cursor:
        for number in range(most):
            if sample.bytes > _MOST_BYTES:
                return
            try:
                _note(sample, await (cursor.peek_next(0) if number else cursor.peek(0)))
            except MessageQueuingError as error:
                if error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    return
                raise


async def _walk(
    queue: RemoteReadQueue,
    sample: Sample,
    seen: set[int],
    most: int,
    first: Seek,
    following: Seek,
    arrivals: list[float] | None = None,
) -> None:
    place = 0
    for number in range(most):
        try:
            message = await queue.peek_by_lookup_id(place, following if number else first)
        except MessageQueuingError as error:
            if error.code in (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_IO_TIMEOUT):
                return
            raise
        place = message.lookup_identifier
        if place in seen:
            return
        seen.add(place)
        _note(sample, message)
        if arrivals is not None:
            arrivals.append(message.arrival_time)
        if sample.bytes > _MOST_BYTES:
            sample.incomplete = f"its messages are large: {_MOST_BYTES >> 20} MB were looked at"
            return


def _note(sample: Sample, message: Message) -> None:
    """Count a message, also one that cannot be read."""
    try:
        _count_message(sample, message)
    except (MessageQueuingError, PacketError, ValueError):
        sample.looked_at += 1
        sample.formats["unreadable"] += 1


def _count_message(sample: Sample, message: Message) -> None:
    headers = read_headers(message.extension).format if message.extension else ""
    body = recognise(message.body, message.body_type) or "unknown"
    source, destination = message.source_machine_identifier, message.destination_queue_format_name
    size = len(message.body) + len(message.extension)
    sample.looked_at += 1
    sample.bytes += size
    sample.largest = max(sample.largest, size)
    sample.formats[f"{headers} {body}".strip()] += 1
    sample.senders[guid_to_text(source)] += 1
    sample.addressed_by[kind_of(destination)] += 1
    if message.response_queue_format_name:
        sample.replies_to[kind_of(message.response_queue_format_name)] += 1
    sample.signed += bool(message.authentication_level or message.signature)
    sample.encrypted += bool(message.privacy_level)
    arrived = message.arrival_time
    sample.oldest = arrived if sample.oldest is None else min(sample.oldest, arrived)
    sample.newest = arrived if sample.newest is None else max(sample.newest, arrived)


_KINDS: Final = (
    "DIRECT=OS:",
    "DIRECT=TCP:",
    "DIRECT=HTTPS:",
    "DIRECT=HTTP:",
    "PUBLIC=",
    "PRIVATE=",
    "DL=",
    "MULTICAST=",
)


def kind_of(name: str) -> str:
    """The kind of a format name, such as ``DIRECT=OS`` or ``PUBLIC``."""
    if "," in name:
        return "several"
    upper = name[:16].upper()
    return next((kind.rstrip(":=") for kind in _KINDS if upper.startswith(kind)), "unknown")


def _is_system(queue: Queue) -> bool:
    return queue.private and fold(queue.name) in SYSTEM_QUEUES


def _parsed(text: str) -> FormatName | None:
    try:
        return parse_single_format_name(text)
    except (QueueNameError, ValueError):
        return None


def _names_of(queue: Queue) -> list[FormatName]:
    """The names by which its queue manager may know a queue."""
    texts = [f"PUBLIC={guid_to_text(guid_from_bytes(queue.identifier))}"] if queue.identifier else []
    texts.append(f"DIRECT=OS:{queue.path}")
    return [name for text in texts if (name := _parsed(text)) is not None]


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]], most: int = _AT_ONCE) -> None:
    """Do something with each, so many at a time."""
    left = iter(items)

    async def one_after_another() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(most):
            group.create_task(one_after_another())


_WORDS: Final = {
    ErrorCode.MQ_ERROR_ACCESS_DENIED: "access was denied: give an account with the rights (--user, --password-file)",
    ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION: "it does not offer the interface: it is switched off there, or the "
    "machine is too old",
}


def _reason(error: MessageQueuingError) -> str:
    if isinstance(error.__cause__, BindRefusedError):
        return _WORDS[ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION]
    if error.code == ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE:
        because = shown(reason_of(error.__cause__) if error.__cause__ is not None else error.sentence)
        return f"it does not answer: {because or 'no answer in time'}"
    return _WORDS.get(ErrorCode(error.code)) or shown(error.sentence)


def identifier_text(identifier: bytes) -> str:
    """A GUID of the directory as messages and format names have it; empty without one."""
    return guid_to_text(guid_from_bytes(identifier)) if len(identifier) == 16 else ""
