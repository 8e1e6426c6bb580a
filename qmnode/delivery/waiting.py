"""Why messages wait: the one place that says it for a queue, a message, a link and a machine.

``why`` reads the present state of the network, the store and the queues, and keeps nothing itself. The part of the
node that meets a fault notes a :class:`Cause`; this module makes the reason, the sentence and the step of it.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from qmnode.delivery.acknowledgments import UNACKNOWLEDGED_LIMIT
from qmnode.delivery.after_restore import sequences_of
from qmnode.delivery.arrivals import ProtocolState
from qmnode.delivery.topology import ResolutionError, Topology
from qmnode.model.administration import (
    ConnectionInformation,
    IncomingSequenceInformation,
    SequencePlace,
    TransferInformation,
)
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.waiting_reasons import REFUSED, Cause, Waiting, WaitReason
from qmnode.protocol.incoming_sequences import IncomingSequence
from qmnode.protocol.outgoing_sequences import SequenceInfo, transfer_info
from qmnode.routing import NoRouteError
from qmnode.storage.errors import StoreError
from qmnode.structures.enumerations import MessageClass, OutgoingQueueState
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.names import DirectFormatName, PrivateFormatName, parse_single_format_name
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.delivery.queue_sender import QueueSender
    from qmnode.protocol.connection import NextHop


_STEPS: Final = {
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: "create the queue at {machine}, or correct its name at the sender",
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: "send outside a transaction, or make the queue transactional",
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG: "send in a transaction, as with `qmnode send --transactional`",
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE: "register the sender's certificate: `mqenterprise certificate list`",
}
_NOISE: Final = re.compile(r"^\[SSL[^]]*\] | \(_ssl\.c:\d+\)$")
_SHOWN: Final = 1_000


def why(
    network: "Network", queue: Queue | None = None, *, machine: str = "", link: str = "", limit: int = _SHOWN
) -> Iterator[Waiting]:
    """Yield the reasons why messages wait now; nothing if none is kept.

    ``queue``: the reason of one queue, outgoing or local. ``machine``, a computer name: the reasons of queues whose
    messages go to it or through it; the name of this node itself: all, and first the reason that stops the whole node.
    ``link``: the reasons of queues whose messages go over the routing link to the site of this name. With none of
    them, all.
    """
    if queue is not None:
        found = _of_queue(network, queue)
        if found is not None:
            yield found
        return
    own = _of_node(network)
    itself = machine.lower() == network.manager.computer_name.lower()
    if own is not None and (itself or not (machine or link)):
        yield own
    refusing = network.manager.traffic.refusals.refusing
    everything = network.manager.queue_collection.values()
    for one in [one for one in everything if isinstance(one, OutgoingQueue) or one.paused or one.pathname in refusing]:
        if limit <= 0:
            return
        if (machine and not itself and not _leads_to(network, one, machine)) or (
            link and not _goes_over(network, one, link)
        ):
            continue
        found = _of_queue(network, one)
        if found is not None:
            limit -= 1
            yield found


def machine_name(network: "Network", identifier: Guid, otherwise: str = "") -> str:
    """The computer name of a queue manager, as far as the directory was read; else ``otherwise``."""
    topology = network.topology
    return (topology.name_of(identifier) if topology is not None else "") or otherwise


# The subjects


def _of_node(network: "Network") -> Waiting | None:
    """The reason that stops the whole node: its disk, that it is offline, its key store, or its directory."""
    manager = network.manager
    if (full := _of_disk(network, "", 0)) is not None:
        return full
    if not manager.connection_active:
        return _offline(network, "", 0)
    if network.running and (fault := network.keys.status.fault) is not None:
        return Waiting(
            WaitReason.KEY, f"the key store of {manager.computer_name} does not answer: {fault}", "",
            machine=manager.computer_name, step="start the key store, or correct security.key_store in node.yaml",
        )  # fmt: skip
    topology = network.topology
    if topology is not None and topology.unread_since:
        return Waiting(
            WaitReason.DIRECTORY, f"the directory does not answer {manager.computer_name}: {topology.unread_because}",
            "", machine=manager.computer_name, since=topology.unread_since,
        )  # fmt: skip
    return None


def _of_disk(network: "Network", queue: str, count: int) -> Waiting | None:
    manager = network.manager
    try:
        manager.store.check()
    except StoreError as error:
        return Waiting(
            WaitReason.DISK, f"{manager.computer_name} can store nothing: {error.sentence}", queue,
            machine=manager.computer_name, since=manager.store.condition().failed_since, messages=count,
        )  # fmt: skip
    return None


def _of_queue(network: "Network", queue: Queue) -> Waiting | None:
    if isinstance(queue, OutgoingQueue):
        return None if queue.for_acknowledgments else _of_outgoing(network, queue)
    return _of_local(network, queue)


def _of_local(network: "Network", queue: Queue) -> Waiting | None:
    """Whether a queue of this node is paused, or refused its last message."""
    if queue.paused and queue.message_count:
        return Waiting(
            WaitReason.PAUSED, "the queue is paused: no receiver gets its messages", queue.pathname,
            machine=network.manager.computer_name, since=queue.paused, messages=queue.message_count,
            step=f"`qmnode queue resume '{queue.pathname}'`",
        )  # fmt: skip
    refused = network.manager.traffic.refusals.last(queue.pathname)
    if refused is None or refused.arrived != queue.tally.arrived:
        return None
    known = REFUSED.get(MessageClass(refused.reason))
    if known is None:
        return None
    reason, _ = known
    own = network.manager.computer_name
    name = machine_name(network, refused.source, refused.address)
    words = {
        WaitReason.ACCESS: f"{own} does not let messages of {name} into the queue",
        WaitReason.QUOTA: f"the quota of the queue is used up: {own} refuses messages of {name}",
        WaitReason.KEY: f"{own} cannot decrypt messages of {name}: the key that they use is not there",
    }
    sentence = words.get(reason, f"{own} refuses messages of {name}: {_words(refused.reason)}")
    return Waiting(
        reason, sentence, queue.pathname, machine=own, since=refused.since, messages=queue.message_count,
        step=_step_of(refused.reason, own),
    )  # fmt: skip


def _of_outgoing(network: "Network", queue: OutgoingQueue) -> Waiting | None:
    manager, count = network.manager, queue.message_count
    sender = network.queue_sender(network.state.key_of(queue))
    if count:
        if (full := _of_disk(network, queue.pathname, count)) is not None:
            return full
        if queue.state is OutgoingQueueState.ON_HOLD:
            since = sender.queue_connection.state_since if sender is not None else 0.0
            return Waiting(
                WaitReason.PAUSED, "the outgoing queue is paused", queue.pathname, machine=manager.computer_name,
                since=since, messages=count, step=f"`qmnode queue resume '{queue.pathname}'`",
            )  # fmt: skip
        if sender is None or not manager.connection_active:
            return _offline(network, queue.pathname, count)
        found = _of_sender(network, queue, sender)
        if found is not None:
            return found
    return _of_refusal(network, queue, sender)


def _of_sender(network: "Network", queue: OutgoingQueue, sender: "QueueSender") -> Waiting | None:
    """The reason that the connection, the encryption or the acknowledgments of an outgoing queue give."""
    connection, now = sender.queue_connection, network.manager.clock.time()
    began = now - asyncio.get_running_loop().time()
    cause, since = connection.failure, connection.failing_since
    if cause is not None:
        reason, machine = cause.reason, _peer(network, queue, sender)
        hop = connection.failed_hop
        if reason is WaitReason.HOST_DOWN and hop is not None and hop.identifier not in (ZERO_GUID, connection.owner):
            reason = WaitReason.GATE_DOWN
        if reason in (WaitReason.NO_ROUTE, WaitReason.NO_NAME, WaitReason.DIRECTORY):
            machine = cause.machine or _destination(network, queue, connection.owner)
        timer = connection.next_try
        return Waiting(
            reason, _sentence(network, queue, reason, machine, cause), queue.pathname, machine=machine, since=since,
            next_try=began + timer if timer is not None else 0.0, messages=queue.message_count, step=cause.step,
        )  # fmt: skip
    if connection.deferred:
        return Waiting(
            WaitReason.DIRECTORY, f"the messages cannot be encrypted yet: {connection.deferred}", queue.pathname,
            machine=_destination(network, queue, connection.owner), since=connection.deferred_since,
            messages=queue.message_count,
        )  # fmt: skip
    sequence = network.state.outgoing.get(sender.key)
    full = len(sender.unacknowledged) >= UNACKNOWLEDGED_LIMIT
    if connection.connection is not None and (full or sequence.resend_index):
        machine = _destination(network, queue, connection.owner) or _peer(network, queue, sender)
        return Waiting(
            WaitReason.WINDOW, f"{machine} has not acknowledged {len(sender.unacknowledged)} messages", queue.pathname,
            machine=machine, since=sequence.last_ack_time or queue.oldest_arrival or 0.0,
            next_try=began + sequence.resend_at if sequence.resend_at is not None else 0.0,
            messages=queue.message_count,
        )  # fmt: skip
    return None


def _of_refusal(network: "Network", queue: OutgoingQueue, sender: "QueueSender | None") -> Waiting | None:
    """The answer of the destination to the last transactional messages, until it accepts one."""
    refusal = queue.refusal
    if refusal is None or refusal.message_class not in REFUSED:
        return None
    if refusal.is_over(network.manager.clock.time()):
        queue.refusal = None
        return None
    reason, words = REFUSED[MessageClass(refusal.message_class)]
    owner = sender.queue_connection.owner if sender is not None else ZERO_GUID
    machine = machine_name(network, refusal.author) or _destination(network, queue, owner)
    if refusal.detail:
        words = f"{words} ({refusal.detail})"
    return Waiting(
        reason, f"{machine or 'the destination'} {words}", queue.pathname, machine=machine, since=refusal.since,
        messages=queue.message_count, step=_step_of(refusal.message_class, machine),
    )  # fmt: skip


def _offline(network: "Network", queue: str, count: int) -> Waiting:
    manager, step = network.manager, ""
    if manager.settings.hardened_security:
        sentence, step = "this node has no sessions: it is in hardened mode", "unset hardened_security in node.yaml"
    elif not manager.connection_active:
        sentence = "this node is disconnected from other machines (qmnode connect)"
    else:
        sentence, step = "this node has no sessions with other machines", "set transport.enabled in node.yaml"
    since = manager.offline_since if not manager.connection_active else 0.0
    return Waiting(
        WaitReason.OFFLINE, sentence, queue, machine=manager.computer_name, since=since, messages=count, step=step
    )


# Names and words


def _sentence(network: "Network", queue: OutgoingQueue, reason: WaitReason, machine: str, cause: Cause) -> str:
    """The cause in words, with the address and the name of the machine."""
    words = _NOISE.sub("", cause.words)
    if reason in (WaitReason.NO_ROUTE, WaitReason.NO_NAME, WaitReason.DIRECTORY):
        return f"the directory does not answer: {words}" if reason is WaitReason.DIRECTORY else words
    name = "" if not machine or machine in words else f"{machine}, "
    role = "the gate on the way, " if reason is WaitReason.GATE_DOWN else ""
    return f"{role}{name}{words}"


def _hop(sender: "QueueSender") -> "NextHop | None":
    """The next hop in use, or that of the last failed attempt."""
    connection = sender.queue_connection
    return connection.failed_hop if connection.failure is not None else connection.hop


def _peer(network: "Network", queue: OutgoingQueue, sender: "QueueSender") -> str:
    """The name of the machine that a queue's connection leads to."""
    hop = _hop(sender)
    if hop is None:
        return _destination(network, queue, sender.queue_connection.owner)
    return machine_name(network, hop.identifier, hop.host_name or hop.address)


