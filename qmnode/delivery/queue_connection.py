"""The connection of one outgoing queue to its next hop: resolved, dialled, retried, and shown to operators."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from qmnode.delivery.neighbours import move_to_connector
from qmnode.delivery.topology import ConnectorHere, DirectoryResolver, ResolutionError
from qmnode.errors import MessageQueuingError
from qmnode.model.queue import ConnectionAttempt, OutgoingQueue
from qmnode.model.waiting_reasons import Cause, WaitReason
from qmnode.protocol.commands import CloseReason
from qmnode.protocol.connection import (
    HistoryEntry,
    NextHop,
    OpenConnection,
    OutgoingConnection,
    ResolveDestination,
    SendPing,
)
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role
from qmnode.shares import OWN, Kind, Party, Turns, networks_of
from qmnode.structures.enumerations import ConnectionStatus, MessageClass, OutgoingQueueState
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import PublicFormatName, parse_single_format_name
from qmnode.transport.connection import Alarm, Connection, DialingError, Handler, is_reachable
from qmnode.transport.ping import ping

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.delivery.peer_tls import PeerTls


log = structlog.get_logger(__name__)

_SUSPICIOUS_HOPS: Final = 10
"""More hops than a message takes in an enterprise whose queue managers agree on the topology."""
_DRAINING: Final = 1.0
"""Seconds for which a session that is being replaced may wait for its last acknowledgments."""
_CLOSED: Final = {
    CloseReason.REFUSED: (
        WaitReason.REFUSED,
        "refuses the session: it is another machine, is offline, has no room, or demands TLS",
    ),
    CloseReason.INITIALIZATION_TIMEOUT: (
        WaitReason.HOST_DOWN,
        "takes connections, but its queue manager does not answer",
    ),
    CloseReason.PROTOCOL_ERROR: (WaitReason.REFUSED, "broke the protocol"),
    CloseReason.UNANSWERED: (WaitReason.WINDOW, "took messages and acknowledged none of them"),
}
"""Reasons for closing that say why messages wait."""
_LOOK: Final = 0.05
"""Seconds between two looks whether the former owner of a queue has acknowledged everything."""


class Undecided(NamedTuple):
    """Messages of a queue that were sent, and of which nobody knows whether they arrived."""

    at: Guid
    """The queue manager that may have them; null if there are none."""
    is_unsent: bool
    """Whether some of them, which another session or another process has sent, are not sent again yet."""
    progress: tuple[int, ...]
    """Differs whenever the outcome of some has become known."""


class QueueConnection:
    """Keeps an outgoing queue connected while it has messages."""

    def __init__(
        self,
        network: "Network",
        queue: OutgoingQueue,
        handle: Handler,
        schedule: Callable[[], object],
        undecided: Callable[[], Undecided],
    ) -> None:
        """``handle`` processes the commands of sessions; ``schedule`` processes the queue after the current step;
        ``undecided`` returns the messages without an outcome.
        """
        self.connection: Connection | None = None
        self._held = False
        self.draining = False
        """Whether nothing new may be sent on the connection, because messages are to take another path."""
        self.owner = ZERO_GUID
        """The queue manager that messages of a public queue are addressed to, when it is known. It is the one before
        while that may have messages without an outcome: only it recognises them when they are sent again.
        """
        self._owner_now = ZERO_GUID
        """The queue manager that the directory names as the owner of a public queue."""
        self._undecided = undecided
        self._progress: tuple[int, ...] | None = None
        self._patience_ends = 0.0
        """When the owner before is given up, if ``_progress`` stays as it is."""
        self._leaving: asyncio.Task[None] | None = None
        self._left: Connection | None = None
        self._network = network
        self._queue = queue
        self._handle = handle
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._way = OutgoingConnection(queue.pathname, network.state.parameters, ping=network.settings.ping)
        self._alarm = Alarm(self._loop, self._expired)
        self._task: asyncio.Task[None] | None = None
        self._attempt: Coroutine[None, None, None] | None = None
        """The attempt of a queue that one peer alone uses, which waits for its turn."""
        self._payer = OWN
        """The peer whose turn it waits for."""
        self._review = Alarm(self._loop, self._begin_review)
        self._reviewing: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self.failure: Cause | None = None
        """Why the last attempt to get a session failed; None while there is a session, and before any failed."""
        self.failed_hop: NextHop | None = None
        """The next hop that the last failed attempt was for; None if there was none."""
        self.failing_since = 0.0
        """When attempts began to fail for this reason, in seconds since 1970 (UTC)."""
        self.deferred = ""
        """Why messages cannot be encrypted now; they may be later."""
        self.deferred_since = 0.0
        self.state_since = network.manager.clock.time()
        """When the queue came into its state."""
        self._shown: HistoryEntry | None = None
        """The last entry of the history that operators see."""
        self._recorded = OutgoingQueueState.INACTIVE, ""
        self._paused = queue.state is OutgoingQueueState.ON_HOLD
        if self._paused or not network.manager.connection_active:
            self._way.pause(*self._now())

    @property
    def hop(self) -> NextHop | None:
        """The next hop that is in use or being tried."""
        return self._way.hop

    @property
    def next_try(self) -> float | None:
        """When the next attempt begins by itself, by the clock of the event loop."""
        timer = self._way.next_timer()
        return None if timer is None else timer[1]

    def defer(self, sentence: str) -> None:
        """Note why messages cannot be encrypted now; with an empty sentence, that they can."""
        if bool(sentence) is not bool(self.deferred):
            self.deferred_since = self._network.manager.clock.time()
        self.deferred = sentence

    def _failed(self, cause: Cause, line: str = "") -> None:
        """Note why there is no session. Each cause is logged once in a row: many queues may try again and again."""
        if line and cause != self.failure:
            log.info(line, queue=self._queue.pathname, reason=cause.words)
        if self.failure is None or self.failure.reason is not cause.reason:
            self.failing_since = self._network.manager.clock.time()
        self.failure, self.failed_hop = cause, self.hop

    def way_out(self) -> "tuple[Connection, NextHop, Callable[[], object]] | None":
        """The session that is open, its next hop, and what opens another in its place; None if there is none."""
        connection, hop = self.connection, self.hop
        if connection is None or hop is None or not connection.established:
            return None
        return connection, hop, self.leave

    def _now(self) -> tuple[float, int]:
        return self._loop.time(), self._network.time()

    # Events of the queue and its session

    def messages_available(self) -> None:
        """The queue has messages and no session."""
        payer = self._queue.payer
        if self._attempt is not None and payer != self._payer:
            if payer == OWN:
                self.begin()
            else:
                self._wait()
        self._way.messages_available(*self._now())
        self._work()

    def status_changed(self, status: ConnectionStatus) -> None:
        """The session reports its new status."""
        self._way.status_changed(status, self._network.time())
        self._show_history()

    def message_failed(self, error: int, sentence: str) -> None:
        """Record the HRESULT of a failed encryption in the connection history for operators (3.1.7.1.5.1)."""
        self._queue.refused(MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT, self.owner, detail=sentence)
        self._way.status_changed(ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, self._network.time(), error)
        self._show_history()

    def opened(self) -> None:
        """The session is established."""
        if self.connection is not None and self.hop is not None:
            self._network.peer_tls.reached(self.connection, self.hop)
        self.failure = None
        self._way.session_opened(*self._now())
        self._work()
        self._leave_former_owner()
        if self.hop != self._way.next_hops[0]:
            self._review_later()

    def closed(self, reason: CloseReason) -> None:
        """The session has closed."""
        connection, self.connection = self.connection, None
        hop = self.hop
        if reason is CloseReason.DISCONNECTED and self._turns(connection, hop):
            return
        if (
            connection is not None
            and (cause := _cause_of_close(reason, connection, self._network.peer_tls)) is not None
        ):
            self._failed(cause)
        self._review.stop()
        self._way.session_closed(reason, self._queue.message_count > 0, *self._now())
        if self._held:
            self._held = self.draining = False
            self._way.forget_hops()
        elif self.draining:
            self.draining = False
            self._way.reroute(*self._now())
        self._work()

    def _turns(self, connection: Connection | None, hop: NextHop | None) -> bool:
        """Try the same hop with TLS instead of without, or the other way round, if that is due."""
        if connection is None or hop is None or not self._network.peer_tls.turns(connection, hop):
            return False
        self._start(self._open(hop, pinged=False))
        return True

    def pause(self) -> None:
        """Pause Queue, 3.1.7.13: send no messages until it is resumed."""
        self._paused = True
        if self.connection is not None:
            self.connection.session.pause(self._loop.time())
            self.connection.process()
        self._way.pause(*self._now())
        self._work()
        self._schedule()

    def resume(self) -> None:
        """Resume Queue, 3.1.7.14: send waiting messages again."""
        self._paused = False
        if not self._network.manager.connection_active:
            return
        if self.connection is not None:
            self.connection.session.resume()
        self._way.resume(self._queue.message_count > 0, *self._now())
        self._work()
        self._schedule()

    def disconnect(self) -> None:
        """Take Offline, MS-MQDMPR 3.1.4.12."""
        self._way.pause(*self._now())
        self._give_up()
        self._work()

    def connect(self) -> None:
        """Bring Online, MS-MQDMPR 3.1.4.13."""
        if not self._paused:
            self.resume()

    def stop(self) -> None:
        """Close everything: the node stops, or the queue was deleted."""
        self._alarm.stop()
        self._review.stop()
        if self._reviewing is not None:
            self._reviewing.cancel()
        if self._learning is not None:
            self._learning.cancel()
        if self._leaving is not None:
            self._leaving.cancel()
        self._give_up()
        self._record(OutgoingQueueState.INACTIVE)

    # Changes of the path

    def reroute(self) -> None:
        """Apply a changed topology. An open session stays if its hop is still the best that answers."""
        self._way.reroute(*self._now())
        self._work()
        self._begin_review()

    def is_circle(self, sender: Guid, hops: int) -> bool:
        """Whether a message was forwarded by its own next hop, or has taken suspiciously many hops."""
        hop = self.hop
        return hops >= _SUSPICIOUS_HOPS or (hop is not None and hop.identifier == sender)

    def destination_changed(self) -> None:
        """Learn the properties again: the queue has changed in the directory. An answer from before may be old."""
        if self._learning is not None:
            self._learning.cancel()
            self._learning = None
        if self.connection is not None:
            self._learn_properties_soon(self._queue.pathname)

    def rest(self, hops: int) -> None:
        """Pause sending because a message loops: queue managers disagree about the path.

        While a change of the directory reaches one queue manager after the other, messages would loop and reach the hop
        limit within milliseconds. So they rest here for a while, and the path is resolved anew.
        """
        connection = self.connection
        self._network.read_topology_soon()
        if connection is not None and not self._held:
            log.info("a message comes back, or from far: it rests", queue=self._queue.pathname, hops=hops)
            self._held = True
            self._drain(connection)

    def _review_later(self) -> None:
        self._review.set(self._loop.time() + self._network.state.parameters.better_hop_interval)

    def _begin_review(self) -> None:
        hop = self.hop
        under_way = self._reviewing is not None and not self._reviewing.done()
        if under_way or self._is_leaving() or self.connection is None or hop is None or hop.identifier == ZERO_GUID:
            return
        self._reviewing = self._loop.create_task(self._find_better(self.connection, hop))
        self._reviewing.add_done_callback(report_failure)

    async def _find_better(self, connection: Connection, hop: NextHop) -> None:
        """Leave this hop if it no longer leads to the destination, or if a better one accepts connections."""
        try:
            await self._look_for_owner()
            if self._is_leaving():
                return
            hops = await self._network.resolver.next_hops(self._queue.pathname)
        except (ResolutionError, ConnectorHere) as error:
            log.info("no better next hop", queue=self._queue.pathname, reason=str(error))
            return
        better = list(takewhile(lambda one: one.identifier != hop.identifier, hops))
        # The machine may have another address now, while the session to the old one is still open.
        leave = all(one.identifier != hop.identifier or one.address != hop.address for one in hops)
        for one in () if leave else better:
            settings = self._network.settings
            leave = await is_reachable(one.address, settings.port, settings.address)
            if leave:
                break
        if connection is not self.connection:
            return
        if leave:
            log.debug("another next hop", queue=self._queue.pathname, from_address=connection.address)
            self._drain(connection)
        elif better:
            self._review_later()

    def leave(self) -> None:
        """Open another session in the place of this one, which is of the wrong kind now."""
        if self.connection is not None and not self.draining:
            self._drain(self.connection)

    def _drain(self, connection: Connection) -> None:
        """Close once messages under way are acknowledged, or soon anyway: the destination recognises duplicates."""
        self.draining = True
        self._loop.call_later(_DRAINING, connection.close)
        self.acknowledged()

    def acknowledged(self) -> None:
        """Messages were acknowledged: continue draining."""
        connection = self.connection
        if connection is None or not self.draining or self._is_leaving():
            return
        if not connection.session.in_flight():
            self._loop.call_soon(connection.close)

    # The owner of a queue that has moved

    async def _look_for_owner(self) -> None:
        """Ask the directory who owns the queue, and leave the session if that is no longer its owner."""
        owner = await self._network.protection.owner(self._queue.pathname, anew=True)
        if owner not in (None, ZERO_GUID):
            self._owner_now = owner
            self._leave_former_owner()

    def _leave_former_owner(self) -> None:
        connection = self.connection
        if self._owner_now == self.owner or self._is_leaving() or connection is None or not connection.established:
            return
        log.info("the queue has moved", queue=self._queue.pathname, owner=guid_to_text(self._owner_now))
        self._left = connection
        self._leaving = self._loop.create_task(self._leave_when_decided(connection))
        self._leaving.add_done_callback(report_failure)

    def _is_leaving(self) -> bool:
        return self._leaving is not None and not self._leaving.done() and self._left is self.connection

    async def _leave_when_decided(self, connection: Connection) -> None:
        """Send nothing new, and close when the former owner has acknowledged everything: the present one could not
        recognise what the former one has.
        """
        while connection is self.connection:
            undecided = self._undecided()
            self.draining = not undecided.is_unsent
            is_decided = undecided.at == ZERO_GUID and not connection.session.in_flight()
            if (self.draining and is_decided) or not self._is_worth_waiting(undecided):
                connection.close()
                return
            await asyncio.sleep(_LOOK)

    def _is_worth_waiting(self, undecided: Undecided) -> bool:
        """Whether the former owner may still answer: a while after its last acknowledgment, nobody waits for it."""
        now = self._loop.time()
        if undecided.progress != self._progress or self._paused:
            self._progress = undecided.progress
            self._patience_ends = now + 2 * self._network.state.parameters.maximum_order_ack_delay
        return now < self._patience_ends

    async def _hops(self, format_name: str) -> list[NextHop]:
        """The next hops to the owner, or to the one before it while that may have messages without an outcome."""
        resolver = self._network.resolver
        owner = await self._network.protection.owner(format_name, anew=True) or ZERO_GUID
        undecided = self._undecided()
        self._owner_now = owner
        if (
            isinstance(resolver, DirectoryResolver)
            and ZERO_GUID not in (owner, undecided.at)
            and undecided.at != owner
            and self._is_worth_waiting(undecided)
        ):
            self.owner = undecided.at
            return await resolver.hops_to(undecided.at)
        self._progress = None
        self.owner = owner
        return await resolver.next_hops(format_name)

    # The state machine

    def _expired(self) -> None:
        self._way.expire(*self._now())
        self._work()

    def _work(self) -> None:
        """Run the actions of the state machine, and show operators its state."""
        for command in self._way.commands():
            match command:
                case ResolveDestination(format_name):
                    self._start(self._resolve(format_name))
                case SendPing(hop):
                    self._start(self._ping(hop))
                case OpenConnection(hop, pinged):
                    self._start(self._open(hop, pinged))
        if self._network.running:
            timer = self._way.next_timer()
            self._alarm.set(None if timer is None else timer[1])
        offline = not self._paused and self._way.queue_state is OutgoingQueueState.ON_HOLD
        state = self._queue.state = OutgoingQueueState.DISCONNECTED if offline else self._way.queue_state
        if state is OutgoingQueueState.INACTIVE:
            self.failure = None  # nothing is left that waits
        if state is not self._recorded[0]:
            self.state_since = self._network.manager.clock.time()
        self._queue.next_hops = tuple(hop.address for hop in self._way.next_hops)
        self._show_history()
        self._record(state)

    def _record(self, state: OutgoingQueueState) -> None:
        """Record the state, and why there is no session, when one of them changes."""
        recorder, waiting = self._queue.recorder, None
        if recorder is not None and state is OutgoingQueueState.DISCONNECTED:
            waiting = self._queue.waits_for
        reason = waiting.reason.value if waiting is not None else ""
        if (state, reason) == self._recorded:
            return
        self._recorded = state, reason
        if recorder is not None:
            peer = "" if self._way.hop is None else self._way.hop.address
            sentence = waiting.sentence if waiting is not None else ""
            recorder.queue_state(self._queue, state.value, peer, reason, sentence)

    def _give_up(self) -> None:
        if self._attempt is not None:
            self._attempt.close()
            self._attempt = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.connection is not None:
            self.connection.close()

    def _show_history(self) -> None:
        history = self._way.history
        if history and history[-1] is not self._shown:
            self._shown = history[-1]
            self._queue.connection_history = [
                ConnectionAttempt(one.status, one.time, one.error, (one.address,)) for one in history
            ]

    def _start(self, work: Coroutine[None, None, None]) -> None:
        if not self._network.running:
            work.close()
        elif self._queue.payer != OWN:
            former, self._attempt = self._attempt, work
            if former is None:
                self._wait()
            else:  # the queue was paused and resumed: it has its place
                former.close()
        else:
            self._task = self._loop.create_task(work)
            self._task.add_done_callback(report_failure)

    def _wait(self) -> None:
        """Let the attempt wait for the turn of who uses the queue now."""
        self._payer = self._queue.payer
        self._network.attempts.wait(self._payer, self)

    def begin(self) -> "asyncio.Task[None] | None":
        """Begin the attempt that waits; nothing if it was given up."""
        work, self._attempt = self._attempt, None
        if work is None:
            return None
        if not self._network.running:
            work.close()
            return None
        payer = self._queue.payer
        if payer != OWN:
            work = self._network.manager.context.shares.turns.steps(payer.name, work)
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(report_failure)
        return self._task

    async def _resolve(self, format_name: str) -> None:
        try:
            hops = await self._hops(format_name)
        except ConnectorHere as connector:
            move_to_connector(self._queue, connector.site)
            self._network.sequence_ended(self._queue)
            self._way.ends_here(*self._now())
        except ResolutionError as error:
            self._failed(error.cause, "no next hop")
            self._way.resolution_failed(error.status, error.error, *self._now())
        else:
            self._way.destination_resolved(hops, *self._now())
            self._learn_properties_soon(format_name)
        self._work()

    def _learn_properties_soon(self, format_name: str) -> None:
        """Read in the background what a public queue says. Others have no base priority (MS-MQMQ 2.3.1.6)."""
        name = parse_single_format_name(format_name)
        under_way = self._learning is not None and not self._learning.done()
        if isinstance(name, PublicFormatName) and not under_way:
            self._learning = self._loop.create_task(self._learn_properties(name))
            self._learning.add_done_callback(report_failure)

    async def _learn_properties(self, name: PublicFormatName) -> None:
        manager, queue = self._network.manager, self._queue
        await self._look_for_owner()
        try:
            differing = queue.differing(await manager.published.of_outgoing(name))
        except MessageQueuingError as error:
            log.info("the base priority stays as it was", queue=queue.pathname, reason=str(error))
            return
        if differing and not queue.deleted:
            queue.set_properties(**differing)
            manager.store.put_queue(queue.queue_id, queue.definition())
            self._schedule()

    async def _ping(self, hop: NextHop) -> None:
        network, settings = self._network, self._network.settings
        accepted = await ping(network.manager.identifier, hop.address, settings.ping_port, settings.address)
        if not accepted:
            self._failed(Cause(WaitReason.HOST_DOWN, f"{hop.address} does not answer the ping of Message Queuing"))
        self._way.ping_ended(accepted, *self._now())
        self._work()

    async def _open(self, hop: NextHop, pinged: bool) -> None:
        network = self._network
        session = Session(
            Role.INITIATOR,
            network.manager.identifier,
            network.session_settings,
            self._loop.time(),
            remote=hop.identifier,
            direct=hop.identifier == ZERO_GUID,
            pinged=pinged,
        )
        connection = network.new_connection(session, self._handle, initiator=True)
        connection.on_writable = self._schedule
        self.connection = connection
        try:
            await network.peer_tls.dial(connection, hop)
        except DialingError as error:
            if self.connection is connection:
                self.connection = None
                self._failed(_cause_of_dialing(error, hop), "no connection")
                messages_left = self._queue.message_count > 0
                self._way.session_closed(error.status, messages_left, *self._now(), error=error.error)
                self._work()
        except asyncio.CancelledError:
            if self.connection is connection:
                self.connection = None
            connection.close()
            raise


def report_failure(task: "asyncio.Task[None]") -> None:
    """Log the exception, if any, of a finished task of an outgoing queue."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("an outgoing queue is stuck", exc_info=error)


