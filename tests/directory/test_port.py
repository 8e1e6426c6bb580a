"""The port of a node: the directory events of MS-MQDMPR over LDAP, their limits in time, and the cache."""

from __future__ import annotations

import asyncio
import threading
import time
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from mqenterprise.directory.cache import DirectoryCache, from_text
from mqenterprise.directory.entries import Change, Entry
from mqenterprise.directory.entries import ChangeKind as EntryChange
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.notification import Changed, ChangeKind
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.port import LdapPort, PortSettings, open_port
from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    DirectoryOptions,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
    equals,
    search,
)
from qmnode.directory.upkeep import DirectoryUpkeep, IdentityChanged, Timer, settle_identity
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_bytes, guid_to_text, new_guid
from tests.lab.directory_objects import change, create
from tests.lab.silence import Relay, SilentServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def relay(directory_server: DirectoryServer) -> Iterator[Relay]:
    parts = urlsplit(directory_server.settings.servers[0])
    relay = Relay((str(parts.hostname), parts.port or 636))
    yield relay
    relay.close()


def port_settings(directory_server: DirectoryServer, relay: Relay, **more: object) -> PortSettings:
    host = urlsplit(directory_server.settings.servers[0]).hostname
    reached = directory_server.settings_with(
        servers=(f"ldaps://127.0.0.1:{relay.port}",), tls_name=host, connect_timeout=15
    )
    return PortSettings(directory=reached, **more)  # type: ignore[arg-type]


@pytest.fixture
async def port(
    directory_server: DirectoryServer, relay: Relay, tmp_path: Path, clock: Clock
) -> AsyncIterator[LdapPort]:
    """A port to each of the two servers, through a relay that can be cut."""
    opened = LdapPort(port_settings(directory_server, relay), DirectoryCache(tmp_path / "cache", clock))
    yield opened
    await opened.close()


@pytest.fixture
def node(directory: EnterpriseDirectory, fresh_name: Named) -> QueueManager:
    return directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))


async def refused(call: object) -> DirectoryOperationResult:
    with pytest.raises(DirectoryOperationError) as error:
        await call  # type: ignore[misc]
    return error.value.result


class TestEvents:
    async def test_a_queue_is_created_read_written_and_deleted(self, port: LdapPort, node: QueueManager) -> None:
        pathname = f"{node.computer_name}\\orders".lower()
        directory: Directory = port

        identifier = await directory.create_directory_object(Queue(pathname=pathname, label="one"))

        found = await directory.read_directory(Queue, [equals("identifier", identifier)], force_directory_read=True)
        assert (found.pathname, found.label) == (pathname, "one")
        await directory.write_directory(replace(found, label="two"), ("label",))
        again = await directory.read_directory(Queue, [equals("pathname", pathname)])
        assert again.label == "two"
        await directory.delete_directory_object(again)
        gone = directory.read_directory(Queue, [equals("identifier", identifier)])
        assert await refused(gone) is DirectoryOperationResult.OBJECT_NOT_FOUND

    async def test_what_exists_is_told(self, port: LdapPort, node: QueueManager) -> None:
        queue = Queue(pathname=f"{node.computer_name}\\orders")
        await port.create_directory_object(queue)

        assert await refused(port.create_directory_object(queue)) is DirectoryOperationResult.OBJECT_ALREADY_EXISTS

    async def test_objects_are_iterated_to_their_end(self, port: LdapPort, node: QueueManager) -> None:
        names = ["b", "c", "a"]
        for name in names:
            await port.create_directory_object(
                Queue(pathname=f"{node.computer_name}\\{name}", label=node.computer_name)
            )

        handle = await port.read_directory_begin(Queue, [equals("label", node.computer_name)])

        found = []
        with suppress(DirectoryOperationError):
            while True:
                item = await port.read_directory_next(handle)
                assert isinstance(item, Queue)
                found.append(item.pathname[-1])
        assert sorted(found) == ["a", "b", "c"]
        assert await refused(port.read_directory_next(handle)) is DirectoryOperationResult.END_OF_DATA
        await port.read_directory_end(handle)
        assert await refused(port.read_directory_next(handle)) is DirectoryOperationResult.GENERIC_ERROR

    async def test_every_kind_is_read(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, fresh_name: Named
    ) -> None:
        site = create(directory, Site(name=fresh_name("Site")))
        other = create(directory, Site(name=fresh_name("Site")))
        assert site.identifier is not None and other.identifier is not None
        link = create(
            directory, RoutingLink(site1_identifier=site.identifier, site2_identifier=other.identifier, actual_cost=3)
        )
        user = create(directory, User(name=fresh_name("user")))

        assert (await port.read_directory(Enterprise)).identifier == directory.enterprise().identifier
        assert (await port.read_directory(Site, [equals("name", site.name)])).identifier == site.identifier
        assert (await port.read_directory(User, [equals("name", user.name)])).identifier == user.identifier
        by_name = await port.read_directory(QueueManager, [equals("computer_name", node.computer_name)])
        assert by_name.identifier == node.identifier
        links = [found async for found in search(port, RoutingLink)]
        assert link.identifier in [found.identifier for found in links]


