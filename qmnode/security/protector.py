"""The one object through which a node protects what it sends and opens what it receives.

Both happen once: at the source, for the destination queue manager, and at the destination; routing servers between them
pass the packet on as it is. No I/O, and any thread may call. Questions to the directory come before (``destinations``)
and after (``identity``).
"""

from collections.abc import Iterable

from qmnode.security.incoming import IncomingSecurity
from qmnode.security.key_ring import KeyRing
from qmnode.security.outcomes import Deferred, Neighbour, Opened, Protected, ProtectionRequest, Refused, Unprotectable
from qmnode.security.outgoing import OutgoingSecurity
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import Guid


class MessageProtector:
    """Signing, encrypting, decrypting and verifying with the settings, keys and caches of one node."""

    def __init__(self, identifier: Guid, settings: SecuritySettings, ring: KeyRing | None = None) -> None:
        unread = KeyRing(unavailable="it has not been read yet")
        self._incoming = IncomingSecurity(identifier, settings, unread if ring is None else ring)
        self._outgoing = OutgoingSecurity(settings)

    @property
    def ring(self) -> KeyRing:
        """The key pairs in use."""
        return self._incoming.ring

    def use_ring(self, ring: KeyRing) -> int:
        """Go on with these key pairs. Session keys that a pair no longer in the ring unwrapped are forgotten.

        A ring that is unavailable forgets nothing: what is cached still serves. Returns how many were forgotten.
        """
        self._incoming.ring = ring
        if ring.unavailable is not None:
            return 0
        names = {pair.fingerprint for pair in ring}
        return self._incoming.cache.forget(lambda _, key: key.fingerprint not in names)

    def protect_all(self, requests: Iterable[ProtectionRequest], now: float) -> list[Protected | Unprotectable]:
        """Sign and encrypt each message as it asks, in one call for a batch in a worker thread. One to a direct format
        name leaves unsigned (MS-MQQB 5.1).
        """
        return [self._outgoing.protect(request, now) for request in requests]

    def open_all(self, packets: Iterable[tuple[bytes, Neighbour]], now: float) -> list[Opened | Refused | Deferred]:
        """Decrypt messages that are at their destination, each with who brought it, and verify their signatures, in one
        call for a batch in a worker thread.
        """
        return [self._incoming.open(packet, now, neighbour) for packet, neighbour in packets]

    def clean_up(self, now: float) -> float | None:
        """The cleanup timers of the symmetric key caches (3.1.6.10 to 3.1.6.12); when to come back, if at all."""
        due = [cache.clean_up(now) for cache in (self._incoming.cache, self._outgoing.cache)]
        return min((each for each in due if each is not None), default=None)