def _destination(network: "Network", queue: OutgoingQueue, owner: Guid) -> str:
    """The name of the machine that owns the destination queue."""
    match parse_single_format_name(queue.pathname):
        case DirectFormatName(path=path):
            return path.computer
        case PrivateFormatName(computer=computer):
            return machine_name(network, computer)
        case _:
            return machine_name(network, owner)


def _leads_to(network: "Network", queue: Queue, machine: str) -> bool:
    if not isinstance(queue, OutgoingQueue):
        return False
    sender = network.queue_sender(network.state.key_of(queue))
    owner = sender.queue_connection.owner if sender is not None else ZERO_GUID
    names = {_destination(network, queue, owner)}
    if sender is not None:
        names.add(_peer(network, queue, sender))
        hop = _hop(sender)
        names.update((hop.host_name, hop.address) if hop is not None else ())
    return machine.lower() in {name.lower() for name in names}


def _goes_over(network: "Network", queue: Queue, site: str) -> bool:
    sender = network.queue_sender(network.state.key_of(queue)) if isinstance(queue, OutgoingQueue) else None
    topology = network.topology
    if sender is None or topology is None:
        return False
    hop = _hop(sender)
    hops = [hop.identifier] if hop is not None else _planned(topology, queue, sender)
    return site.lower() in topology.sites_of(hops)


