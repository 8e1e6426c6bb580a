"""A node's membership in its directory: its identity there, its view of the enterprise, and the timers that refresh it.

MS-MQDMPR 3.1.3 for a node whose QueueManager.DirectoryIntegrated is true. A directory that is down does not prevent a
node from starting: it runs under its present identifier and from its cache, and completes the rest when the directory
is back.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import fields
from typing import Any

import structlog

from qmnode.directory.notified import NotificationQueue
from qmnode.directory.port import (
    Directory,
    DirectoryObject,
    DirectoryOperationError,
    DirectoryOptions,
    Queue,
    QueueManager,
    equals,
    open_directory,
    search,
)
from qmnode.directory.upkeep import DURATIONS, DirectoryUpkeep, IdentityChanged, LocalView, Timer, settle_identity
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.public_queues import as_message_queuing_error
from qmnode.model.queue_manager import QueueManager as ModelQueueManager
from qmnode.model.quotas import Declared
from qmnode.settings.node import NodeSettings
from qmnode.structures.guid import Guid
from qmnode.structures.names import DistributionListFormatName, FormatName, FormatNameError, parse_single_format_name

log = structlog.get_logger(__name__)

_TROUBLE = "directory"
_MEMBERSHIP = "membership"
LOOK = 5.0
"""Seconds between checks for a newly started timer; any call that finds the directory down starts one."""


def directory_of(settings: NodeSettings) -> Directory | None:
    """The directory that the settings name; None in workgroup mode. Raises ConfigurationError."""
    wanted = settings.directory
    if wanted.name is None:
        return None
    options = DirectoryOptions(settings=wanted.settings, cache_path=settings.data / "directory-cache")
    try:
        return open_directory(wanted.name, options)
    except DirectoryOperationError as error:
        raise ConfigurationError(error.sentence) from error


def _unless_default(found: DirectoryObject, name: str) -> Any:
    value = getattr(found, name)
    return None if value == next(one.default for one in fields(found) if one.name == name) else value


ADOPTION_DELAY = 0.5
"""Seconds between a notice of a change and the check for newly published queues of this node."""


class Membership:
    """One node in its directory. ``join`` before the first session, then ``run`` until it is cancelled."""

    def __init__(
        self,
        directory: Directory,
        manager: ModelQueueManager,
        settings: NodeSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settled = False
        """Whether the identifier is the one in the directory."""
        self._directory = directory
        self._manager = manager
        durations = {**DURATIONS, Timer.ONLINE: settings.directory.online_check}
        known = QueueManager(computer_name=manager.computer_name, identifier=manager.identifier)
        self.upkeep = DirectoryUpkeep(directory, known, clock, durations, self._obey)
        self._clock = clock
        self._following: set[asyncio.Future[None]] = set()
        self._is_adopting = False
        self._notifications = NotificationQueue(manager, settings.directory.notification_interval, clock)

    async def join(self) -> None:
        """Adopt the identifier that the directory has for this node, read its data there, and follow changes."""
        await self._settle()
        await self.upkeep.initialise()
        self._name_site()
        await self.adopt()
        self._directory.watch(self._heard)
        self._tell()

    def _heard(self, identifier: Guid | None) -> None:
        known = {queue.identifier for queue in self._manager.queue_collection.values() if queue.is_published}
        if identifier is None or identifier in known:
            self._spawn(self.follow(identifier))
        enterprise = self.upkeep.view.enterprise
        if enterprise is None or identifier in (None, self._manager.identifier, enterprise.identifier):
            self._spawn(self.upkeep.refresh())
        if identifier not in known and not self._is_adopting:  # after an unspecified change, a queue may be new as well
            self._is_adopting = True
            self._spawn(self._adopt_soon())

    def _obey(self, view: LocalView) -> None:
        """Obey what the directory declares. A value that equals the default is not declared: every object has one."""
        enterprise = view.enterprise
        declared = Declared(
            _unless_default(view.queue_manager, "queue_manager_quota"),
            _unless_default(view.queue_manager, "journal_quota"),
            None if enterprise is None else _unless_default(enterprise, "default_time_to_live"),
            None if enterprise is None else _unless_default(enterprise, "weakened_security"),
        )
        if self._manager.declare(declared):
            log.info(
                "the directory declares", quota=declared.quota, journal_quota=declared.journal_quota,
                default_time_to_live=declared.time_to_reach_queue, weakened_security=declared.weakened_security,
            )  # fmt: skip

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _adopt_soon(self) -> None:
        """Check for our own queues soon: an apply changes many objects, and changes close together share one check."""
        await asyncio.sleep(ADOPTION_DELAY)
        self._is_adopting = False
        await self.adopt()

    async def adopt(self) -> None:
        """Create every public queue that the directory assigns to this node: published there, perhaps, by hand."""
        try:
            ours = equals("computer", self._manager.computer_name)
            found = [queue async for queue in search(self._directory, Queue, [ours])]
        except DirectoryOperationError as error:
            log.info("our public queues not read", reason=error.sentence)
            return
        for queue in found:
            try:
                adopted = self._manager.published.adopt(queue)
            except MessageQueuingError as error:
                log.warning("public queue not taken over", queue=queue.pathname, reason=str(error))
                continue
            if adopted:
                log.info("public queue taken over from the directory", queue=queue.pathname)

    async def follow(self, identifier: Guid | None = None, *, fresh: bool = False) -> None:
        """Apply the directory's data to one of our public queues, or to all of them; ``fresh``: not from the cache."""
        for queue in tuple(self._manager.queue_collection.values()):
            if not queue.is_published or identifier not in (None, queue.identifier):
                continue
            try:
                found = await self._directory.read_directory(
                    Queue, [equals("identifier", queue.identifier)], force_directory_read=fresh
                )
            except DirectoryOperationError as error:
                log.info("public queue not read", queue=queue.pathname, reason=error.sentence)
                continue
            if self._manager.published.follow(queue, found):
                log.info("public queue changed in the directory", queue=queue.pathname)

    async def _process_notifications(self) -> None:
        """Read the objects again that notifications name (MS-MQCN 3.2.5.2). Those of others are none of our business.

        A queue that was deleted in the directory stays, with its messages, until an administrator deletes it here.
        """
        notified = self._notifications.take()
        if notified is None:
            return
        own = {queue.identifier for queue in self._manager.queue_collection.values() if queue.is_published}
        if notified.everything:
            await self.follow(fresh=True)
        else:
            for identifier in notified.objects & own:
                await self.follow(identifier, fresh=True)
        if notified.everything or self._manager.identifier in notified.objects:
            await self.upkeep.check_directory_online()
        if notified.everything or notified.objects - own - {self._manager.identifier}:
            await self.adopt()

    async def run(self) -> None:
        """Process the timers and the notifications as long as the node runs."""
        while True:
            due = self.upkeep.next_expiration
            pause = LOOK if due is None else min(max(due - self._clock(), 0.0), LOOK)
            await asyncio.sleep(pause)
            if Timer.ONLINE in await self.upkeep.expire() and not self._directory.offline:
                await self.follow()  # 3.1.7.1.25
                await self.adopt()
            await self._process_notifications()
            if not self.settled and not self._directory.offline:
                await self._settle()
            self._name_site()
            self._tell()

    def _tell(self) -> None:
        """Report in the node's troubles when its directory is down."""
        if self._directory.offline:
            self._manager.troubles[_TROUBLE] = "it does not answer; what it said last is used until it does"
        else:
            self._manager.troubles.pop(_TROUBLE, None)

    def _name_site(self) -> None:
        view = self.upkeep.view
        sites = (view.sites[one].name for one in view.queue_manager.site_identifier_list if one in view.sites)
        self._manager.site_name = next(sites, self._manager.site_name)

    async def resolve_distribution_list(self, name: DistributionListFormatName) -> Iterable[FormatName]:
        """The queues of a distribution list (MS-MQDSSM 3.1.6.9). Raises the code that opening the list fails with."""
        found: list[FormatName] = []
        try:
            texts = await self._directory.resolve_distribution_list(name.group)
        except DirectoryOperationError as error:
            raise as_message_queuing_error(error, f"{name}: ") from error
        for text in texts:
            try:
                found.append(parse_single_format_name(text))
            except FormatNameError as error:
                log.warning("alias in a distribution list is no format name", list=str(name), reason=str(error))
        return found

    def _not_joined(self, reason: str) -> None:
        if self._directory.offline:  # it may have joined before, and the node says already that the directory is down
            self._manager.directory_state = "not confirmed"
            return
        self._manager.directory_state = "not joined"
        self._manager.troubles[_MEMBERSHIP] = f"{self._manager.computer_name} has not joined the directory: {reason}"

    async def _settle(self) -> None:
        manager = self._manager
        mine = QueueManager(computer_name=manager.computer_name, identifier=manager.identifier)
        try:
            known = await settle_identity(self._directory, mine, drained=manager.is_drained)
        except DirectoryOperationError as error:
            log.warning("not joined yet", computer_name=manager.computer_name, reason=error.sentence)
            self._not_joined(
                f"{error.sentence.rstrip('.')}. It must be in the directory under this name, and log in as it"
            )
            return
        except IdentityChanged as error:
            log.error("not joined", computer_name=manager.computer_name, reason=str(error))
            self._not_joined(str(error))
            return
        manager.troubles.pop(_MEMBERSHIP, None)
        manager.directory_state = "joined"
        assert known.identifier is not None
        if known.identifier != manager.identifier:
            manager.adopt_identifier(known.identifier)
            log.info("joined under the directory's identifier", computer_name=manager.computer_name)
        self.upkeep.view.queue_manager = known
        self._obey(self.upkeep.view)
        self.settled = True
        manager.names.enter_directory()
        manager.names.add_own((), qualified=known.qualified_computer_name or "")