def _cause_of_dialing(error: DialingError, hop: NextHop) -> Cause:
    words = f"{hop.address}: {error}"
    if error.status is ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE:
        return Cause(WaitReason.CERTIFICATE, words)
    if error.status is ConnectionStatus.SOCKET_BIND_FAILURE:
        step = "correct transport.address in node.yaml: this machine does not have it"
        return Cause(WaitReason.OFFLINE, words, step=step)
    return Cause(WaitReason.HOST_DOWN, words)


def _cause_of_close(reason: CloseReason, connection: Connection, tls: "PeerTls") -> Cause | None:
    """The fault that the end of a session, or of the attempt to open one, shows; None if nothing is wrong."""
    address = connection.address
    if reason is CloseReason.DISCONNECTED:
        if connection.established or not connection.encrypted:
            return Cause(WaitReason.HOST_DOWN, f"{address} closed the connection")
        fault = tls.own_fault() or connection.lost_by or "it may not accept the certificate of this node"
        return Cause(WaitReason.CERTIFICATE, f"{address} ended TLS: {fault}")
    known = _CLOSED.get(reason)
    return None if known is None else Cause(known[0], f"{address} {known[1]}")


# ----------------------------------------------------------------------------------------------------------------------
# Attempts for peers: they choose where the answers to their messages go, and thousands of hosts may not answer.

