"""One account for the bytes that sessions hold in memory: incomplete packets, and messages that wait to be stored."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.allocator import return_freed_memory
from qmnode.shares.account import Account
from qmnode.shares.parties import Kind, Party, stranger

if TYPE_CHECKING:
    from qmnode.transport.connection import Connection

log = structlog.get_logger(__name__)

SMALL: Final = 16 * 1024
"""Bytes that a connection holds free of charge: it has its buffers anyway."""
OF_EACH: Final = 512
"""Bytes that the node needs for a received message beside its packet."""
_SILENCE: Final = 1.0
"""Seconds after which an incomplete packet that does not grow makes room for others."""
_PEAK: Final = 16
"""Part of the total above which a peak begins: the memory that it freed is returned to the system after it."""
_AFTER_PEAK: Final = 3.0
"""Seconds from the end of a peak to the return of its memory, unless a new one has begun."""
_NEWCOMER: Final = stranger("")


class HeldBytes:
    """Charges the bytes of each connection to the party of its peer.

    The connections of a party that holds more than its share are not read until some of their messages are stored. Only
    one of those with an incomplete packet is read on: the one that has held bytes for longest. It is closed if nothing
    comes from it while others wait.
    """

    def __init__(self, account: Account, party: Callable[["Connection"], Party]) -> None:
        self._account = account
        self._party = party
        self._holders: dict[Party, dict[Connection, None]] = {}
        """The connections that are charged, the oldest charge first."""
        self._preferred: Party | None = None
        self._check: asyncio.TimerHandle | None = None
        self._is_peak = False
        self.are_scarce = False
        """Whether a stranger that holds nothing could hold hardly anything. Strangers are then read in small pieces,
        because all of them could be read at the same time.
        """

    def hold(self, connection: "Connection", count: int) -> None:
        """Charge the bytes that a connection holds now."""
        account, payer = self._account, connection.payer
        before, after = connection.charged, count if count > SMALL else 0
        if payer is None:
            payer = connection.payer = self._party(connection)
        if after > before:
            account.charge(payer, after - before)
            if not before:
                self._holders.setdefault(payer, {})[connection] = None
        elif after < before:
            account.give_back(payer, before - after)
        connection.charged = after
        if before and not after:
            self._release(connection, payer)
        self.are_scarce = account.room(_NEWCOMER) < account.total / 64
        if after > before:
            self._is_peak = self._is_peak or sum(account.used.values()) > account.total / _PEAK
        elif self._is_peak and not self._holders:
            self._is_peak = False
            asyncio.get_running_loop().call_later(_AFTER_PEAK, self._return_memory)

    def is_to_wait(self, connection: "Connection") -> bool:
        """Whether a connection that holds bytes is not to be read now."""
        payer = connection.payer
        if payer is None or self._account.room(payer) > 0 or self._is_next(connection, payer):
            return False
        self._account.refused[payer.kind] += 1
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(_SILENCE, self._look)
        return True

    def _is_next(self, connection: "Connection", payer: Party) -> bool:
        """Whether an incomplete packet is to become complete before others of its party, and of all strangers if these
        hold everything that they may.
        """
        if connection.session.unsettled() or next(iter(self._holders[payer])) is not connection:
            return False
        if not self.are_scarce or payer.kind is not Kind.STRANGER:
            return True
        if self._preferred not in self._holders:
            self._prefer()
        return payer == self._preferred

    def _prefer(self) -> None:
        """Let the stranger that holds the most complete its packets, or lose them, before others."""
        strangers = [one for one in self._holders if one.kind is Kind.STRANGER]
        self._preferred = max(strangers, key=self._account.held, default=None)

    def _release(self, connection: "Connection", payer: Party) -> None:
        """The peer may have proven more when it pays next. Others of its party may be read now."""
        connection.payer = None
        holders = self._holders[payer]
        del holders[connection]
        if not holders:
            del self._holders[payer]
        for one in list(holders):
            if self._account.room(payer) <= 0 and not self._is_next(one, payer):
                break
            one.read_again()

    def _return_memory(self) -> None:
        if not self._is_peak:
            asyncio.get_running_loop().run_in_executor(None, return_freed_memory)

    def _look(self) -> None:
        """Close the connections whose incomplete packets keep others waiting, and let the next ones be read."""
        self._check = None
        self._prefer()
        now = asyncio.get_running_loop().time()
        for payer, holders in list(self._holders.items()):
            if self._account.room(payer) > 0:
                waiting = list(holders)
            else:
                first = next(iter(holders))
                waiting = [first]
                if not first.session.unsettled() and now - first.fed > _SILENCE and self._is_next(first, payer):
                    log.warning("a packet that does not come to its end is given up", address=first.address,
                                bytes=first.charged)  # fmt: skip
                    first.close()
            for one in waiting:
                one.read_again()
