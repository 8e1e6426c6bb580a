"""The access policy of a queue manager (MS-MQDMPR 3.1.7.1.3.1 and 3.1.7.1.5)."""

from dataclasses import replace
from functools import lru_cache
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.security.access_check import (
    QUEUE_MANAGER_MAPPING,
    QUEUE_MAPPING,
    GenericMapping,
    Token,
    access_check,
)
from qmnode.security.default_descriptors import (
    default_queue_security,
    machine_security,
    notification_queue_security,
    outgoing_queue_security,
    system_queue_security,
    upgraded_queue_security,
    with_applications,
    workgroup_queue_security,
)
from qmnode.security.principals import Principal
from qmnode.shares.parties import Kind
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import Control, SecurityDescriptor
from qmnode.structures.sid import ANONYMOUS, BUILTIN_ADMINISTRATORS, EVERYONE, NETWORK, Sid

ANYBODY: Final = Token(frozenset({ANONYMOUS, EVERYONE}))
"""The sender of a message that proves no identity, where ``security.everyone_includes_anonymous`` is on."""
_SID_HEAD: Final = 8
"""Bytes of a SID (MS-DTYP 2.4.2.2) before its sub-authorities."""
NOBODY_KNOWN: Final = Token(frozenset({ANONYMOUS}))
"""The same where it is off."""


class QueueAccessPolicy:
    """Gives queues their descriptors, and checks callers against them."""

    def __init__(
        self,
        *,
        machine: Sid | None = None,
        anonymous_readers: bool = False,
        anonymous_senders: bool = False,
        names_senders: bool = True,
        unproven: Token = ANYBODY,
    ) -> None:
        """``machine`` is the computer's account in the directory. ``unproven`` is in the place of the sender of a
        message that proves no identity. ``anonymous_readers``: remote read is on, so that
        nobody in particular reads the queues of a store of an earlier version. ``anonymous_senders``: see
        ``security.anonymous_sends_elsewhere``. ``names_senders``: see
        ``security.send_sender_identifiers``."""
        self._machine = machine
        self._anonymous_readers = anonymous_readers
        self._anonymous_senders = anonymous_senders
        self._names_senders = names_senders
        self.unproven = unproven

    def default_queue_security(self, supplied: bytes, caller: object = None) -> bytes:
        """The descriptor of a new queue, self-relative. MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR for a wrong one.

        The queue belongs to its creator; those of the queue manager itself belong to the administrators.
        """
        asked = _readable(supplied) if supplied else None
        if isinstance(caller, Principal) and caller.in_directory:
            return default_queue_security(
                caller.user, is_domain_user=True, machine=self._machine, supplied=asked
            ).write()
        owner = caller.user if isinstance(caller, Principal) else BUILTIN_ADMINISTRATORS
        return workgroup_queue_security(owner, asked).write()

    def changed_queue_security(self, current: bytes, supplied: bytes) -> bytes:
        """A descriptor for an existing queue, which fills its gaps. MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR."""
        asked = _readable(supplied) if supplied else SecurityDescriptor()
        before = parsed(current) or SecurityDescriptor()
        owner = asked.owner or before.owner or BUILTIN_ADMINISTRATORS
        group = asked.group or before.group or owner
        said = replace(asked, owner=owner, group=group)
        if asked.dacl is None and not Control.DP.get(asked.control):  # left out, unlike one that lets everybody in
            said = replace(said, dacl=before.dacl or workgroup_queue_security(owner).dacl)
        return said.write()

    def followed_queue_security(self, current: bytes, said: bytes) -> bytes:
        """The directory's descriptor of a queue; applications of an earlier version's store stay let in."""
        before, told = parsed(current), parsed(said)
        if told is None:
            return current
        return self.changed_queue_security(current, with_applications(told, before).write())

    def sender_identifier(self, caller: object) -> bytes:
        """The SID of a caller that is known beyond this machine: an account of a domain."""
        if not self._names_senders or not isinstance(caller, Principal) or not caller.user.is_domain_account:
            return b""
        return caller.user.write()

    def rights_of(self, caller: object) -> bytes:
        """The SIDs of a caller's token, for a message that is delivered later; the first byte says that some are
        missing.
        """
        token = caller.token if isinstance(caller, Principal) else caller
        assert isinstance(token, Token)
        return bytes((token.uncertain,)) + b"".join(sorted(sid.write() for sid in token.sids))

    def caller_with(self, rights: bytes) -> Token:
        """A token with the SIDs of ``rights_of``."""
        return _token(rights)

    def kind_of(self, caller: object) -> Kind:
        """Kind of a caller: anonymous ones are strangers, others from the network peers with an identity."""
        token = caller.token if isinstance(caller, Principal) else caller
        sids = token.sids if isinstance(token, Token) else frozenset({ANONYMOUS})
        if ANONYMOUS in sids:
            return Kind.STRANGER
        return Kind.DECLARED if NETWORK in sids else Kind.OWN

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller``, a Principal or a Token, has the rights to a queue."""
        return _check(security, rights, caller, QUEUE_MAPPING)

    def check_machine(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller`` has the rights to the queue manager."""
        return _check(security, rights, caller, QUEUE_MANAGER_MAPPING)

    def machine_security(self, upgraded: bool) -> bytes:
        """The queue manager's own descriptor; that of an ``upgraded`` store lets every application do everything."""
        return machine_security(upgraded).write()

    def system_queue_security(self, upgraded: bool) -> bytes:
        """That of a dead-letter queue or the machine's journal."""
        return system_queue_security(upgraded).write()

    def notification_queue_security(self) -> bytes:
        """That of the queue of change notifications: all may send them, for none is believed."""
        return notification_queue_security().write()

    def outgoing_queue_security(self, machine: bytes) -> bytes:
        """That of queues to other machines: they have the administrators of the queue manager."""
        return _outgoing(machine, self._anonymous_senders)

    def upgraded_queue_security(self, security: bytes) -> bytes:
        """That of a queue of a store of an earlier version: it lets in who got in before."""
        if not security:
            before: SecurityDescriptor | None = SecurityDescriptor()
        else:
            before = parsed(security)
        return security if before is None else upgraded_queue_security(before, self._anonymous_readers).write()


