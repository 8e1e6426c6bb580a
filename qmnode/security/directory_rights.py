"""The meaning of a directory object's security descriptor for the queue or queue manager that it describes.

Active Directory keeps permissions to queues as directory rights (MS-DTYP 2.4.4.3): on the properties of the object, and
one extended right for each thing that one does with messages (MS-ADTS 6.1.1.2.7.10 to 6.1.1.2.7.18). An access check
for a queue needs the rights of MS-MQMQ 2.2.23 to 2.2.27; the bits of the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from qmnode.structures.access_masks import ConnectedNetworkAccess, QueueAccess, QueueManagerAccess
from qmnode.structures.guid import Guid, guid_from_text
from qmnode.structures.security_descriptor import AccessEntry, AccessMask, Ace, AceType, Acl, ObjectEntry
from qmnode.structures.security_descriptor import SecurityDescriptor as Descriptor

ADS_RIGHT_DS_CREATE_CHILD: Final = 0x00000001
ADS_RIGHT_DS_READ_PROP: Final = 0x00000010
ADS_RIGHT_DS_WRITE_PROP: Final = 0x00000020
ADS_RIGHT_DS_CONTROL_ACCESS: Final = 0x00000100

MSMQ_RECEIVE_DEAD_LETTER: Final = guid_from_text("4b6e08c0-df3c-11d1-9c86-006008764d0e")
MSMQ_PEEK_DEAD_LETTER: Final = guid_from_text("4b6e08c1-df3c-11d1-9c86-006008764d0e")
MSMQ_RECEIVE_COMPUTER_JOURNAL: Final = guid_from_text("4b6e08c2-df3c-11d1-9c86-006008764d0e")
MSMQ_PEEK_COMPUTER_JOURNAL: Final = guid_from_text("4b6e08c3-df3c-11d1-9c86-006008764d0e")
MSMQ_RECEIVE: Final = guid_from_text("06bd3200-df3e-11d1-9c86-006008764d0e")
MSMQ_PEEK: Final = guid_from_text("06bd3201-df3e-11d1-9c86-006008764d0e")
MSMQ_SEND: Final = guid_from_text("06bd3202-df3e-11d1-9c86-006008764d0e")
MSMQ_RECEIVE_JOURNAL: Final = guid_from_text("06bd3203-df3e-11d1-9c86-006008764d0e")
MSMQ_OPEN_CONNECTOR: Final = guid_from_text("b4e60130-df3f-11d1-9c86-006008764d0e")

_STANDARD: Final = AccessMask.DELETE | AccessMask.READ_CONTROL | AccessMask.WRITE_DACL | AccessMask.WRITE_OWNER
"""The same bits in both."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The rights that a directory right gives where it is allowed, and takes where it is denied.

    Receiving needs the rights to delete and to peek. An account that may not receive may still peek, so only the first
    is taken.
    """

    allowed: int
    denied: int

    @classmethod
    def same(cls, rights: int) -> Meaning:
        """One that gives what it takes."""
        return cls(rights, rights)


@dataclass(frozen=True, slots=True)
class DirectoryRights:
    """How to read the entries of one class of directory objects."""

    bits: Mapping[int, Meaning]
    extended: Mapping[Guid, Meaning]
    generic_read: int
    generic_write: int
    generic_all: int

    def read(self, descriptor: Descriptor) -> Descriptor:
        """The descriptor with entries of Message Queuing's rights. Audit entries are left out, order is kept."""
        if descriptor.dacl is None:
            return replace(descriptor, sacl=None)
        aces = [ace for entry in descriptor.dacl.aces if (ace := self._read_ace(entry)) is not None]
        return replace(descriptor, dacl=Acl.of(*aces), sacl=None)

    def _read_ace(self, ace: Ace) -> Ace | None:
        entry = ace.entry
        if not isinstance(entry, AccessEntry | ObjectEntry) or ace.ace_type not in _PLAIN_TYPES:
            return None
        plain = _PLAIN_TYPES[AceType(ace.ace_type)]
        object_type = entry.object_type if isinstance(entry, ObjectEntry) else None
        mask = self._rights(entry.mask, object_type, plain is AceType.ACCESS_ALLOWED)
        if not mask:
            return None
        return Ace(ace_type=plain, ace_flags=ace.ace_flags, entry=AccessEntry(mask=mask, sid=entry.sid))

    def _rights(self, mask: int, object_type: Guid | None, allows: bool) -> int:
        if object_type is not None:  # other GUIDs mean one property or one kind of child: nothing of a queue's rights
            known = self.extended.get(object_type) if mask & ADS_RIGHT_DS_CONTROL_ACCESS else None
            meanings = [known] if known else []
            rights = 0
        else:
            meanings = [meaning for bit, meaning in self.bits.items() if mask & bit]
            if mask & ADS_RIGHT_DS_CONTROL_ACCESS:
                meanings += self.extended.values()
            rights = mask & _STANDARD | self._generic(mask)
        for meaning in meanings:
            rights |= meaning.allowed if allows else meaning.denied
        return rights

    def _generic(self, mask: int) -> int:
        rights = 0
        for generic, meaning in (
            (AccessMask.GENERIC_READ, self.generic_read),
            (AccessMask.GENERIC_WRITE, self.generic_write),
            (AccessMask.GENERIC_ALL, self.generic_all),
        ):
            rights |= meaning if mask & generic else 0
        return rights


