"""A whole queue manager over a real directory: its public queues are published, follow changes, and are withdrawn."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.directory.security_descriptors import QUEUE_RIGHTS, to_message_queuing
from qmnode.directory.port import Queue
from qmnode.directory.port import QueueManager as DirectoryQueueManager
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.node import QueueManager
from qmnode.settings.node import Settings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import SecurityDescriptor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

pytestmark = pytest.mark.servers


@asynccontextmanager
async def running(path: Path, name: str, server: DirectoryServer) -> AsyncIterator[QueueManager]:
    """A queue manager of that name, joined to the directory."""
    port = LdapPort(PortSettings(directory=server.settings), DirectoryCache(path / "cache"))
    try:
        async with QueueManager.open(path / "store", Settings(computer_name=name), directory=port) as manager:
            yield manager
    finally:
        await port.close()


@pytest.fixture
def names(directory: EnterpriseDirectory, fresh_name: Callable[[str], str]) -> tuple[str, str]:
    """Two computers with queue managers in the directory."""
    made = (fresh_name("NODE"), fresh_name("NODE"))
    for name in made:
        directory.queue_managers.add(DirectoryQueueManager(computer_name=name))
    return made


async def test_a_public_queue_is_published_changed_and_withdrawn(
    directory: EnterpriseDirectory, directory_server: DirectoryServer, names: tuple[str, str], tmp_path: Path
) -> None:
    pathname = f"{names[0]}\\orders".lower()
    async with running(tmp_path, names[0], directory_server) as manager:
        made = await manager.create_queue(pathname, label="one", transactional=True, journaling=True)

        published = directory.queues.find(pathname)
        assert published is not None and published.identifier == made.identifier
        assert (published.label, published.transactional, published.journaling) == ("one", True, True)

        await manager.set_queue(pathname, label="two", base_priority=5)
        changed = directory.queues.find(pathname)
        assert changed is not None and (changed.label, changed.base_priority) == ("two", 5)
        assert changed.security is not None
        is_active = directory_server.is_active_directory
        meant = to_message_queuing(changed.security, QUEUE_RIGHTS) if is_active else changed.security
        assert SecurityDescriptor.parse(meant).dacl is not None

        await manager.delete_queue(pathname)
        assert directory.queues.find(pathname) is None


async def test_a_queue_elsewhere_is_found_by_its_identifier(
    directory_server: DirectoryServer, names: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with (
        running(tmp_path / "one", names[0], directory_server) as one,
        running(tmp_path / "two", names[1], directory_server) as two,
    ):
        made = await one.create_queue(f"{names[0]}\\orders", base_priority=7)

        opened = await two.open_queue(f"PUBLIC={guid_to_text(made.identifier)}", Access.SEND)

        await opened.close()


async def test_a_name_that_is_taken_in_the_directory_is_refused(
    directory: EnterpriseDirectory, directory_server: DirectoryServer, names: tuple[str, str], tmp_path: Path
) -> None:
    directory.queues.add(Queue(pathname=f"{names[0]}\\orders"))
    async with running(tmp_path, names[0], directory_server) as manager:
        with pytest.raises(MessageQueuingError) as refused:
            await manager.create_queue(f"{names[0]}\\orders")
        assert refused.value.code is ErrorCode.MQ_ERROR_QUEUE_EXISTS
        assert all("orders" not in queue.pathname.lower() for queue in await manager.queues())
