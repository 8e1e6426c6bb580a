"""Who may open a queue: the access policy of a queue manager (MS-MQDMPR 3.1.7.1.3.1 and 3.1.7.1.5)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from qmnode.errors import MessageQueuingError
from qmnode.security.access_check import Token, access_check
from qmnode.security.default_descriptors import default_queue_security
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import SecurityDescriptor

if TYPE_CHECKING:
    from qmnode.structures.sid import Sid


class QueueAccessPolicy:
    """Gives new queues their descriptors, and checks tokens against them."""

    def __init__(self, owner: Sid, *, is_domain_user: bool = False, machine: Sid | None = None) -> None:
        """``owner`` is under whose identity the node creates queues; ``machine`` its account in the directory."""
        self._owner = owner
        self._is_domain_user = is_domain_user
        self._machine = machine

    def default_queue_security(self, supplied: bytes) -> bytes:
        """The descriptor of a new queue, self-relative. MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR for a wrong one."""
        asked = None
        if supplied:
            try:
                asked = SecurityDescriptor.parse(supplied)
            except PacketError as error:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, str(error)) from None
        return default_queue_security(
            self._owner, is_domain_user=self._is_domain_user, machine=self._machine, supplied=asked
        ).write()

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller``, a Token, has the rights. A queue without a descriptor has the default one."""
        if not isinstance(caller, Token):
            return False
        return access_check(_parsed(security or self.default_queue_security(b"")), caller, rights).allowed


@lru_cache(maxsize=1024)
def _parsed(security: bytes) -> SecurityDescriptor:
    return SecurityDescriptor.parse(security)
