"""Change notifications for the queue managers whose objects were changed here: the client side of MS-MQCN.

Windows notifies through the queue manager of the computer where the change is made (MS-MQDMPR 3.1.7.1.18, 19 and 24).
Here a node of this machine sends the messages, if the directory's settings name its socket.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

import qmnode
from qmnode.structures.change_notification import (
    NOTIFICATION_QUEUE_NUMBER,
    TIME_TO_REACH_QUEUE,
    ChangeEvent,
    Notification,
)
from qmnode.structures.guid import Guid, guid_to_text

log = structlog.get_logger(__name__)

MOST: Final = 100
"""Notifications for one queue manager; with so many, Windows reads all of its objects again (appendix A <3>)."""


class ChangeNotices:
    """Collects the changes of one use of the directory. Safe for threads."""

    def __init__(self, socket: Path | None, server: Callable[[], str]) -> None:
        """``socket``: of a node on this machine, or None to notify nobody. ``server``: the directory server's name."""
        self._socket = socket
        self._server = server
        self._lock = threading.Lock()
        self._noted: dict[Guid, dict[tuple[ChangeEvent, Guid], None]] = {}

    @property
    def are_sent(self) -> bool:
        """Whether anybody is notified."""
        return self._socket is not None

    def note(self, event: ChangeEvent, object_guid: Guid, owner: Guid) -> None:
        """Remember a change that was made, of an object of the queue manager ``owner``."""
        if self._socket is None:
            return
        with self._lock:
            noted = self._noted.setdefault(owner, {})
            if len(noted) < MOST:
                noted[event, object_guid] = None

    def send(self) -> None:
        """Send Change Notification (3.3.4.1) for all changes. A failure is logged: the changes themselves are made."""
        with self._lock:
            noted, self._noted = self._noted, {}
        if not noted or self._socket is None:
            return
        try:
            server = self._server()
            with qmnode.sync.connect(self._socket) as node:
                for owner, changes in noted.items():
                    if owner != node.identifier:  # it watches the directory
                        _send_to(node, owner, [Notification(*change, server) for change in changes])
        except (qmnode.MessageQueuingError, OSError, ValueError) as error:
            log.warning(
                "the owners of changed objects were not notified: they read them when their own timers expire",
                node=str(self._socket), reason=str(error),
            )  # fmt: skip


def _send_to(node: "qmnode.sync.QueueManager", owner: Guid, notifications: list[Notification]) -> None:
    """Send messages to one queue manager (3.3.5.3), unsigned: notifications of queue managers may be (3.2.5.2)."""
    name = f"PRIVATE={guid_to_text(owner)}\\{NOTIFICATION_QUEUE_NUMBER:x}"
    with node.open_queue(name, qmnode.Access.SEND) as queue:
        queue.send_many([qmnode.Message(one.write(), time_to_reach_queue=TIME_TO_REACH_QUEUE) for one in notifications])
