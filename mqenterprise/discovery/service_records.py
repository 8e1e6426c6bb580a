"""SRV records of directory servers: those of the site first, ordered by priority and weight, cached for their TTL.

The record names are those of MS-ADTS 6.3.2.3, as MS-MQDMPR 3.1.3 requires; a domain of OpenLDAP servers has the plain
names of RFC 2782. The order within a priority is drawn by weight (RFC 2782), anew each time, to share the load.
"""

from __future__ import annotations

import ipaddress
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import dns.exception
import dns.inet
import dns.resolver
import structlog

if TYPE_CHECKING:
    from mqenterprise.directory.binding import LdapSession
    from mqenterprise.directory.settings import DirectorySettings

log = structlog.get_logger(__name__)

SITE_RECORD: Final = "_ldap._tcp.{site}._sites.dc._msdcs.{domain}"
DOMAIN_RECORDS: Final = (
    ("ldap", "_ldap._tcp.dc._msdcs.{domain}"),
    ("ldaps", "_ldaps._tcp.{domain}"),
    ("ldap", "_ldap._tcp.{domain}"),
)
"""Record names in the order in which they are looked up; the first that has records is used."""
LONGEST_TTL: Final = 3600
SHORTEST_TTL: Final = 5
"""The shortest caching time in seconds: a TTL of 0 must not mean a look-up for each connection."""
RETRY: Final = 15.0
"""Seconds until name servers that did not answer are asked again. The last known records serve meanwhile."""


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One server of an SRV record."""

    scheme: str
    host: str
    port: int
    priority: int
    weight: int

    @property
    def url(self) -> str:
        """The server's URL as the directory settings would have it."""
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    groups: tuple[tuple[ServiceRecord, ...], ...]
    until: float


class ServerFinder:
    """The directory servers of a domain. Safe for threads.

    ``nameservers`` are ``address`` or ``address:port``; without any, the system's name servers are asked. Configured
    name servers also resolve the servers' addresses, because the system may not know the domain at all.
    """

    def __init__(
        self,
        domain: str,
        site: str | None = None,
        nameservers: Sequence[str] = (),
        lifetime: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        draw: random.Random | None = None,
    ) -> None:
        self._domain = domain.rstrip(".")
        self._site = site
        self._resolver = _resolver(nameservers, lifetime)
        self._asks_addresses = bool(nameservers)
        self._clock = clock
        self._draw = draw or random.SystemRandom()
        self._lock = threading.Lock()
        self._known: _CachedAnswer | None = None
        self._addresses: dict[str, tuple[str, float]] = {}

    @classmethod
    def of(cls, settings: DirectorySettings, clock: Callable[[], float] = time.monotonic) -> ServerFinder:
        """Make the finder that the directory settings describe."""
        assert settings.domain is not None
        return cls(settings.domain, settings.site, settings.nameservers, settings.connect_timeout, clock)

    def urls(self) -> list[str]:
        """Return the servers to try in order: those of the site, then the rest of the domain. May be empty."""
        with self._lock:
            known = self._known
            if known is None or self._clock() >= known.until:
                known = self._known = self._asked(known)
        ordered = [record for group in known.groups for record in in_order(group, self._draw)]
        return list(dict.fromkeys(record.url for record in ordered))

    def open(self, url: str, settings: DirectorySettings, clock: Callable[[], float]) -> LdapSession:
        """Open a session to a server that was found; for :class:`mqenterprise.directory.connection.Pool`."""
        from mqenterprise.directory.binding import host_of, open_session

        return open_session(url, settings, clock, address=self.address(host_of(url)))

    def address(self, host: str) -> str | None:
        """Return a host's address from the configured name servers, or None to ask the system's."""
        if not self._asks_addresses:
            return None
        known = self._addresses.get(host)
        if known is not None and self._clock() < known[1]:
            return known[0]
        for kind in ("A", "AAAA"):
            try:
                answer = self._resolver.resolve(f"{host}.", kind)
            except dns.exception.DNSException:
                continue
            address = str(answer[0])
            self._addresses[host] = (address, self._clock() + _bounded(answer))
            return address
        return known[0] if known else None

    def _asked(self, before: _CachedAnswer | None) -> _CachedAnswer:
        try:
            groups, ttls = self._lookup()
        except dns.exception.DNSException as error:
            log.warning("directory servers not looked up", domain=self._domain, reason=str(error))
            return _CachedAnswer(before.groups if before else (), self._clock() + RETRY)
        return _CachedAnswer(tuple(groups), self._clock() + min(ttls, default=RETRY))

    def _lookup(self) -> tuple[list[tuple[ServiceRecord, ...]], list[float]]:
        groups: list[tuple[ServiceRecord, ...]] = []
        ttls: list[float] = []
        names = [("ldap", SITE_RECORD.format(site=self._site, domain=self._domain))] if self._site else []
        for scheme, name in names:
            self._collect(scheme, name, groups, ttls)
        for scheme, pattern in DOMAIN_RECORDS:
            if self._collect(scheme, pattern.format(domain=self._domain), groups, ttls):
                break
        return groups, ttls

    def _collect(self, scheme: str, name: str, groups: list[tuple[ServiceRecord, ...]], ttls: list[float]) -> bool:
        try:
            answer = self._resolver.resolve(f"{name}.", "SRV")
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return False
        records = tuple(
            ServiceRecord(
                scheme, record.target.to_text(omit_final_dot=True), record.port, record.priority, record.weight
            )
            for record in answer
            if record.target.to_text() != "."  # RFC 2782: the domain says that it has no such service
        )
        ttls.append(_bounded(answer))
        if records:
            groups.append(records)
        return bool(records)


def in_order(records: Iterable[ServiceRecord], draw: random.Random) -> list[ServiceRecord]:
    """RFC 2782: lower priorities first; among equals each next one is drawn with a chance of its weight."""
    left = sorted(records, key=lambda record: (record.priority, record.weight, record.host))
    ordered: list[ServiceRecord] = []
    while left:
        equal = [record for record in left if record.priority == left[0].priority]
        # Records of weight 0 come first and are drawn only by a zero.
        number = draw.randint(0, sum(record.weight for record in equal))
        total = 0
        for record in equal:
            total += record.weight
            if total >= number:
                ordered.append(record)
                left.remove(record)
                break
    return ordered


def _bounded(answer: dns.resolver.Answer) -> float:
    ttl = answer.rrset.ttl if answer.rrset is not None else SHORTEST_TTL
    return float(min(max(ttl, SHORTEST_TTL), LONGEST_TTL))


def _resolver(nameservers: Sequence[str], lifetime: float) -> dns.resolver.Resolver:
    resolver = dns.resolver.Resolver(configure=not nameservers)
    resolver.lifetime = lifetime
    resolver.timeout = lifetime / 2
    servers: list[str] = []
    for server in nameservers:
        address, port = _split(server)
        servers.append(address)
        resolver.nameserver_ports[address] = port
    if servers:
        resolver.nameservers = list(servers)
    return resolver


def _split(server: str) -> tuple[str, int]:
    """``address``, ``address:port`` or ``[address]:port``. Raises ValueError."""
    text, port = server, 53
    if server.startswith("["):
        text, _, rest = server[1:].partition("]")
        port = int(rest.removeprefix(":") or 53)
    elif server.count(":") == 1:
        text, _, number = server.partition(":")
        port = int(number)
    return str(ipaddress.ip_address(text)), port