def _check(security: bytes, rights: int, caller: object, mapping: GenericMapping) -> bool:
    match caller:
        case Principal(token=token) | (Token() as token):
            return _allowed(security, rights, token, mapping)
        case _:
            return False


@lru_cache(maxsize=4096)
def _allowed(security: bytes, rights: int, token: Token, mapping: GenericMapping) -> bool:
    """The access check, remembered. A descriptor that is missing or cannot be read grants nothing."""
    descriptor = parsed(security)
    return descriptor is not None and access_check(descriptor, token, rights, mapping).allowed


@lru_cache(maxsize=256)
def _token(rights: bytes) -> Token:
    sids, at = set(), 1
    while at < len(rights):
        size = _SID_HEAD + 4 * rights[at + 1]
        sids.add(Sid.parse(rights[at : at + size]))
        at += size
    return Token(frozenset(sids), uncertain=bool(rights[0]))


@lru_cache(maxsize=16)
def _outgoing(machine: bytes, anonymous: bool) -> bytes:
    return outgoing_queue_security(parsed(machine) or SecurityDescriptor().with_dacl(), anonymous=anonymous).write()


@lru_cache(maxsize=1024)
def parsed(security: bytes) -> SecurityDescriptor | None:
    """A self-relative descriptor; None for nothing, and for what cannot be read."""
    if not security:
        return None
    try:
        return SecurityDescriptor.parse(security)
    except PacketError:
        return None


def _readable(supplied: bytes) -> SecurityDescriptor:
    try:
        return SecurityDescriptor.parse(supplied)
    except PacketError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, str(error)) from None