def new_list(directory: EnterpriseDirectory, name: str, *members: str) -> Entry:
    """A distribution list, which is a global distribution group."""
    dialect = directory.connection.dialect
    attributes = {
        "member": tuple(member.encode() for member in members),
        "groupType": (b"2",),
        **dialect.account("group", name),
    }
    return directory.connection.add(child(name, dialect.contexts.users), ("top", "group"), attributes)


class TestNamesForSeveralQueues:
    async def test_a_list_is_resolved_through_lists_and_aliases(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, fresh_name: Named
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        users = directory.connection.dialect.contexts.users
        alias = child(fresh_name("alias"), users)
        format_name = {"msMQ-Recipient-FormatName": (b"DIRECT=OS:host\\q",)}
        directory.connection.add(alias, ("top", "msMQ-Custom-Recipient"), format_name)
        assert queue.identifier is not None
        inner = new_list(directory, fresh_name("inner"), str(queue.full_path), alias)
        outer = new_list(directory, fresh_name("outer"), inner.dn, str(queue.full_path))
        directory.connection.modify(inner.dn, [Change(EntryChange.ADD, "member", (outer.dn.encode(),))])
        identifier = guid_from_bytes(outer.attributes["objectguid"][0])

        names = await port.resolve_distribution_list(identifier)

        assert set(names) == {f"PUBLIC={guid_to_text(queue.identifier)}", "DIRECT=OS:host\\q"}
        assert len(names) == 2
        assert await port.resolve_queue_alias(alias) == "DIRECT=OS:host\\q"

    async def test_what_is_no_list_is_not_found(self, port: LdapPort, node: QueueManager) -> None:
        assert node.identifier is not None

        for identifier in (node.identifier, new_guid()):
            assert (
                await refused(port.resolve_distribution_list(identifier)) is DirectoryOperationResult.OBJECT_NOT_FOUND
            )


class TestCache:
    async def test_a_look_up_is_one_search_and_then_none(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        assert queue.identifier is not None
        await port.read_directory(Enterprise)  # the connection is open, the kind of server is known
        requests = count_requests(port, monkeypatch)

        for _ in range(3):
            await port.read_directory(Queue, [equals("identifier", queue.identifier)])
        assert len(requests) == 1

        requests.clear()
        await asyncio.gather(
            *(port.read_directory(Queue, [equals("pathname", queue.pathname.upper())]) for _ in range(50))
        )
        assert requests == []

    async def test_a_burst_to_an_unknown_queue_is_one_search(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        await port.read_directory(Enterprise)
        requests = count_requests(port, monkeypatch)

        await asyncio.gather(
            *(port.read_directory(Queue, [equals("identifier", queue.identifier)]) for _ in range(100))
        )

        assert len(requests) == 1

    async def test_what_is_known_is_answered_without_a_request(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        filters = [equals("identifier", queue.identifier)]
        await port.read_directory(Queue, filters)

        requests = count_requests(port, monkeypatch)
        for _ in range(200):
            await port.read_directory(Queue, filters)

        assert requests == []

    async def test_an_answer_that_is_older_than_a_change_is_not_the_answer_after_it(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders", label="old"))
        filters = [equals("identifier", queue.identifier)]
        first, read, go = port._first, threading.Event(), threading.Event()

        def slow(*asked: Any) -> Any:
            found = first(*asked)
            read.set()
            go.wait(240)
            return found

        monkeypatch.setattr(port, "_first", slow)
        early = asyncio.ensure_future(port.read_directory(Queue, filters, force_directory_read=True))
        await asyncio.to_thread(read.wait, 240)
        monkeypatch.setattr(port, "_first", first)
        directory.queues.modify(replace(queue, label="new"), ("label",))
        port._hear(asyncio.get_running_loop(), Changed(ChangeKind.CHANGED, identifier=queue.identifier))

        assert (await port.read_directory(Queue, filters)).label == "new"
        go.set()
        await asyncio.wait([early])
        assert (await port.read_directory(Queue, filters)).label == "new"

    async def test_what_is_not_there_is_asked_once_and_again_later(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, clock: Clock
    ) -> None:
        pathname = f"{node.computer_name}\\late".lower()
        filters = [equals("pathname", pathname)]
        assert await refused(port.read_directory(Queue, filters)) is DirectoryOperationResult.OBJECT_NOT_FOUND
        directory.queues.add(Queue(pathname=pathname))
        assert await refused(port.read_directory(Queue, filters)) is DirectoryOperationResult.OBJECT_NOT_FOUND

        clock.now += 11

        assert (await port.read_directory(Queue, filters)).pathname == pathname

    async def test_a_change_is_seen_when_the_copy_is_old(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, clock: Clock
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders", label="old"))
        filters = [equals("identifier", queue.identifier)]
        await port.read_directory(Queue, filters)
        directory.queues.modify(replace(queue, label="new"), ("label",))
        assert (await port.read_directory(Queue, filters)).label == "old"

        clock.now += 301

        assert (await port.read_directory(Queue, filters)).label == "new"


class TestDirectoryAway:
    async def test_the_node_goes_on_from_what_it_knows(
        self, port: LdapPort, directory: EnterpriseDirectory, node: QueueManager, relay: Relay, clock: Clock
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        await port.read_directory(Queue, [equals("identifier", queue.identifier)])
        before = [site.name async for site in search(port, Site)]
        relay.cut()
        clock.now += 10_000

        found = await port.read_directory(Queue, [equals("identifier", queue.identifier)])

        assert found.identifier == queue.identifier
        assert port.offline
        assert [site.name async for site in search(port, Site)] == before
        unknown = port.read_directory(Queue, [equals("identifier", new_guid())])
        assert await refused(unknown) is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        written = port.write_directory(replace(found, label="x"), ("label",))
        assert await refused(written) is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        assert not await port.check_directory_online()

        relay.mend()

        assert await port.check_directory_online()
        assert not port.offline

    async def test_a_distribution_list_leads_where_it_led_until_the_directory_is_back(
        self,
        port: LdapPort,
        directory: EnterpriseDirectory,
        directory_server: DirectoryServer,
        node: QueueManager,
        relay: Relay,
        tmp_path: Path,
        clock: Clock,
        fresh_name: Named,
    ) -> None:
        one, other = (directory.queues.add(Queue(pathname=f"{node.computer_name}\\{name}")) for name in "ab")
        made = new_list(directory, fresh_name("staff"), str(one.full_path))
        identifier = guid_from_bytes(made.attributes["objectguid"][0])
        before, after = (f"PUBLIC={guid_to_text(queue.identifier or ZERO_GUID)}" for queue in (one, other))
        assert await port.resolve_distribution_list(identifier) == (before,)
        relay.cut()
        moved = Change(EntryChange.REPLACE, "member", (str(other.full_path).encode(),))
        directory.connection.modify(made.dn, [moved])

        assert await port.resolve_distribution_list(identifier) == (before,)
        started = LdapPort(port_settings(directory_server, relay), DirectoryCache(tmp_path / "cache", clock))
        assert await started.resolve_distribution_list(identifier) == (before,)
        unknown = await refused(started.resolve_distribution_list(new_guid()))
        assert unknown is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        await started.close()

        relay.mend()
        assert await port.check_directory_online()
        assert await port.resolve_distribution_list(identifier) == (after,)
        directory.connection.delete(made.dn)
        assert await refused(port.resolve_distribution_list(identifier)) is DirectoryOperationResult.OBJECT_NOT_FOUND
        relay.cut()
        gone = await refused(port.resolve_distribution_list(identifier))
        assert gone is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED

    async def test_the_members_of_a_list_are_believed_for_as_long_as_keys(
        self,
        port: LdapPort,
        directory: EnterpriseDirectory,
        directory_server: DirectoryServer,
        node: QueueManager,
        relay: Relay,
        tmp_path: Path,
        clock: Clock,
        fresh_name: Named,
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        made = new_list(directory, fresh_name("staff"), str(queue.full_path))
        identifier = guid_from_bytes(made.attributes["objectguid"][0])
        for _ in range(2):
            clock.now += 50_000
            found = await port.resolve_distribution_list(identifier)
        relay.cut()

        clock.now += 86_300
        assert await port.resolve_distribution_list(identifier) == found
        started = LdapPort(port_settings(directory_server, relay), DirectoryCache(tmp_path / "cache", clock))
        assert await started.resolve_distribution_list(identifier) == found
        clock.now += 200

        for each in (port, started):
            for _ in range(2):  # found away, and known to be away
                with pytest.raises(DirectoryOperationError, match=r"known since 86500 s, .*keys_for") as caught:
                    await each.resolve_distribution_list(identifier)
                assert caught.value.result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        await started.close()

    async def test_a_node_that_starts_meanwhile_knows_it_too(
        self,
        port: LdapPort,
        directory: EnterpriseDirectory,
        directory_server: DirectoryServer,
        node: QueueManager,
        relay: Relay,
        tmp_path: Path,
    ) -> None:
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\Öffentlich, #1", journaling=True))
        read = await port.read_directory(Queue, [equals("identifier", queue.identifier)])
        manager = await port.read_directory(QueueManager, [equals("identifier", node.identifier)])
        relay.cut()

        started = LdapPort(port_settings(directory_server, relay), DirectoryCache(tmp_path / "cache"))

        assert await started.read_directory(Queue, [equals("pathname", queue.pathname)]) == read
        assert await started.read_directory(QueueManager, [equals("computer_name", node.computer_name)]) == manager
        await started.close()

    async def test_a_cache_that_cannot_be_read_is_begun_anew(self, tmp_path: Path) -> None:
        file = tmp_path / "cache"
        file.write_bytes(b"this is no database" * 1000)

        cache = DirectoryCache(file)
        cache.put(Site(name="Hamburg", identifier=new_guid()))
        cache.close()

        assert DirectoryCache(file).find(Site, [equals("name", "HAMBURG")]) is not None
        assert file.with_name("cache.unreadable").exists()


class TestSilence:
    """A directory that accepts connections and never answers."""

    @pytest.fixture
    def silent(self) -> Iterator[SilentServer]:
        server = SilentServer()
        yield server
        server.close()

    @pytest.fixture
    async def stuck(
        self, silent: SilentServer, directory_server: DirectoryServer, tmp_path: Path
    ) -> AsyncIterator[LdapPort]:
        reached = directory_server.settings_with(servers=(silent.url,), connect_timeout=30)
        settings = PortSettings(directory=reached, answer_limit=0.3, threads=2, waiting=4)
        opened = LdapPort(settings, DirectoryCache(tmp_path / "cache"))
        yield opened
        await opened.close()

    async def test_a_call_ends_in_time_and_no_other_asks(self, stuck: LdapPort, silent: SilentServer) -> None:
        first = stuck.read_directory(Queue, [equals("identifier", new_guid())])
        assert await refused(first) is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED

        for _ in range(1000):
            call = stuck.read_directory(Queue, [equals("identifier", new_guid())])
            assert await refused(call) is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        assert silent.accepted == 1

    async def test_other_work_of_the_node_goes_on_meanwhile(self, stuck: LdapPort) -> None:
        beats, running = 0, True

        async def heartbeat() -> None:
            nonlocal beats
            while running:
                await asyncio.sleep(0.001)
                beats += 1

        beating = asyncio.create_task(heartbeat())
        calls = [refused(stuck.read_directory(Queue, [equals("identifier", new_guid())])) for _ in range(20)]
        await asyncio.gather(*calls)
        running = False
        await beating

        assert beats > 20, "each call would hold the event loop once"

    @pytest.mark.soak
    @pytest.mark.timed
    async def test_more_calls_than_may_wait_are_refused_at_once(self, stuck: LdapPort) -> None:
        queue = Queue(pathname="host\\orders")

        async def timed() -> float:
            started = time.monotonic()
            result = await refused(stuck.create_directory_object(queue))
            assert result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
            return time.monotonic() - started

        taken = sorted(await asyncio.gather(*(timed() for _ in range(20))))

        # Two threads ask, four calls may wait.
        assert taken[20 - 2 - 4 - 1] < 0.2

    @pytest.mark.soak
    @pytest.mark.timed
    async def test_closing_does_not_wait_for_it(self, stuck: LdapPort) -> None:
        call = asyncio.create_task(refused(stuck.read_directory(Site, [equals("name", "x")])))
        await asyncio.sleep(0.05)
        started = time.monotonic()

        await stuck.close()

        assert time.monotonic() - started < 0.2
        await call


class TestIdentity:
    async def test_a_new_node_takes_the_identifier_that_the_directory_gives(
        self, port: LdapPort, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        name = fresh_name("NODE")

        settled = await settle_identity(port, QueueManager(computer_name=name))

        found = directory.queue_managers.find(name)
        assert found is not None and found.identifier == settled.identifier
        again = await settle_identity(port, settled)
        assert again.identifier == settled.identifier

    async def test_another_identifier_is_taken_when_nothing_is_kept_under_the_old_one(
        self, port: LdapPort, node: QueueManager
    ) -> None:
        mine = replace(node, identifier=new_guid())

        with pytest.raises(IdentityChanged, match=node.computer_name):
            await settle_identity(port, mine)

        assert (await settle_identity(port, mine, drained=True)).identifier == node.identifier


class TestUpkeep:
    async def test_initialisation_timers_and_catching_up(
        self, port: LdapPort, directory: EnterpriseDirectory, relay: Relay, clock: Clock, fresh_name: Named
    ) -> None:
        site = create(directory, Site(name=fresh_name("Site")))
        other = create(directory, Site(name=fresh_name("Site")))
        assert site.identifier is not None and other.identifier is not None
        gate = directory.queue_managers.add(
            QueueManager(computer_name=fresh_name("GATE"), site_identifier_list=(site.identifier,), routing_server=True)
        )
        assert gate.identifier is not None
        node = directory.queue_managers.add(
            QueueManager(computer_name=fresh_name("NODE"), site_identifier_list=(site.identifier,))
        )
        upkeep = DirectoryUpkeep(port, node, clock)
        await upkeep.initialise()
        assert set(upkeep.view.sites) == {site.identifier}
        assert upkeep.view.enterprise is not None
        assert upkeep.view.site_gates[site.identifier] == {}
        change(directory, site, inter_site_replication_interval=99)
        create(
            directory,
            RoutingLink(
                site1_identifier=site.identifier,
                site2_identifier=other.identifier,
                actual_cost=1,
                site_gate_identifier_list=(gate.identifier,),
            ),
        )

        clock.now += 3600
        assert await upkeep.expire() == [Timer.SITE_GATES_UPDATE]
        assert list(upkeep.view.site_gates[site.identifier]) == [gate.identifier]
        clock.now += 11 * 3600
        assert Timer.SITES_UPDATE in await upkeep.expire()
        assert upkeep.view.sites[site.identifier].inter_site_replication_interval == 99

        relay.cut()
        assert not await port.check_directory_online()
        assert upkeep.next_expiration == clock.now + 60
        directory.queue_managers.modify(replace(node, journal_quota=5), ("journal_quota",))
        clock.now += 60
        assert await upkeep.expire() == [Timer.ONLINE]
        assert upkeep.view.queue_manager.journal_quota != 5
        relay.mend()
        clock.now += 60
        await upkeep.expire()
        assert upkeep.view.queue_manager.journal_quota == 5
        assert not port.offline

    async def test_a_node_starts_without_its_directory(
        self, port: LdapPort, node: QueueManager, relay: Relay, clock: Clock
    ) -> None:
        relay.cut()
        upkeep = DirectoryUpkeep(port, node, clock)

        await upkeep.initialise()
        assert upkeep.view.enterprise is None
        relay.mend()
        clock.now += 60
        await upkeep.expire()

        assert upkeep.view.enterprise is not None
        assert upkeep.view.queue_manager.computer_name == node.computer_name


def count_requests(port: LdapPort, monkeypatch: pytest.MonkeyPatch) -> list[Guid]:
    """A list that grows with each request to the server."""
    connection = port._service.connection
    requests: list[Guid] = []
    send = connection._send

    def counted(*arguments: object) -> object:
        requests.append(Guid(b""))
        return send(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(connection, "_send", counted)
    return requests


async def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(DirectoryOperationError, match=r"directory\.servers: Input should be a valid tuple"):
        open_port(DirectoryOptions(settings={"directory": {"servers": 5}}, cache_path=tmp_path / "cache"))


def test_the_project_declares_the_entry_point() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    entry_points = declared["project"]["entry-points"]["qmnode.directory"]

    assert entry_points["ldap"] == f"{open_port.__module__}:{open_port.__name__}"


async def test_the_entry_point_opens_it(directory_server: DirectoryServer, tmp_path: Path) -> None:
    settings = {"directory": directory_server.settings, "answer_limit": 60}

    port = open_port(DirectoryOptions(settings=settings, cache_path=tmp_path / "cache"))

    assert await port.check_directory_online()
    await port.close()


@pytest.mark.parametrize("text", ["{", "5", '{"identifier": {"x": 1}}', '{"identifier": {"b": 5}}'])
def test_a_row_of_the_cache_that_is_no_object_is_left_out(text: str) -> None:
    assert from_text("Enterprise", text) is None
