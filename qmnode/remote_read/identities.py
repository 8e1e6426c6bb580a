"""The identities of remote callers for the access check: the SIDs of a principal, and the rights of anonymous
callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult, GroupExpansion
from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.security.access_check import Token
from qmnode.security.accounts import security_identifier_of
from qmnode.security.identity import anonymous
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.sid import AUTHENTICATED_USERS, EVERYONE, NETWORK, Sid

if TYPE_CHECKING:
    from qmnode.dcerpc.server import Caller
    from qmnode.directory.port import Directory
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager
    from qmnode.remote_read.opened import RemoteQueue
    from qmnode.settings.security import SecuritySettings

log = structlog.get_logger(__name__)


class Identities:
    """Tokens of remote callers for the access check."""

    def __init__(self, manager: QueueManager, settings: SecuritySettings, directory: Directory) -> None:
        self._manager = manager
        self._settings = settings
        self._directory = directory
        self._accounts = {account.casefold(): account for account in settings.account_security_identifiers}

    async def token(self, principal: str) -> Token:
        r"""The token of a principal, ``DOMAIN\user`` or ``user@REALM``; the anonymous user's for an empty one.

        An authenticated user without a known SID gets only the SID of Authenticated Users. Raises MQ_ERROR_NO_DS if the
        directory cannot report the user's groups.
        """
        if not principal:
            return Token(anonymous(self._settings).sids)
        sids = {EVERYONE, AUTHENTICATED_USERS, NETWORK}
        for name in (principal, short_name(principal)):
            account = self._accounts.get(name.casefold(), name)
            try:
                user = await security_identifier_of(account, self._settings, self._directory)
            except MessageQueuingError as error:
                log.info("no SID for a remote user", account=account, reason=str(error))
                continue
            return Token(frozenset(sids | {user} | await self._groups(user)))
        return Token(frozenset(sids))

    async def _groups(self, user: Sid) -> set[Sid]:
        if not isinstance(self._directory, GroupExpansion):
            return set()
        try:
            return {Sid.parse(group) for group in await self._directory.expand_groups(user.write())}
        except PacketError as error:
            reason = str(error)
        except DirectoryOperationError as error:
            if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:  # only this node's settings know the user
                return set()
            reason = error.sentence
        # An access list may deny a group rights that it allows everyone.
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_NO_DS, f"the groups of {user} are not known now, so nothing is allowed: {reason}"
        )

    async def may_use(self, caller: Caller, queue: RemoteQueue) -> bool:
        """Whether a caller may use a queue whose number it knows: one of its own, or one that it could open itself."""
        opener = queue.opener
        if caller.principal == opener.principal and (
            caller.principal or caller.association in (opener.association, queue.owner)
        ):
            return True
        if not self.may_be_seen(caller, queue.descriptor.queue):
            return False
        token = await self.token(caller.principal)
        return self._manager.opening.may_open(queue.descriptor.queue, queue.descriptor.access, token)

    @staticmethod
    def may_be_seen(caller: Caller, queue: Queue) -> bool:
        """Whether a caller may see the queue. System queues have no descriptor of their own to limit anonymous
        callers.
        """
        return bool(caller.principal) or queue.queue_type is not QueueType.SYSTEM or queue.parent is not None


def short_name(principal: str) -> str:
    """The account without its domain or realm."""
    return principal.rpartition("\\")[2].partition("@")[0]
