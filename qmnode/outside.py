"""The dealings of a queue manager with others: sessions, signatures, their queues, and exported events.

It takes as long to load as all the rest of a node, and is loaded after it: see :meth:`qmnode.node.Opening.complete`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from qmnode.administration.operations import Operations
from qmnode.delivery.network import Network
from qmnode.delivery.signing import MessageSigning
from qmnode.directory.port import Directory
from qmnode.remote_read.remote_reader import RemoteReader
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.storage.store import Store

if TYPE_CHECKING:
    from qmnode.dcerpc.protection import SecurityContext
    from qmnode.node import QueueManager


def join_others(manager: "QueueManager", store: Store, directory: Directory | None, path: Path) -> None:
    """Make these parts of a queue manager whose store is in the directory ``path``."""
    settings = manager.settings
    signing = MessageSigning(settings.security, directory, manager.clock)
    manager.signing = manager.context.signing = signing
    network = Network(manager, store, settings, directory, path)
    manager.network = manager.context.network = network
    manager.operations = Operations(manager, store)
    manager.remote_reader = RemoteReader(manager, _reader_security(settings.remote_read))
    if manager.events is not None:
        from qmnode.export.exporter import Exporter

        manager.events.attach(manager)
        manager.exporter = Exporter(manager, store, manager.events, settings.export)
        manager.exporter.start()
    if store.settings.remote_copy.to:
        from qmnode.copies.copier import Copier

        manager.copier = Copier(manager, store, path)
        manager.copy_state = manager.copier.state
        manager.copier.start()


def _reader_security(settings: RemoteReadSettings) -> "Callable[[str], SecurityContext] | None":
    if not settings.account:
        return None
    from qmnode.dcerpc.authentication import initiator_authentication

    return initiator_authentication(settings)
