"""The ping mechanism: asking over UDP whether a queue manager would accept a session (2.1.2, 3.1.7.6 to 3.1.7.9)."""

from typing import Final

from qmnode.protocol.states import Timer
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.packets import Ping, PingFlags

RESPONSE_TIMEOUT: Final = 1.0
"""Ping Response Timer in seconds, 3.1.2.9."""
_COOKIE: Final = 0xFFFF_FFFF


class PingClient:
    """Sends Ping Requests. Any number may be under way, each with a cookie of its own.

    The specification compares a response only with the last cookie, so that of two concurrent pings the first would
    always fail.
    """

    def __init__(self, identifier: Guid, server_class: bool = True, cookie: int = 0) -> None:
        self._identifier = identifier
        self._flags = PingFlags.of(RC=not server_class)
        self._cookie = cookie
        self._waiting: dict[int, float] = {}

    def request(self, now: float) -> tuple[int, bytes]:
        """Send Ping Request, 3.1.7.6: its cookie, and the datagram for port 3527 of the acceptor."""
        self._cookie = (self._cookie + 1) & _COOKIE
        self._waiting[self._cookie] = now + RESPONSE_TIMEOUT
        return self._cookie, Ping(flags=self._flags, cookie=self._cookie, qm_guid=self._identifier).write()

    def receive(self, datagram: bytes) -> tuple[int, bool] | None:
        """Receive Ping Response, 3.1.7.8: the cookie, and whether a session would be accepted. None: ignore it."""
        try:
            response = Ping.parse(datagram)
        except PacketError:
            return None
        if self._waiting.pop(response.cookie, None) is None:
            return None
        return response.cookie, not response.flags & PingFlags.RF.mask

    def next_timer(self) -> tuple[Timer, float] | None:
        """When the first request times out."""
        return (Timer.PING_RESPONSE, min(self._waiting.values())) if self._waiting else None


def ping_response(datagram: bytes, identifier: Guid, refuse: bool) -> bytes | None:
    """Receive Ping Request, 3.1.7.7: the datagram to return to its sender. None: ignore it."""
    try:
        request = Ping.parse(datagram)
    except PacketError:
        return None
    flags = (request.flags & PingFlags.RC.mask) | PingFlags.of(RF=refuse)
    return Ping(flags=flags, cookie=request.cookie, qm_guid=identifier).write()