_PLAIN_TYPES: Final = {
    AceType.ACCESS_ALLOWED: AceType.ACCESS_ALLOWED,
    AceType.ACCESS_ALLOWED_OBJECT: AceType.ACCESS_ALLOWED,
    AceType.ACCESS_DENIED: AceType.ACCESS_DENIED,
    AceType.ACCESS_DENIED_OBJECT: AceType.ACCESS_DENIED,
    AceType.ACCESS_DENIED_CALLBACK: AceType.ACCESS_DENIED,
    AceType.ACCESS_DENIED_CALLBACK_OBJECT: AceType.ACCESS_DENIED,
}

QUEUE_RIGHTS: Final = DirectoryRights(
    bits={
        ADS_RIGHT_DS_READ_PROP: Meaning.same(QueueAccess.MQSEC_GET_QUEUE_PROPERTIES),
        ADS_RIGHT_DS_WRITE_PROP: Meaning.same(QueueAccess.MQSEC_SET_QUEUE_PROPERTIES),
    },
    extended={
        MSMQ_RECEIVE: Meaning(QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_DELETE_MESSAGE),
        MSMQ_PEEK: Meaning.same(QueueAccess.MQSEC_PEEK_MESSAGE),
        MSMQ_SEND: Meaning.same(QueueAccess.MQSEC_WRITE_MESSAGE),
        MSMQ_RECEIVE_JOURNAL: Meaning(
            QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE, QueueAccess.MQSEC_DELETE_JOURNAL_MESSAGE
        ),
    },
    generic_read=QueueAccess.MQSEC_GET_QUEUE_PROPERTIES | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    generic_write=QueueAccess.MQSEC_SET_QUEUE_PROPERTIES | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    generic_all=QueueAccess.MQSEC_QUEUE_GENERIC_ALL,
)
"""The rights on queues: mSMQQueue objects."""

QUEUE_MANAGER_RIGHTS: Final = DirectoryRights(
    bits={
        ADS_RIGHT_DS_CREATE_CHILD: Meaning.same(QueueManagerAccess.MQSEC_CREATE_QUEUE),
        ADS_RIGHT_DS_READ_PROP: Meaning.same(QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES),
        ADS_RIGHT_DS_WRITE_PROP: Meaning.same(QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES),
    },
    extended={
        MSMQ_RECEIVE_DEAD_LETTER: Meaning(
            QueueManagerAccess.MQSEC_RECEIVE_DEADLETTER_MESSAGE, QueueManagerAccess.MQSEC_DELETE_DEADLETTER_MESSAGE
        ),
        MSMQ_PEEK_DEAD_LETTER: Meaning.same(QueueManagerAccess.MQSEC_PEEK_DEADLETTER_MESSAGE),
        MSMQ_RECEIVE_COMPUTER_JOURNAL: Meaning(
            QueueManagerAccess.MQSEC_RECEIVE_JOURNAL_QUEUE_MESSAGE,
            QueueManagerAccess.MQSEC_DELETE_JOURNAL_QUEUE_MESSAGE,
        ),
        MSMQ_PEEK_COMPUTER_JOURNAL: Meaning.same(QueueManagerAccess.MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE),
    },
    generic_read=QueueManagerAccess.MQSEC_MACHINE_WORLD_RIGHTS,
    generic_write=(QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES | QueueManagerAccess.MQSEC_GET_MACHINE_PERMISSIONS),
    generic_all=QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL,
)
"""The rights on queue managers: mSMQConfiguration objects."""

CONNECTED_NETWORK_RIGHTS: Final = DirectoryRights(
    bits={
        ADS_RIGHT_DS_READ_PROP: Meaning.same(ConnectedNetworkAccess.MQSEC_GET_CN_PROPERTIES),
        ADS_RIGHT_DS_WRITE_PROP: Meaning.same(ConnectedNetworkAccess.MQSEC_SET_CN_PROPERTIES),
    },
    extended={MSMQ_OPEN_CONNECTOR: Meaning.same(ConnectedNetworkAccess.MQSEC_CN_OPEN_CONNECTOR)},
    generic_read=ConnectedNetworkAccess.MQSEC_CN_GENERIC_READ,
    generic_write=ConnectedNetworkAccess.MQSEC_SET_CN_PROPERTIES | ConnectedNetworkAccess.MQSEC_GET_CN_PERMISSIONS,
    generic_all=ConnectedNetworkAccess.SEC_CN_GENERIC_ALL,
)
"""Site objects that stand for a foreign connected network."""
