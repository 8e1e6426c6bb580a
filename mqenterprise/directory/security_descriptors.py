"""Security descriptors as Active Directory has them, and as Message Queuing means them.

Active Directory guards messages by the extended rights of msmq: object entries with RIGHT_DS_CONTROL_ACCESS (MS-ADTS
5.1.3.2). It guards properties by the rights to read and write them, and children by the right to create them. The
standard rights have the same bits on both sides. The tables map rights to bits of MS-MQMQ 2.2.23 to 2.2.25. They write
what MS-MQDSSM 5.1 asks for: to read an object takes RIGHT_GENERIC_READ, to change it RIGHT_GENERIC_WRITE.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final

from mqenterprise.directory.schema import load_schema
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_text
from qmnode.structures.security_descriptor import (
    AccessEntry,
    AccessMask,
    Ace,
    AceFlags,
    AceType,
    Acl,
    EnterpriseAccess,
    ObjectAceFlags,
    ObjectEntry,
    QueueAccess,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
    SiteAccess,
    allow,
)

CREATE_CHILD: Final = 0x0001
LIST_CONTENTS: Final = 0x0004
WRITE_SELF: Final = 0x0008
READ_PROPERTY: Final = 0x0010
WRITE_PROPERTY: Final = 0x0020
LIST_OBJECT: Final = 0x0080
CONTROL_ACCESS: Final = 0x0100
FULL_CONTROL: Final = 0x000F_01FF
STANDARD_RIGHTS: Final = 0x000F_0000

_OBJECT: Final[Mapping[int, AceType]] = {
    AceType.ACCESS_ALLOWED: AceType.ACCESS_ALLOWED_OBJECT,
    AceType.ACCESS_DENIED: AceType.ACCESS_DENIED_OBJECT,
}
_PLAIN: Final = {
    **{value: AceType(key) for key, value in _OBJECT.items()},
    # A condition that nobody here evaluates may hold: the entry denies.
    AceType.ACCESS_DENIED_CALLBACK: AceType.ACCESS_DENIED,
    AceType.ACCESS_DENIED_CALLBACK_OBJECT: AceType.ACCESS_DENIED,
}
_GENERIC: Final = {
    AccessMask.GENERIC_READ: READ_PROPERTY | LIST_CONTENTS | LIST_OBJECT | AccessMask.READ_CONTROL,
    AccessMask.GENERIC_WRITE: WRITE_PROPERTY | WRITE_SELF | AccessMask.READ_CONTROL,
    AccessMask.GENERIC_ALL: FULL_CONTROL,
}
"""Generic rights as those of a directory object (MS-ADTS 5.1.3.2)."""
_WITH: Final = {READ_PROPERTY: LIST_CONTENTS | LIST_OBJECT, WRITE_PROPERTY: WRITE_SELF}
"""Rights that are written together with a right, so that both are the generic right to read or to write."""


@dataclass(frozen=True, slots=True)
class RightsTable:
    """How the rights on one kind of object are said on either side."""

    extended: Mapping[str, int]
    """Extended rights, and the bits that each stands for; the wide ones first."""
    plain: Mapping[int, int]
    """Rights of a directory object, and the bits that each stands for."""

    @property
    def all(self) -> int:
        """All bits that the two sides share."""
        return reduce(or_, self.plain.values(), STANDARD_RIGHTS | self.guarded)

    @property
    def guarded(self) -> int:
        """All bits that extended rights stand for."""
        return reduce(or_, self.extended.values(), 0)


QUEUE_RIGHTS: Final = RightsTable(
    extended={
        "msmq-Receive": QueueAccess.MQSEC_RECEIVE_MESSAGE,
        "msmq-Receive-journal": QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE,
        "msmq-Peek": QueueAccess.MQSEC_PEEK_MESSAGE,
        "msmq-Send": QueueAccess.MQSEC_WRITE_MESSAGE,
    },
    plain={
        READ_PROPERTY: QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
        WRITE_PROPERTY: QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    },
)
QUEUE_MANAGER_RIGHTS: Final = RightsTable(
    extended={
        "msmq-Receive-Dead-Letter": QueueManagerAccess.MQSEC_RECEIVE_DEADLETTER_MESSAGE,
        "msmq-Peek-Dead-Letter": QueueManagerAccess.MQSEC_PEEK_DEADLETTER_MESSAGE,
        "msmq-Receive-computer-Journal": QueueManagerAccess.MQSEC_RECEIVE_JOURNAL_QUEUE_MESSAGE,
        "msmq-Peek-computer-Journal": QueueManagerAccess.MQSEC_PEEK_JOURNAL_QUEUE_MESSAGE,
    },
    plain={
        CREATE_CHILD: QueueManagerAccess.MQSEC_CREATE_QUEUE,
        READ_PROPERTY: QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
        WRITE_PROPERTY: QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES,
    },
)
SITE_RIGHTS: Final = RightsTable(
    extended={},
    plain={
        CREATE_CHILD: SiteAccess.MQSEC_CREATE_FRS | SiteAccess.MQSEC_CREATE_BSC | SiteAccess.MQSEC_CREATE_MACHINE,
        READ_PROPERTY: SiteAccess.MQSEC_GET_SITE_PROPERTIES,
        WRITE_PROPERTY: SiteAccess.MQSEC_SET_SITE_PROPERTIES,
    },
)

ENTERPRISE_RIGHTS: Final = RightsTable(
    extended={},
    plain={
        # Only routing links are beneath the object, not users.
        CREATE_CHILD: EnterpriseAccess.MQSEC_CREATE_SITE | EnterpriseAccess.MQSEC_CREATE_CN,
        READ_PROPERTY: EnterpriseAccess.MQSEC_GET_ENTERPRISE_PROPERTIES,
        WRITE_PROPERTY: EnterpriseAccess.MQSEC_SET_ENTERPRISE_PROPERTIES,
    },
)


def to_message_queuing(descriptor: bytes, rights: RightsTable) -> bytes:
    """A descriptor of Active Directory with the masks of Message Queuing. Raises ValueError for bytes that are none."""
    return _converted(descriptor, lambda ace: _entry_of_message_queuing(ace, rights))


def to_active_directory(descriptor: bytes, rights: RightsTable) -> bytes:
    """A descriptor with the masks of Message Queuing as Active Directory has it. Raises ValueError."""
    return _converted(descriptor, lambda ace: _entries_of_active_directory(ace, rights))


def with_full_control(descriptor: bytes, sid: bytes) -> bytes | None:
    """The DACL of a descriptor that also gives somebody everything here and beneath; nothing if it does already.

    Only the DACL is in the answer: the owner is not ours to write. Raises ValueError.
    """
    try:
        present = SecurityDescriptor.parse(descriptor)
        entry = allow(Sid.parse(sid), FULL_CONTROL, flags=AceFlags.of(CONTAINER_INHERIT_ACE=1))
    except PacketError as error:
        raise ValueError(str(error)) from error
    aces = present.dacl.aces if present.dacl else ()
    if entry in aces:
        return None
    # Denials stay first and what is inherited last, the order that everyone expects (MS-DTYP 2.4.5).
    place = next((i for i, ace in enumerate(aces) if AceFlags.INHERITED_ACE.get(ace.ace_flags)), len(aces))
    dacl = Acl.of(*aces[:place], entry, *aces[place:])
    return SecurityDescriptor(dacl=dacl, control=present.control & ~0x0010).write()


def _converted(descriptor: bytes, convert: Callable[[Ace], Iterator[Ace]]) -> bytes:
    try:
        present = SecurityDescriptor.parse(descriptor)
    except PacketError as error:
        raise ValueError(str(error)) from error
    if present.dacl is None:
        return descriptor
    aces = tuple(converted for ace in present.dacl.aces for converted in convert(ace))
    return replace(present, dacl=Acl.of(*aces)).write()


def _entry_of_message_queuing(ace: Ace, rights: RightsTable) -> Iterator[Ace]:
    """One entry of Active Directory as Message Queuing means it; entries about something else are left out."""
    match ace.entry:
        case ObjectEntry(mask=mask, object_type=right, sid=sid) if ace.ace_type in _PLAIN:
            if right is None:
                value = _plain_meaning(mask, rights)
            else:
                names = _extended_names()
                value = rights.extended.get(names.get(bytes(right), ""), 0) if mask & CONTROL_ACCESS else 0
            kind = _PLAIN[AceType(ace.ace_type)]
        case AccessEntry(mask=mask, sid=sid) if ace.ace_type in _OBJECT or ace.ace_type in _PLAIN:
            value = _plain_meaning(mask, rights)
            kind = _PLAIN.get(AceType(ace.ace_type), AceType(ace.ace_type))
        case _:
            return
    if value:
        yield Ace(ace_type=kind, ace_flags=ace.ace_flags, entry=AccessEntry(mask=int(value), sid=sid))


def _plain_meaning(mask: int, rights: RightsTable) -> int:
    for generic, meant in _GENERIC.items():
        mask |= meant if mask & generic else 0
    value = mask & STANDARD_RIGHTS
    for bit, meaning in rights.plain.items():
        value |= int(meaning) if mask & bit else 0
    return value | (int(rights.guarded) if mask & CONTROL_ACCESS else 0)


def _entries_of_active_directory(ace: Ace, rights: RightsTable) -> Iterator[Ace]:
    """One entry of Message Queuing as the entries that Active Directory has for it."""
    if not isinstance(ace.entry, AccessEntry) or ace.ace_type not in _OBJECT:
        return
    mask, sid = ace.entry.mask, ace.entry.sid
    plain = mask & STANDARD_RIGHTS
    for bit, meaning in rights.plain.items():
        plain |= bit | _WITH.get(bit, 0) if mask & meaning else 0
    left = mask & rights.guarded
    if mask & rights.all == rights.all:
        plain, left = FULL_CONTROL, 0
    elif rights.guarded and left == rights.guarded:
        plain, left = plain | CONTROL_ACCESS, 0
    if plain:
        yield Ace(ace_type=ace.ace_type, ace_flags=ace.ace_flags, entry=AccessEntry(mask=plain, sid=sid))
    for name, bits in rights.extended.items():
        if mask & bits == bits and left & bits:
            left &= ~bits
            guid = guid_from_text(load_schema().extended_rights[name].guid)
            entry = ObjectEntry(
                mask=CONTROL_ACCESS, flags=ObjectAceFlags.of(ACE_OBJECT_TYPE_PRESENT=1), object_type=guid, sid=sid
            )
            yield Ace(ace_type=_OBJECT[ace.ace_type], ace_flags=ace.ace_flags, entry=entry)


def _extended_names() -> Mapping[bytes, str]:
    return {bytes(guid_from_text(right.guid)): name for name, right in load_schema().extended_rights.items()}
