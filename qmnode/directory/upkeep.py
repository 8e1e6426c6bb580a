"""The node's copy of its directory data, and the timers that keep it fresh.

MS-MQDMPR 3.1.3 (the part about the directory), 3.1.2.1, 3.1.2.2, 3.1.2.5, 3.1.6.1, 3.1.6.2 and 3.1.7.1.25. Nothing here
reads a clock or sleeps: time comes from the clock that is passed in, and :meth:`DirectoryUpkeep.expire` processes due
timers.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.directory.port import (
    AnyDirectoryObject,
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    equals,
    search,
)

if TYPE_CHECKING:
    from qmnode.structures.guid import Guid

log = structlog.get_logger(__name__)


class Timer(enum.Enum):
    """The timers of directory upkeep."""

    SITES_UPDATE = "Directory Sites Update Timer"
    SITE_GATES_UPDATE = "Directory Site Gates Update Timer"
    ONLINE = "Directory Online Timer"


DURATIONS: Final[Mapping[Timer, float]] = {
    Timer.SITES_UPDATE: 12 * 3600.0,  # 3.1.2.1
    Timer.SITE_GATES_UPDATE: 3600.0,  # 3.1.2.2
    Timer.ONLINE: 60.0,  # 3.1.2.5
}
"""The duration of each timer in seconds."""


class IdentityChanged(Exception):
    """The directory has this node under another GUID, and there are messages under the present one."""


@dataclass(slots=True)
class LocalView:
    """LocalQueueManager's directory attributes, SiteCollection, each site's SiteGateCollection, EnterpriseReference."""

    queue_manager: QueueManager
    sites: dict[Guid, Site] = field(default_factory=dict)
    site_gates: dict[Guid, dict[Guid, QueueManager]] = field(default_factory=dict)
    """The gates of each site."""
    enterprise: Enterprise | None = None
    public_queues: dict[Guid, Queue] = field(default_factory=dict)
    """The public queues of this node, with their properties in the directory."""


async def settle_identity(directory: Directory, queue_manager: QueueManager, *, drained: bool = False) -> QueueManager:
    """The queue manager under the GUID that the directory has for it, created there if it does not exist yet.

    Active Directory assigns the GUID, so it is known only after the object exists; it must be known before the first
    session. ``drained`` means that no message is kept under the present GUID. Raises :class:`IdentityChanged` if the
    directory has another GUID and there are such messages.
    """
    try:
        known = await directory.read_directory(
            QueueManager,
            [equals("computer_name", queue_manager.computer_name)],
            force_directory_read=True,
        )
        identifier = known.identifier
    except DirectoryOperationError as error:
        if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
            raise
        known = queue_manager
        identifier = await directory.create_directory_object(replace(queue_manager, identifier=None, full_path=None))
    assert identifier is not None
    if queue_manager.identifier not in (None, identifier) and not drained:
        raise IdentityChanged(
            f"the directory knows {queue_manager.computer_name} under another identifier: receive or move the messages "
            "that are kept here, then start again"
        )
    return replace(known, identifier=identifier)


class DirectoryUpkeep:
    """Keeps a :class:`LocalView` in step with the directory."""

    def __init__(
        self,
        directory: Directory,
        queue_manager: QueueManager,
        clock: Callable[[], float],
        durations: Mapping[Timer, float] = DURATIONS,
        on_changed: Callable[[LocalView], None] | None = None,
    ) -> None:
        self.view = LocalView(queue_manager)
        self._directory = directory
        self._clock = clock
        self._durations = durations
        self._due: dict[Timer, float] = {}
        self._on_changed = on_changed
        self._events: Mapping[Timer, Callable[[], Awaitable[None]]] = {
            Timer.SITES_UPDATE: self.directory_sites_update,
            Timer.SITE_GATES_UPDATE: self.directory_site_gates_update,
            Timer.ONLINE: self.check_directory_online,
        }

    # Timers

    def start(self, timer: Timer) -> None:
        """Start a timer, if it is not active already."""
        self._due.setdefault(timer, self._clock() + self._durations[timer])

    @property
    def next_expiration(self) -> float | None:
        """When :meth:`expire` is next due, on the clock's scale."""
        self._watch()
        return min(self._due.values(), default=None)

    async def expire(self) -> list[Timer]:
        """Raise the events of the timers that are due, and return those timers."""
        self._watch()
        now = self._clock()
        expired = [timer for timer, due in self._due.items() if due <= now]
        for timer in expired:
            del self._due[timer]
        for timer in expired:
            await self._events[timer]()
            if timer is not Timer.ONLINE:
                self.start(timer)
        self._watch()
        return expired

    def _watch(self) -> None:
        """Start the Directory Online Timer if the directory is down, as any event may find (3.1.7.1.18 and on)."""
        if self._directory.offline:
            self.start(Timer.ONLINE)

    # Events

    async def initialise(self) -> None:
        """The directory's part of initialisation (3.1.3): synchronise, read sites and enterprise, start the timers.

        A directory that is down does not prevent the node from starting: the cache is used, and the Directory Online
        Timer catches up.
        """
        await self._tolerant(self._synchronise)
        await self._tolerant(self._read_enterprise)
        await self._tolerant(self.directory_site_gates_update)
        self.start(Timer.SITES_UPDATE)
        self.start(Timer.SITE_GATES_UPDATE)
        self._watch()
        self._changed()

    async def directory_sites_update(self) -> None:
        """Directory Sites Update (3.1.6.1): read each site anew."""
        for identifier in tuple(self.view.sites):
            site = await self._read(Site, identifier)
            if site is not None:
                self.view.sites[identifier] = site
        self._changed()

    async def directory_site_gates_update(self) -> None:
        """Directory Site Gates Update (3.1.6.2): read the gates of each site anew.

        The routing links name the gates (3.1.1.8), so they are read as well: this finds a gate that was declared after
        the node started.
        """
        links: list[RoutingLink] = []
        try:
            links = [link async for link in search(self._directory, RoutingLink)]
        except DirectoryOperationError as error:
            log.warning("routing links not read", reason=error.sentence)
            return
        for site in tuple(self.view.sites):
            gates: dict[Guid, QueueManager] = {}
            for identifier in _gates(links, site):
                gate = await self._read(QueueManager, identifier)
                gate = gate or self.view.site_gates.get(site, {}).get(identifier)
                if gate is not None and site in gate.site_identifier_list:
                    gates[identifier] = gate
            self.view.site_gates[site] = gates
        self._changed()

    async def check_directory_online(self) -> None:
        """Check Directory Online (3.1.7.1.25): once it is back, read this node's object and public queues."""
        identifier = self.view.queue_manager.identifier
        if identifier is None:
            online = await self._directory.check_directory_online()
        else:
            try:
                found = await self._directory.read_directory(
                    QueueManager, [equals("identifier", identifier)], force_directory_read=True
                )
            except DirectoryOperationError:
                online = False
            else:
                online = True
                self.view.queue_manager = found
        if not online:
            self.start(Timer.ONLINE)
            return
        for queue in tuple(self.view.public_queues):
            fresh = await self._read(Queue, queue)
            if fresh is not None:
                self.view.public_queues[queue] = fresh
        await self._tolerant(self._read_enterprise)
        if not set(self.view.queue_manager.site_identifier_list) <= set(self.view.sites):
            await self._tolerant(self._synchronise)
            await self._tolerant(self.directory_site_gates_update)
        self._changed()

    async def refresh(self) -> None:
        """Read this node's object and the enterprise's anew, after a change that a watch has reported."""
        identifier = self.view.queue_manager.identifier
        if identifier is not None:
            self.view.queue_manager = await self._read(QueueManager, identifier) or self.view.queue_manager
        await self._tolerant(self._read_enterprise)
        self._changed()

    # Steps

    async def _synchronise(self) -> None:
        identifier = self.view.queue_manager.identifier
        if identifier is not None:
            found = await self._read(QueueManager, identifier)
            if found is not None:
                self.view.queue_manager = found
        for site in self.view.queue_manager.site_identifier_list:
            known = await self._read(Site, site)
            if known is not None:
                self.view.sites[site] = known

    async def _read_enterprise(self) -> None:
        try:
            self.view.enterprise = await self._directory.read_directory(Enterprise)
        except DirectoryOperationError as error:
            if error.result is not DirectoryOperationResult.ATTRIBUTE_NOT_FOUND:
                raise
            self.view.enterprise = Enterprise(non_ldap_capable_queue_manager_notification=True)

    async def _read(self, kind: type[AnyDirectoryObject], identifier: Guid) -> AnyDirectoryObject | None:
        """The current state of an object, or None if it cannot be read; the previous state is then kept."""
        try:
            return await self._directory.read_directory(kind, [equals("identifier", identifier)])
        except DirectoryOperationError as error:
            log.info("not read from the directory", kind=kind.__name__, reason=error.sentence)
            return None

    async def _tolerant(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except DirectoryOperationError as error:
            log.warning("not read from the directory", reason=error.sentence)

    def _changed(self) -> None:
        if self._on_changed is not None:
            self._on_changed(self.view)


def _gates(links: list[RoutingLink], site: Guid) -> list[Guid]:
    """The gates that links name for a site, each once."""
    touching = (link for link in links if site in (link.site1_identifier, link.site2_identifier))
    return list(dict.fromkeys(gate for link in touching for gate in link.site_gate_identifier_list))
