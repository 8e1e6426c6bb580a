"""Detects two machines that run with one identity: a restored store or a cloned machine beside its original.

Both use the same QueueManager.Identifier, so receivers take messages of one for duplicates of the other's, and answers
for one reach the other. A peer can notice it: sessions opened to one of its addresses come from two hosts in turn.
Legitimate changes look different. A machine that moved does not move back and forth, a machine with several networks
uses one of its addresses for each of ours, and an IPv6 machine changes its address only within its /64.
"""

import ipaddress
from collections import deque
from typing import Final, NamedTuple

import structlog

from qmnode.structures.guid import Guid, guid_to_text

log = structlog.get_logger(__name__)

_TURNS: Final = 3
"""Changes of the speaking host that make a conflict: the other host, the first one again, and the other again."""
_WITHIN: Final = 600.0
"""Seconds within which that many changes are not a coincidence."""
_QUIET: Final = 300.0
"""Seconds without a change after which one of the two is considered gone."""
_KNOWN: Final = 512
"""Queue managers remembered: those that changed their host or spoke most recently."""
_NAMED: Final = 3
"""The most queue managers that a warning names."""
_NETWORK: Final = 64
_TROUBLE: Final = "identity"


class Conflict(NamedTuple):
    """One queue manager that speaks from two hosts."""

    identifier: Guid
    addresses: tuple[str, str]


class _Speaker:
    __slots__ = ("address", "before", "changes", "reported")

    def __init__(self, address: str) -> None:
        self.address = address
        self.before = ""
        self.changes: deque[float] = deque(maxlen=_TURNS)
        self.reported = False


class Speakers:
    """The host from which each queue manager spoke last."""

    def __init__(self) -> None:
        self._speakers: dict[tuple[Guid, str], _Speaker] = {}

    def heard(self, identifier: Guid, address: str, local_address: str, now: float) -> bool:
        """Record that a queue manager spoke in a session that it opened to one of our addresses. Return whether a
        conflict begins.
        """
        key = identifier, local_address
        speaker = self._speakers.get(key)
        if speaker is not None and speaker.address == address:
            return False
        if speaker is None:
            speaker = _Speaker(address)
        elif _is_one_host(speaker.address, address):
            speaker.address = address
            return False
        else:
            del self._speakers[key]  # moved to the end of the order
            speaker.before, speaker.address = speaker.address, address
            speaker.changes.append(now)
        self._speakers[key] = speaker
        if len(self._speakers) > _KNOWN:
            del self._speakers[next(iter(self._speakers))]
        changes = speaker.changes
        begins = not speaker.reported and len(changes) == _TURNS and now - changes[0] <= _WITHIN
        speaker.reported = speaker.reported or begins
        return begins

    def conflicts(self, now: float) -> list[Conflict]:
        """Current conflicts, the latest first. A conflict ends when the hosts no longer take turns."""
        found: dict[Guid, Conflict] = {}
        for (identifier, _), speaker in reversed(self._speakers.items()):
            if speaker.reported and now - speaker.changes[-1] >= _QUIET:
                speaker.reported = False
                speaker.changes.clear()
            if speaker.reported:
                first, second = sorted((speaker.before, speaker.address))
                found.setdefault(identifier, Conflict(identifier, (first, second)))
        return list(found.values())


def _is_one_host(one: str, other: str) -> bool:
    if ":" not in one or ":" not in other:
        return False
    return ipaddress.ip_address(other) in ipaddress.ip_network((one, _NETWORK), strict=False)


class CopyWatch:
    """Reports conflicts of :class:`Speakers` to operators: in the log, and in the troubles of the node."""

    def __init__(self, troubles: dict[str, str]) -> None:
        """``troubles`` are those of the queue manager."""
        self._troubles = troubles
        self._speakers = Speakers()

    def heard(self, identifier: Guid, address: str, local_address: str, now: float) -> None:
        """Record that a queue manager spoke in a session that it opened."""
        if self._speakers.heard(identifier, address, local_address, now):
            conflicts = self._speakers.conflicts(now)
            log.warning(
                "two machines have one identity: a copy runs beside its original, and messages of both get lost. Stop "
                "one of them",
                queue_manager=guid_to_text(identifier),
                addresses=next(one.addresses for one in conflicts if one.identifier == identifier),
            )
            self._tell(conflicts)

    def look(self, now: float) -> None:
        """Clear the trouble when all conflicts have ended. Called from time to time."""
        if _TROUBLE in self._troubles:
            self._tell(self._speakers.conflicts(now))

    def _tell(self, conflicts: list[Conflict]) -> None:
        if not conflicts:
            del self._troubles[_TROUBLE]
            log.info("no two machines have one identity any more")
            return
        named = "; ".join(
            f"{guid_to_text(one.identifier)} at {' and '.join(one.addresses)}" for one in conflicts[:_NAMED]
        )
        more = f" and {len(conflicts) - _NAMED} more" if len(conflicts) > _NAMED else ""
        self._troubles[_TROUBLE] = (
            f"two machines run as one queue manager ({named}{more}), and messages of both get lost: "
            "stop the copy, or give it an identity of its own with `qmnode init`"
        )
