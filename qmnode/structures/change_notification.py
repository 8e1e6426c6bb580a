"""Change notifications: MS-MQCN 2.2.4 and 2.2.5. The body of a message to the notification queue of a queue manager."""

import re
from enum import IntEnum
from typing import Final, NamedTuple

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import rest, u8
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text
from qmnode.structures.layout import Structure

NOTIFICATION_QUEUE_NUMBER: Final = 3
"""NOTIFY_QUEUE_PRIVATE (1.9) is ``PRIVATE=<queue manager>\\3``."""
NOTIFICATION_QUEUE_NAME: Final = "PRIVATE$\\notify_queue$"
TIME_TO_REACH_QUEUE: Final = 300
"""The seconds after which an undelivered notification is dropped (3.3.5.3)."""
LONGEST_SERVER_NAME: Final = 256
_TITLE: Final = "Change Notification Message"
_UNUSED: Final = b"\0"
"""The byte that follows a notification in its message and has no meaning (3.3.5.3)."""


class NotificationVersion(IntEnum):
    """The kind of queue manager or service that sends: Version, 2.2.4."""

    DIRECTORY_SERVICE = 1
    QUEUE_MANAGER = 2


class ChangeEvent(IntEnum):
    """The kind of change of an object: Event, 2.2.5."""

    QUEUE_CREATED = 1
    QUEUE_CHANGED = 2
    QUEUE_DELETED = 3
    QUEUE_MANAGER_CHANGED = 4


# fmt: off
class ChangeNotificationMessage(Structure, section="MS-MQCN 2.2.4", title="Change Notification Message"):
    """The notifications of one sender."""

    version: int                        = u8(0, "Version", "The kind of sender")
    number_of_update_notifications: int = u8(1, "NumberOfUpdateNotifications", "1 from a queue manager", default=1)
    data: bytes                         = rest(2, "Data", "A Notification Body, or Notification Updates")
# fmt: on


class Notification(NamedTuple):
    """A Notification Body, 2.2.5: an object of the directory that was changed, without the change itself."""

    event: ChangeEvent
    object_guid: Guid
    directory_server: str
    """The name of the server through which it was changed."""

    def write(self) -> bytes:
        """The body of the message. Raises ValueError for a server name that the format does not allow."""
        if not _SERVER.fullmatch(self.directory_server):
            raise ValueError(
                f"{self.directory_server!r} is no directory server's name: 1 to {LONGEST_SERVER_NAME} ASCII characters "
                "without spaces, <, > and &"
            )
        text = _BODY.format(event=self.event, guid=guid_to_text(self.object_guid).upper(), server=self.directory_server)
        message = ChangeNotificationMessage(
            version=NotificationVersion.QUEUE_MANAGER, data=text.encode("utf-16-le") + _UNUSED
        )
        return message.write()


def parse_notification(body: bytes) -> Notification | None:
    """The notification of a queue manager; None for one of an MSMQ Directory Service. Raises PacketError."""
    message = ChangeNotificationMessage.parse(body)
    if message.version == NotificationVersion.DIRECTORY_SERVICE:
        return None
    if message.version != NotificationVersion.QUEUE_MANAGER:
        raise PacketError(_TITLE, "Version", 0, f"{message.version} is no version of change notifications")
    data = bytes(message.data)
    # The unused byte after it, and the null that ends strings elsewhere, count for nothing.
    text = data[: len(data) & ~1].decode("utf-16-le", "replace").rstrip("\0")
    found = _NOTIFICATION.fullmatch(text)
    if found is None:
        raise PacketError(_TITLE, "Data", 2, "this is no Notification Body")
    try:
        guid = guid_from_text(found["guid"])
    except ValueError as error:
        raise PacketError(_TITLE, "Data", 2, str(error)) from None
    return Notification(ChangeEvent(int(found["event"])), guid, found["server"])


_BODY: Final = (
    "<Notification><Event>{event:d}</Event><ObjectGuid>{guid}</ObjectGuid>"
    "<DomainController>{server}</DomainController></Notification>"
)
_NAME: Final = r"[\x21-\x25\x27-\x3b\x3d\x3f-\x7e]{1,256}"
"""The rule allows <, > and & as well, which no name of a server has."""
_SERVER: Final = re.compile(_NAME)
_NOTIFICATION: Final = re.compile(
    # The rule in 2.2.5 has a space in the end tag of ObjectGuid, and the form above it has none.
    r"<Notification><Event>(?P<event>[1-4])</Event><ObjectGuid>(?P<guid>[0-9A-Fa-f-]{36})</ObjectGuid ?>"
    rf"<DomainController>(?P<server>{_NAME})</DomainController></Notification>"
)
