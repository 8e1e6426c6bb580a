"""Changes in the directory are told soon, of both servers, and after a connection broke."""

from __future__ import annotations

import asyncio
import queue
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.notification import Changed, ChangeKind, Watcher
from mqenterprise.directory.port import LdapPort, PortSettings
from qmnode.directory.port import DirectoryOperationError, Queue, QueueManager, Site, equals
from tests.lab.directory_objects import create, delete
from tests.lab.silence import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from qmnode.structures.guid import Guid
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers

SOON = 15.0


@pytest.fixture
def relay(directory_server: DirectoryServer) -> Iterator[Relay]:
    parts = urlsplit(directory_server.settings.servers[0])
    opened = Relay((str(parts.hostname), parts.port or 636))
    yield opened
    opened.close()


@pytest.fixture
def told(directory_server: DirectoryServer, relay: Relay) -> Iterator[queue.Queue[Changed]]:
    """What a watcher tells, through a relay that can be cut."""
    host = urlsplit(directory_server.settings.servers[0]).hostname
    servers = (f"ldaps://127.0.0.1:{relay.port}",)
    connection = LdapConnection(directory_server.settings_with(servers=servers, tls_name=host, connect_timeout=15))
    changes: queue.Queue[Changed] = queue.Queue()
    watcher = Watcher(connection, changes.put, interval=0.1, retry=0.1)
    watcher.start()
    assert changes.get(timeout=SOON).kind is ChangeKind.RELOAD
    yield changes
    watcher.stop(5)
    connection.close()


def next_of(changes: queue.Queue[Changed], kind: ChangeKind, wanted: object) -> Changed:
    """The next change of a kind of one object; the enterprise is shared with other tests."""
    while True:
        change = changes.get(timeout=SOON)
        if change.kind is ChangeKind.RELOAD and kind is ChangeKind.DELETED:
            return change
        if change.kind is kind and wanted in (change.identifier, change.full_path):
            return change


def test_what_is_created_changed_and_deleted_is_told(
    told: queue.Queue[Changed], directory: EnterpriseDirectory, fresh_name: Named
) -> None:
    node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
    assert next_of(told, ChangeKind.CHANGED, node.identifier).full_path == node.full_path

    made = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
    next_of(told, ChangeKind.CHANGED, made.identifier)

    directory.queues.modify(replace(made, label="new"), ("label",))
    next_of(told, ChangeKind.CHANGED, made.identifier)

    site = create(directory, Site(name=fresh_name("Site")))
    next_of(told, ChangeKind.CHANGED, site.identifier)

    directory.queues.delete(made)
    assert next_of(told, ChangeKind.DELETED, made.identifier).identifier == made.identifier


def test_what_changed_while_the_connection_was_broken_is_told_afterwards(
    told: queue.Queue[Changed], directory: EnterpriseDirectory, relay: Relay, fresh_name: Named
) -> None:
    before = create(directory, Site(name=fresh_name("Site")))
    next_of(told, ChangeKind.CHANGED, before.identifier)
    relay.cut()
    during = create(directory, Site(name=fresh_name("Site")))
    delete(directory, before)

    relay.mend()

    seen = []
    while True:
        change = told.get(timeout=SOON)
        seen.append(change)
        if during.identifier == change.identifier:
            break
    while not any(c.kind is not ChangeKind.CHANGED for c in seen):
        seen.append(told.get(timeout=SOON))


async def test_a_node_sees_a_change_without_waiting_for_its_copy_to_age(
    directory: EnterpriseDirectory, directory_server: DirectoryServer, tmp_path: Path, fresh_name: Named
) -> None:
    settings = PortSettings(directory=directory_server.settings, watch_interval=0.1, fresh_for=100_000)
    port = LdapPort(settings, DirectoryCache(tmp_path / "cache"))
    heard: asyncio.Queue[Guid | None] = asyncio.Queue()
    port.watch(heard.put_nowait)
    assert await asyncio.wait_for(heard.get(), SOON) is None
    node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
    made = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders", label="old"))
    filters = [equals("identifier", made.identifier)]
    assert (await port.read_directory(Queue, filters)).label == "old"

    directory.queues.modify(replace(made, label="new"), ("label",))

    async with asyncio.timeout(SOON):
        while (await port.read_directory(Queue, filters)).label != "new":
            await heard.get()
    directory.queues.delete(made)
    async with asyncio.timeout(SOON):
        while True:
            await heard.get()
            try:
                await port.read_directory(Queue, filters)
            except DirectoryOperationError:
                break
    await port.close()