def _planned(topology: "Topology", queue: Queue, sender: "QueueSender") -> Sequence[Guid]:
    """Where the messages of a queue are to go next that has found no address yet, as of names that nobody resolves."""
    name = parse_single_format_name(queue.pathname)
    owner = name.computer if isinstance(name, PrivateFormatName) else sender.queue_connection.owner
    try:
        router = topology.router()
        return () if router is None or owner == ZERO_GUID else router.next_hops(owner).hops
    except (ResolutionError, NoRouteError):
        return ()


def _words(message_class: int) -> str:
    known = REFUSED.get(MessageClass(message_class))
    return known[1] if known is not None else MessageClass(message_class).name


def _step_of(message_class: int, machine: str) -> str:
    step = _STEPS.get(MessageClass(message_class), "")
    return step.format(machine=machine or "the other machine")


_SEQUENCES_SHOWN: Final = 1_000


def transfer_information(state: ProtocolState, queue: OutgoingQueue, now: float, unread: int) -> TransferInformation:
    """Describe the outgoing sequence of a queue. ``now`` is in seconds since 1970, ``unread`` counts the messages that
    wait for their final acknowledgments.
    """
    key = state.key_of(queue)
    info = transfer_info(state.outgoing.get(key), state.parameters.resend_table())
    monotonic_began = now - asyncio.get_running_loop().time()
    return TransferInformation(
        next=SequencePlace(*info.next_seq),
        last_acknowledged=_place(info.last_ack),
        last_acknowledged_time=info.last_ack_time,
        acknowledgment_count=info.last_ack_count,
        unacknowledged_count=info.no_ack_count,
        first_unacknowledged=_place(info.first_non_ack),
        last_unacknowledged=_place(info.last_non_ack),
        unread_count=unread,
        resend_count=info.resend_count,
        resend_interval=info.resend_interval,
        resend_time=0 if info.resend_time is None else monotonic_began + info.resend_time,
    )