_MOST: Final = 128, 16, 8, 4
"""Attempts for strangers that may be under way: all; for one network; for a network in it; for a block of that. An
attempt takes 15 seconds if nobody answers.
"""
_OF_DECLARED: Final = 256
"""The same for one declared peer: what passes over a routing server may be for hundreds of machines that are off."""


class _Waiting:
    """Attempts that wait: of the networks in a network, which follow one another, or of an address block."""

    __slots__ = ("attempts", "parts")

    def __init__(self) -> None:
        self.attempts: deque[QueueConnection] = deque()
        self.parts: dict[str, _Waiting] = {}
        """The one first whose attempt is next."""

    def add(self, path: Sequence[str], attempt: QueueConnection) -> None:
        if path:
            self.parts.setdefault(path[0], _Waiting()).add(path[1:], attempt)
        else:
            self.attempts.append(attempt)

    def take(self, path: Sequence[str]) -> QueueConnection:
        """The next attempt of a block."""
        if not path:
            return self.attempts.popleft()
        part = self.parts.pop(path[0])
        found = part.take(path[1:])
        if part.attempts or part.parts:
            self.parts[path[0]] = part
        return found


class PacedAttempts:
    """Begins the attempts of queues that one peer alone uses, one in a pass of the event loop, when it is the turn of
    strangers. Declared peers go first, and follow one another. A network of strangers, and a block in it, has at most
    half of the places that are free: so there is room for the next one.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._declared, self._strangers = _Waiting(), _Waiting()
        self._under_way: Counter[tuple[str, ...]] = Counter()
        """By kind, and the path to each network and each block."""
        self._has_turn = False

    def wait(self, payer: Party, connection: QueueConnection) -> None:
        """Let an attempt wait until ``QueueConnection.begin`` is called."""
        if payer.kind is Kind.DECLARED:
            self._declared.add((payer.name,), connection)
        else:
            self._strangers.add(networks_of(payer.name), connection)
        self._ask()

    def _next(self) -> tuple[str, ...] | None:
        """The kind and the path of the attempt that may begin."""
        for name in self._declared.parts:
            if self._under_way[Kind.DECLARED, name] < _OF_DECLARED:
                return Kind.DECLARED, name
        return self._next_of(self._strangers, (Kind.STRANGER,))

    def _next_of(self, waiting: _Waiting, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """The same of a part of the strangers."""
        if waiting.attempts:
            return path
        level = len(path)
        free = _MOST[level - 1] - self._under_way[path]
        if free > 0:
            for name, part in waiting.parts.items():
                own = *path, name
                if self._under_way[own] < min(_MOST[level], free / 2) and (found := self._next_of(part, own)):
                    return found
        return None

    def _ask(self) -> None:
        """Ask for a turn if an attempt may begin."""
        path = None if self._has_turn else self._next()
        if path is not None:
            self._has_turn = True
            self._turns.wait(Party(Kind.STRANGER, path[-1]), path[-1], self._begin)

    def _begin(self) -> bool:
        path = self._next()
        if path is not None:
            kind, *names = path
            task = (self._declared if kind == Kind.DECLARED else self._strangers).take(names).begin()
            if task is not None:
                self._count(path, 1)
                task.add_done_callback(lambda _: self._ended(path))
        asyncio.get_running_loop().call_soon(self._go_on)
        return False

    def _go_on(self) -> None:
        self._has_turn = False
        self._ask()

    def _ended(self, path: tuple[str, ...]) -> None:
        self._count(path, -1)
        self._ask()

    def _count(self, path: tuple[str, ...], change: int) -> None:
        for end in range(1, len(path) + 1):
            self._under_way[path[:end]] += change
            if not self._under_way[path[:end]]:
                del self._under_way[path[:end]]


# ----------------------------------------------------------------------------------------------------------------------
# Decides which of the outgoing queues with one next hop sends first: the one with the highest priority (MS-MQDMPR
# 3.1.1.18, 3.1.7.1.28, 3.1.7.3.9; MS-MQQB 3.1.7.16).
#
# The specification keeps all messages in one collection and sends the one with the highest sum of its queue's
# BasePriority and its own priority; then the next. Here queues compete, by that sum for the first message that each can
# send. The queue with the highest sum sends as much as its window takes. All others together send one message for every
# sixteen of the first, a few at a time, so that none starves. Three of four such turns go to the best of them, the
# fourth to the one that waited longest. Without competition, nothing is held back or computed.

QUANTUM: Final = 4
"""Messages that a queue may send in its turn while another goes first."""
INTERVAL: Final = 16 * QUANTUM
"""Messages of the leading queues between two turns."""
PATIENCE: Final = 1.0
"""Seconds after which there is a turn, even if the leading queues have sent few messages."""
_LONGEST: Final = 4
"""One of this many turns goes to the queue that waited longest."""


class Sender(Protocol):
    """The sender of an outgoing queue, as precedence sees it."""

    def level(self) -> int | None:
        """BasePriority of the queue plus the priority of the first message that can be sent; None without one."""

    def schedule(self) -> None:
        """Check again which messages can be sent."""


class Precedence:
    """Arbitrates between the senders with sessions to one queue manager."""

    def __init__(self) -> None:
        self._members: set[Sender] = set()
        self.is_shared = False
        """Whether more than one sender competes."""
        self._waiting: dict[Sender, int] = {}
        """Senders that have more to send, with their levels."""
        self._held_back: dict[Sender, None] = {}
        """Senders that are held back, in the order in which they began to wait."""
        self._turn: Sender | None = None
        self._turns = 0
        self._sent = 0
        """Messages sent since the last turn."""
        self._timer: asyncio.TimerHandle | None = None

    def join(self, sender: Sender) -> None:
        """Add a sender whose session has opened."""
        self._members.add(sender)
        self.is_shared = len(self._members) > 1
        for member in self._members:
            member.schedule()

    def leave(self, sender: Sender) -> bool:
        """Remove a sender whose session has closed. Return whether none is left."""
        self._members.discard(sender)
        self.is_shared = len(self._members) > 1
        self.step_aside(sender)
        return not self._members

    def step_aside(self, sender: Sender) -> None:
        """Remove a sender from the competition: it sends nothing now."""
        self._held_back.pop(sender, None)
        if self._turn is sender:
            self._turn = None
        if self._waiting.pop(sender, None) is not None:
            for other in self._held_back:
                other.schedule()
        if not self._held_back and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def room(self, sender: Sender, room: int) -> int:
        """The number of messages that a sender may send now, ``room`` at most."""
        level = sender.level()
        if level is None:
            self.step_aside(sender)
            return room
        self._set_level(sender, level)
        if level >= max(self._waiting.values()):
            self._held_back.pop(sender, None)
            if self._turn is sender:
                self._turn = None
            return room
        if self._turn is not sender:
            self._hold_back(sender)
            return 0
        if room > 0:
            self._turn = None
            del self._held_back[sender]
            self._hold_back(sender)  # behind the others
        return min(room, QUANTUM)

    def sent(self, sender: Sender, count: int) -> None:
        """Record that a sender took ``count`` messages; it may have none left now."""
        level = sender.level()
        if level is None:
            self.step_aside(sender)
        else:
            self._set_level(sender, level)
        if self._held_back and sender not in self._held_back:
            self._sent += count
            if self._sent >= INTERVAL:
                self._give_turn()

    def _set_level(self, sender: Sender, level: int) -> None:
        """Record the level of a sender that has more to send. When it falls, other senders may come first now."""
        before = self._waiting.get(sender, level)
        self._waiting[sender] = level
        if level < before:
            for other in self._held_back:
                other.schedule()

    def _hold_back(self, sender: Sender) -> None:
        self._held_back.setdefault(sender)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._waited_long)

    def _waited_long(self) -> None:
        self._timer = None
        if self._held_back:
            self._give_turn()

    def _give_turn(self) -> None:
        """Give a turn to a held-back sender, usually the one with the highest level."""
        self._sent = 0
        self._turns += 1
        waiting = self._held_back
        longest = self._turns % _LONGEST == 0
        self._turn = next(iter(waiting)) if longest else max(waiting, key=lambda one: self._waiting.get(one, 0))
        self._turn.schedule()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._waited_long)
