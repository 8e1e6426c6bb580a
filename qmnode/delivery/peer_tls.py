"""The choice between TLS and plain connections for each peer, by ``security.tls`` and by what peers have shown.

How a peer is to be spoken with is decided here, for each attempt. Both orders may end on the other side: a node that
prefers TLS falls back for a peer that has never shown TLS (:class:`ShownTls`), and one that offers it uses it where a
plain connection was turned away. The way that worked last is remembered for a while.

Peers that have shown that they speak TLS are kept in the store: with them nothing falls back to a plain connection.
Only a session that opened counts, over a connection on which both sides verified a certificate. So nobody can replay it
or make it up, and nobody but the holder of the certificate can have a peer remembered.

Machines that are declared to speak in clear (``security.tls.plain_peers``) are known by their addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from qmnode.delivery.arrivals import ProtocolState
from qmnode.delivery.topology import MachineAddresses, ResolutionError, Topology, addresses_of
from qmnode.model.api import TransportSecurity
from qmnode.protocol.commands import Family, Record
from qmnode.protocol.connection import NextHop
from qmnode.security.errors import KeyStoreError
from qmnode.security.tls import (
    EVERY_PEER,
    acceptor_context,
    initiator_context,
    is_for_clients_alone,
    is_named,
    pinned_context,
    queue_manager_in,
    queue_manager_of,
)
from qmnode.settings.security import TlsMode, TlsSettings
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.transport.connection import Connection, DialingError, dial, is_reachable

if TYPE_CHECKING:
    from qmnode.delivery.network import Network


_ACCEPTED: Final = 1
"""It took a TLS connection of this node."""
_OPENED: Final = 2
"""It opened one to this node."""
_NAMES_KEPT: Final = 65_536
"""An application may send to many names of one host."""


class ShownTls:
    """A record for each queue manager, and for each host name or address that the node connected to."""

    def __init__(self, state: ProtocolState) -> None:
        self._state = state
        self._shown = {key: value[0] for key, value in state.records(Family.PEER_TLS) if value}

    def accepted(self, machine: Guid | None, name: str) -> None:
        """A peer took a session over TLS: whom its certificate names, if anybody, and the name that it was reached
        under."""
        if machine is not None:
            self._add(_of_machine(machine), _ACCEPTED)
        if len(self._shown) < _NAMES_KEPT:
            self._add(_of_name(name), _ACCEPTED)

    def opened(self, machine: Guid) -> None:
        """A peer opened a session over TLS, and its certificate names this queue manager."""
        self._add(_of_machine(machine), _OPENED)

    def speaks(self, machine: Guid, name: str) -> bool:
        """Whether the queue manager, or the host of that name, has ever shown it."""
        return _of_machine(machine) in self._shown or _of_name(name) in self._shown

    def opens(self, machine: Guid) -> bool:
        """Whether the queue manager has ever opened a session over TLS."""
        return bool(self._shown.get(_of_machine(machine), 0) & _OPENED)

    def _add(self, key: bytes, what: int) -> None:
        before = self._shown.get(key, 0)
        if before & what:
            return
        self._shown[key] = before | what
        self._state.write([Record(Family.PEER_TLS, key, bytes([before | what]))])
        self._state.write_lazily()


def _of_machine(machine: Guid) -> bytes:
    return b"g" + machine


def _of_name(name: str) -> bytes:
    return b"n" + name.lower().encode()


log = structlog.get_logger(__name__)

SITE: Final = "site:"
_ADDRESS_PATIENCE: Final = 5.0
"""Seconds for the addresses of all."""


class PlainPeers:
    """The machines and addresses behind the entries, as the directory and the name service had them last."""

    def __init__(self, entries: Iterable[str], topology: Topology | None, addresses: MachineAddresses | None) -> None:
        self._entries = sorted(entries, key=str.lower)
        self._topology = topology
        self._machine_addresses = addresses
        self._machines: dict[Guid, str] = {}
        self._addresses = frozenset(one for one in self._entries if _is_address(one))

    def __bool__(self) -> bool:
        return bool(self._entries)

    async def refresh(self) -> None:
        """Find the machines and their addresses; what cannot be found in time stays as it was."""
        self.find_machines()
        found = {one for one in self._entries if _is_address(one)}
        names = [one for one in self._entries if not _is_address(one) and not one.lower().startswith(SITE)]
        try:
            async with asyncio.timeout(_ADDRESS_PATIENCE):
                for addresses in await asyncio.gather(*map(self._addresses_of, names), *map(self._of, self._machines)):
                    found |= addresses
        except TimeoutError:
            log.info("the addresses of plain peers were not found in time")
            found |= self._addresses
        self._addresses = frozenset(found)

    def find_machines(self) -> None:
        """The topology may be another."""
        if self._topology is not None:
            self._machines = self._topology.find_machines(
                {one.partition(".")[0].lower() for one in self._entries if not _is_address(one)},
                {one[len(SITE) :].lower() for one in self._entries if one.lower().startswith(SITE)},
            )

    def includes(self, hop: NextHop) -> bool:
        """Whether a next hop is one of them. Where the directory says which machine it is, its address says nothing."""
        if hop.identifier in self._machines or is_named(self._entries, hop.host_name, hop.address):
            return True
        return hop.identifier == ZERO_GUID and hop.address in self._addresses

    def is_at(self, address: str) -> bool:
        """Whether one of them has this address."""
        return address in self._addresses

    def is_one(self, machine: Guid) -> bool:
        """Whether a queue manager is one of them, by the directory."""
        return machine in self._machines

    def names(self) -> tuple[str, ...]:
        """Each machine, and each entry of which the directory has no machine."""
        machines = sorted(self._machines.values(), key=str.lower)
        known = {name.lower() for name in machines}
        rest = [one for one in self._entries if one.partition(".")[0].lower() not in known]
        sites = {} if self._topology is None else self._topology.sites_of(self._machines)
        return (*machines, *(one for one in rest if one.lower().removeprefix(SITE) not in sites))

    async def _of(self, machine: Guid) -> frozenset[str]:
        return frozenset() if self._machine_addresses is None else await self._machine_addresses.of(machine)

    @staticmethod
    async def _addresses_of(name: str) -> frozenset[str]:
        try:
            return frozenset(hop.address for hop in await addresses_of(name))
        except ResolutionError as error:
            log.info("the addresses of a plain peer are not known", peer=name, reason=str(error))
            return frozenset()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_REMEMBERED: Final = 60.0
"""Seconds for which the second way goes first where the first one failed; then the first is tried again."""
_KEPT: Final = 4_096
_LOOK: Final = 60.0
"""Seconds between two looks at plain sessions with peers that may speak TLS by now, and at addresses."""
_PATIENCE: Final = 6.0
"""Seconds that the start waits for the addresses of plain peers."""
_TROUBLE: Final = "TLS"


class TlsChoice(Enum):
    """How to connect to a peer."""

    PLAIN = auto()
    TLS = auto()
    PLAIN_FIRST = auto()
    TLS_FIRST = auto()


class PeerTls:
    """Decides for each peer, connects to it, and remembers what it has shown."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._settings: TlsSettings | None = None
        self._initiator: ssl.SSLContext | None = None
        self._pinned: dict[str, ssl.SSLContext] = {}
        self._pins: dict[Guid, set[bytes]] = {}
        """Queue managers that pinned certificates name, and these certificates, DER."""
        self._plain = PlainPeers((), None, None)
        self._shown = ShownTls(network.state)
        self._other_way: dict[str, float] = {}
        """Peers with which the second way goes first, and until when."""
        self._turned: dict[str, float] = {}
        """When the way to a peer was changed last: not twice in one attempt."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def start(self, settings: TlsSettings | None) -> None:
        """Begin, before the node listens. KeyStoreError if the files cannot be used."""
        self._take(settings)
        if self._plain:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._refresh()
        self._task = asyncio.create_task(self._keep_up(), name="TLS with peers")

    async def stop(self) -> None:
        """End the look at sessions and addresses."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def reload(self, settings: TlsSettings | None) -> bool:
        """Take over other settings, and files that were replaced. Sessions that they do not allow are opened anew; the
        others go on. With settings or files that cannot be used, those of before serve. Return whether they were taken.
        """
        troubles = self._network.manager.troubles
        try:
            self._take(settings)
        except KeyStoreError as error:
            log.error("TLS with other nodes stays as it was", reason=str(error))
            troubles[_TROUBLE] = f"stays as it was before the reload: {error}"
            return False
        troubles.pop(_TROUBLE, None)
        self._other_way.clear()
        self._turned.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = asyncio.create_task(self._reopen_and_keep_up(), name="TLS with peers")
        return True

    def topology_changed(self) -> None:
        """The directory may have other machines."""
        self._plain.find_machines()
        self._tell()

    def _take(self, settings: TlsSettings | None) -> None:
        network = self._network
        initiator, acceptor, pinned, pins = None, None, {}, {}
        if settings is not None:
            acceptor = acceptor_context(settings)
            initiator = initiator_context(settings) if settings.authorities is not None else None
            pinned = {name.lower(): pinned_context(settings, file) for name, file in settings.pinned.items()}
            pins = _pins_of(settings)
        self._settings, self._initiator, self._pinned, self._pins = settings, initiator, pinned, pins
        entries = frozenset[str]() if settings is None else settings.plain_peers
        self._plain = PlainPeers(entries, network.topology, network.neighbours.addresses)
        self._plain.find_machines()
        network.listener.use_tls(acceptor, self._turns_away)
        self._tell()

    def _tell(self) -> None:
        settings = self._settings
        mode = "" if settings is None else settings.mode.value
        certificate = None if settings is None else settings.certificate
        self._network.manager.transport_security = TransportSecurity(mode, self._plain.names(), certificate)

    def is_plain_peer_at(self, address: str) -> bool:
        """Whether a machine that is declared to speak in clear has this address."""
        return self._plain.is_at(address)

    # Connections of this node

    def way(self, hop: NextHop) -> TlsChoice:
        """How a next hop is to be connected to."""
        settings = self._settings
        if settings is None:
            return TlsChoice.PLAIN
        if is_named({*settings.peers, *self._pinned}, hop.address, hop.host_name):
            return TlsChoice.TLS
        if self._plain.includes(hop):
            return TlsChoice.PLAIN
        if settings.mode is TlsMode.REQUIRE or EVERY_PEER in settings.peers:
            return TlsChoice.TLS
        if self._initiator is None:
            return TlsChoice.PLAIN  # it has no certificate that could be believed
        if settings.mode is TlsMode.OFFER:
            return TlsChoice.PLAIN_FIRST
        return TlsChoice.TLS if self._shown.speaks(hop.identifier, _name(hop)) else TlsChoice.TLS_FIRST

    async def dial(self, connection: Connection, hop: NextHop) -> None:
        """Open a connection to a next hop. DialingError."""
        way = self.way(hop)
        tls = self._is_tls(way, hop)
        try:
            await self._dial(connection, hop, tls=tls)
        except DialingError as error:
            if not (tls and error.in_handshake and way in (TlsChoice.TLS_FIRST, TlsChoice.PLAIN_FIRST)):
                raise
            if way is TlsChoice.TLS_FIRST:
                self._turn(hop)
            else:
                self._other_way.pop(_key(hop), None)
            log.info("a peer does not speak TLS: in clear", address=hop.address, reason=str(error))
            await self._dial(connection, hop, tls=False)

    def turns(self, connection: Connection, hop: NextHop) -> bool:
        """A connection that was opened was closed before there was a session: whether to try the other way at once."""
        now = self._loop.time()
        way = self.way(hop)
        allowed = way in (TlsChoice.PLAIN_FIRST, TlsChoice.TLS_FIRST)
        if not allowed:
            # A peer that prefers TLS and took us for one that does not has changed its mind since.
            allowed = way is TlsChoice.TLS and not connection.encrypted and connection.address != ""
        if connection.established or not connection.address or not allowed:
            return False
        if now - self._turned.get(_key(hop), float("-inf")) < _REMEMBERED / 6:
            return False
        if connection.encrypted is (way is TlsChoice.TLS_FIRST):
            self._turn(hop)
        else:
            self._other_way.pop(_key(hop), None)
            self._turned[_key(hop)] = now
        return True

    async def _dial(self, connection: Connection, hop: NextHop, *, tls: bool) -> None:
        settings, context = self._network.settings, None
        if tls:
            known = (self._pinned.get(name.lower()) for name in (hop.host_name, hop.address))
            context = next((one for one in known if one is not None), self._initiator)
            if context is None:
                sentence = "security.tls has no certificate of this peer: pin it, or list the peer in plain_peers"
                raise DialingError.certificate(sentence)
        await dial(
            lambda: connection, hop.address, settings.port, settings.address, tls=context, host_name=hop.host_name
        )

    def _is_tls(self, way: TlsChoice, hop: NextHop) -> bool:
        other = self._other_way.get(_key(hop), 0.0) > self._loop.time()
        match way:
            case TlsChoice.PLAIN_FIRST:
                return other
            case TlsChoice.TLS_FIRST:
                return not other
            case _:
                return way is TlsChoice.TLS

    def _turn(self, hop: NextHop) -> None:
        """Go the second way first for a while."""
        for known in (self._other_way, self._turned):
            if len(known) >= _KEPT:
                known.clear()
        now = self._loop.time()
        self._other_way[_key(hop)] = now + _REMEMBERED
        self._turned[_key(hop)] = now

    def own_fault(self) -> str:
        """The fault of the certificate of this node; empty if it is valid now."""
        settings = self._settings
        try:
            content = settings.certificate.read_bytes() if settings is not None else b""
            certificate = x509.load_pem_x509_certificates(content)[0] if content else None
        except (OSError, ValueError):
            return "the certificate of this node cannot be read"
        if certificate is None or certificate.not_valid_after_utc > datetime.now(UTC):
            return ""
        return f"the certificate of this node has expired: {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"

    # The memory of peers

    def reached(self, connection: Connection, hop: NextHop) -> None:
        """A session that this node opened is there."""
        if connection.encrypted:
            certified = connection.session.certified
            self._shown.accepted(certified if certified != ZERO_GUID else None, _name(hop))

    def taken(self, connection: Connection) -> None:
        """A session that a peer opened is there."""
        certified = connection.session.certified
        if connection.encrypted and certified not in (None, ZERO_GUID):
            assert certified is not None
            self._shown.opened(certified)

    def identify(self, connection: ssl.SSLObject) -> Guid | None:
        """Return the queue manager that a peer's certificate names. With pinned certificates, only by those.

        ZERO_GUID, which opens no session, for a user's certificate.
        """
        settings = self._settings
        shown = connection.getpeercert(binary_form=True)
        if shown is None or is_for_clients_alone(shown):
            return ZERO_GUID
        required = settings is not None and (settings.require_identity or bool(settings.pinned))
        found = queue_manager_of(connection.getpeercert(), required=required)
        is_pinned = found is not None and shown in self._pins.get(found, ())
        if settings is not None and settings.pinned and not is_pinned:
            return ZERO_GUID  # issued by a pinned one
        return found

    # Connections of others

    def _turns_away(self, address: str) -> bool:
        """Whether a plain connection from an address is refused before its peer gives an identity."""
        settings = self._settings
        if settings is None:
            return False
        if is_named({*settings.peers, *self._pinned}, address):
            return True
        every = settings.mode is TlsMode.REQUIRE or EVERY_PEER in settings.peers
        return every and not self._plain.is_at(address)

    def admits(self, connection: Connection, machine: Guid) -> bool:
        """Whether a queue manager may open a session over a connection that was taken."""
        settings = self._settings
        if settings is None or connection.encrypted:
            return True
        if machine in self._pins:
            return False
        if self._plain.is_one(machine):
            return True
        if settings.mode is TlsMode.OFFER and EVERY_PEER not in settings.peers:
            return True
        if self._shown.opens(machine):
            return False
        if settings.mode is TlsMode.PREFER and EVERY_PEER not in settings.peers:
            return True
        # From the address of a plain peer, and not in the name of a machine that is none.
        return is_named(settings.plain_peers, connection.address) or not self._network.is_in_directory(machine)

    # Looking again

    async def _refresh(self) -> None:
        await self._plain.refresh()
        self._tell()

    async def _reopen_and_keep_up(self) -> None:
        await self._refresh()
        self._reopen()
        await self._keep_up()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                if self._plain:
                    await self._refresh()
                await self._look_for_tls()
            except Exception:
                log.exception("TLS with peers was not looked at")

    def _reopen(self) -> None:
        """Leave sessions of a kind that the settings do not want any more."""
        for connection, hop, leave in self._network.outgoing_connections():
            way = self.way(hop)
            if way is TlsChoice.PLAIN if connection.encrypted else way in (TlsChoice.TLS, TlsChoice.TLS_FIRST):
                leave()
        for connection in list(self._network.accepted):
            if connection.encrypted or not connection.address:
                continue
            if self._turns_away(connection.address) or not self.admits(connection, connection.session.remote):
                connection.close()

    async def _look_for_tls(self) -> None:
        """Leave plain sessions with peers that have learned TLS."""
        looked: dict[tuple[str, str], bool] = {}
        for connection, hop, leave in self._network.outgoing_connections():
            if connection.encrypted or self.way(hop) not in (TlsChoice.TLS, TlsChoice.TLS_FIRST):
                continue
            key = hop.address, hop.host_name
            if key not in looked:
                network = self._network.settings
                looked[key] = self._initiator is not None and await is_reachable(
                    hop.address, network.port, network.address, tls=self._initiator, host_name=hop.host_name
                )
            if looked[key]:
                self._other_way.pop(_key(hop), None)
                leave()


def _name(hop: NextHop) -> str:
    return hop.host_name or hop.address


def _key(hop: NextHop) -> str:
    return f"{hop.identifier.hex()} {_name(hop).lower()}"


def _pins_of(settings: TlsSettings) -> dict[Guid, set[bytes]]:
    """The pinned certificates by the queue manager that each names. KeyStoreError if one names none."""
    found: dict[Guid, set[bytes]] = {}
    for name, file in settings.pinned.items():
        try:
            certificates = x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            raise KeyStoreError(f"security.tls.pinned: the certificate of {name} cannot be read: {error}") from None
        for certificate in certificates:
            machine = queue_manager_in(certificate)
            if machine is None:
                raise KeyStoreError(
                    f"security.tls.pinned: the certificate of {name}, {file}, names no queue manager: have it made "
                    "with the alternative name URI:urn:uuid: and the GUID that `qmnode status` shows there"
                )
            found.setdefault(machine, set()).add(certificate.public_bytes(Encoding.DER))
    return found
