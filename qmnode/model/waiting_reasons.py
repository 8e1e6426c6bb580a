"""Why messages wait: the values that every face shows. :mod:`qmnode.delivery.waiting` finds them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Final

from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid


@unique
class WaitReason(StrEnum):
    """The reason why messages wait, or why the last ones were refused."""

    NO_ROUTE = "no_route"
    """The topology has no path, or the directory does not have the queue or its machine."""
    GATE_DOWN = "gate_down"
    """The next hop is a site gate or another routing server, and it does not answer."""
    HOST_DOWN = "host_down"
    """The machine of the destination queue does not answer."""
    REFUSED = "refused"
    """The peer refuses the session or the last messages, for a reason that has no name of its own here."""
    NO_NAME = "no_name"
    """The name of the machine has no address."""
    DIRECTORY = "directory"
    """The directory does not answer, and the cache does not have what is needed."""
    KEY = "key"
    """A key for encryption is missing, here or at the destination."""
    CERTIFICATE = "certificate"
    """TLS fails: a certificate has expired, or is not trusted."""
    ACCESS = "access"
    """The destination queue's access list, or a check of the signature, refuses the sender."""
    QUOTA = "quota"
    """The destination queue is full."""
    PAUSED = "paused"
    """Somebody paused the queue."""
    OFFLINE = "offline"
    """This node takes part in no sessions: taken offline, or by its settings."""
    WINDOW = "window"
    """The peer has taken as many messages as it may and acknowledges none."""
    DISK = "disk"
    """This node's disk is full, or fails."""
    DELAYED = "delayed"
    """The time at which the message is to be delivered has not come."""
    RECEIVER = "receiver"
    """The message is in its queue, and nobody has received it."""


REFUSED: Final = {
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED: (WaitReason.ACCESS, "does not let the sender into the queue"),
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE: (WaitReason.ACCESS, "does not accept the signature"),
    MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA: (WaitReason.QUOTA, "has no room in the queue: its quota is used up"),
    MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION: (WaitReason.KEY, "has no key that decrypts the messages"),
    MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT: (WaitReason.KEY, "has no key to encrypt to"),
    MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER: (WaitReason.KEY, "does not support the algorithm"),
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: (WaitReason.REFUSED, "has no such queue"),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: (WaitReason.REFUSED, "takes no transactional messages"),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG: (WaitReason.REFUSED, "takes transactional messages only"),
    MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED: (WaitReason.NO_ROUTE, "ended a message that went in a circle"),
}  # fmt: skip
"""Refusals by class (MS-MQMQ 2.2.18.1.6). Other classes end single messages, and say nothing about those to come."""
_SETTLES: Final = 2.0
"""Seconds after an acknowledgment in which a refusal may still come."""
_STEPS: Final = {
    WaitReason.NO_ROUTE: "declare the machine, routing link or site gate that is missing; "
    "`mqenterprise route explain` shows the way",
    WaitReason.GATE_DOWN: "start the node of {machine}, or declare a second site gate",
    WaitReason.HOST_DOWN: "start the node of {machine}, and see that its port 1801 is open",
    WaitReason.REFUSED: "see the log of {machine}",
    WaitReason.NO_NAME: "correct the name or the address of {machine} in DNS or in the directory",
    WaitReason.DIRECTORY: "start the directory, or correct `directory` in node.yaml",
    WaitReason.KEY: "see the keys of {machine}: `mqenterprise keys status {machine}`",
    WaitReason.CERTIFICATE: "renew the certificate, or correct security.tls in node.yaml, here or at {machine}",
    WaitReason.ACCESS: "at {machine}, `qmnode queue refused` names the sender and `qmnode queue acl allow` lets it in",
    WaitReason.QUOTA: "receive from the queue at {machine}, or raise its quota with `qmnode queue set --quota`",
    WaitReason.PAUSED: "`qmnode queue resume`",
    WaitReason.OFFLINE: "`qmnode connect`",
    WaitReason.WINDOW: "see what {machine} waits for: `qmnode status` there",
    WaitReason.DISK: "make room on the disk, or repair it",
    WaitReason.DELAYED: "wait, or `qmnode message delete` it",
    WaitReason.RECEIVER: "start the program that receives from the queue",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault as the part of the node that met it knows it."""

    reason: WaitReason
    words: str
    machine: str = ""
    """Name of the machine at fault, where the connection does not say it."""
    step: str = ""


@dataclass(slots=True)
class Refusal:
    """The last answer of a destination that refused transactional messages of an outgoing queue."""

    message_class: int
    author: Guid
    """The queue manager that refused."""
    since: float
    """When it refused the first, in seconds since 1970 (UTC)."""
    place: tuple[int, int] = (0, 0)
    """TxSequenceID and TxSequenceNumber of the last refused message; zeros if this node could not send it."""
    detail: str = ""
    accepted_at: float = 0.0
    """When it acknowledged a later message; 0: none yet."""

    def is_over(self, now: float) -> bool:
        """Whether a later message was accepted for sure: acknowledgments come in any order."""
        return 0 < self.accepted_at < now - _SETTLES


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why messages of one queue wait."""

    reason: WaitReason
    sentence: str
    """The same in words, with the names of machines."""
    queue: str
    """Path name of the queue that holds the messages, or that refused the last ones; empty for the whole node."""
    machine: str = ""
    """Name of the machine that is waited for, or that refuses; an address if it has no name here."""
    since: float = 0.0
    """When the first attempt failed, or the state began, in seconds since 1970 (UTC)."""
    next_try: float = 0.0
    """When the node tries again by itself; 0 if it does not know, or does not."""
    messages: int = 0
    """Messages in the queue."""
    step: str = ""
    """The sentence for an operator who wants them to go on."""

    def __post_init__(self) -> None:
        if not self.step:
            step = _STEPS[self.reason].format(machine=self.machine or "the other machine")
            object.__setattr__(self, "step", step)


def summary(found: Iterable[Waiting]) -> tuple[dict[str, Any], ...]:
    """The same by reason and machine, with the number of ``queues`` and of their ``messages``. It names no queue."""
    groups: dict[tuple[WaitReason, str], dict[str, Any]] = {}
    for one in found:
        group = groups.get((one.reason, one.machine))
        if group is None:
            step = "`qmnode queue list` shows them" if one.reason is WaitReason.PAUSED else one.step
            group = groups[one.reason, one.machine] = {
                "reason": one.reason.value, "machine": one.machine, "sentence": one.sentence, "since": one.since,
                "next_try": one.next_try, "step": step, "queues": 0, "messages": 0,
            }  # fmt: skip
        group["queues"] += bool(one.queue)
        group["messages"] += one.messages
        group["since"] = min(filter(None, (group["since"], one.since)), default=0.0)
        group["next_try"] = min(filter(None, (group["next_try"], one.next_try)), default=0.0)
    return tuple(groups.values())