def _place(info: SequenceInfo | None) -> SequencePlace | None:
    return None if info is None else SequencePlace(*info)


def incoming_sequences(
    queue: Queue | None, manager: QueueManager, sequences: Iterable[IncomingSequence]
) -> list[IncomingSequenceInformation]:
    """The incoming sequences of ``queue``, or of any queue, the most recently used first."""
    return [
        IncomingSequenceInformation(
            source=sequence.source,
            destination=name,
            address=sequence.route.address,
            sequence_identifier=sequence.sequence_id,
            number=sequence.sequence_number,
            reject_count=sequence.reject_count,
            last_access_time=sequence.last_access,
            is_known=not sequence.bringer,
            refused_count=sequence.refused_count,
            waiting=_refusal(manager, name),
        )
        for sequence, name in nlargest(
            _SEQUENCES_SHOWN, sequences_of(queue, manager, sequences), key=lambda one: one[0].last_access
        )
    ]


def _refusal(manager: QueueManager, name: str) -> Waiting | None:
    local = manager.names.local(parse_single_format_name(name)) if name else None
    return None if local is None else local.waits_for


def connection_information(connection: Connection) -> ConnectionInformation:
    """Describe a connection for operators."""
    session = connection.session
    host = f"[{connection.address}]" if ":" in connection.address else connection.address
    return ConnectionInformation(
        address=f"{host}:{connection.port}",
        state=session.state.name.lower(),
        incoming=not connection.initiator,
        queue_manager_identifier=session.remote,
        established=connection.established,
        sent_messages=session.sent_count,
        received_messages=session.received_count,
        sent_bytes=connection.sent_bytes,
        received_bytes=connection.received_bytes,
        unacknowledged_messages=session.in_flight() if connection.initiator else session.unsettled(),
        encrypted=connection.encrypted,
    )
