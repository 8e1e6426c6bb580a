"""The dealings of a queue manager with others: sessions, signatures, their queues, and exported events.

It takes as long to load as all the rest of a node, and is loaded after it: see :meth:`qmnode.node.Opening.complete`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qmnode.administration.operations import Operations
from qmnode.delivery.network import Network
from qmnode.delivery.signing_and_encryption import MessageSigning
from qmnode.directory.port import Directory
from qmnode.model.queue_manager import QueueManager
from qmnode.remote_read.client import RemoteReader
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.storage.store import Store

if TYPE_CHECKING:
    from qmnode.copies.shipper import Copier
    from qmnode.dcerpc.protection import SecurityContext
    from qmnode.export.exporter import Exporter
    from qmnode.export.recorder import EventRecorder


class Joined(NamedTuple):
    """The parts of a queue manager that have to do with others."""

    signing: MessageSigning
    network: Network
    operations: Operations
    exporter: "Exporter | None"
    copier: "Copier | None"


def join_others(
    manager: QueueManager, store: Store, directory: Directory | None, path: Path, events: "EventRecorder | None"
) -> Joined:
    """Make these parts of a queue manager whose store is in the directory ``path``, and start what needs no network."""
    settings = manager.settings
    signing = MessageSigning(settings.security, directory, manager.clock)
    manager.context.signing = signing
    network = Network(manager, store, settings, directory, path)
    manager.context.network = network
    operations = Operations(manager, store)
    manager.opening.remote_reader = RemoteReader(manager, _reader_security(settings.remote_read))
    exporter = copier = None
    if events is not None:
        from qmnode.export.exporter import Exporter

        events.attach(manager)
        exporter = Exporter(manager, store, events, settings.export)
        exporter.start()
    if store.settings.remote_copy.to:
        from qmnode.copies.shipper import Copier

        copier = Copier(manager, store, path)
        manager.copy_state = copier.state
        copier.start()
    return Joined(signing, network, operations, exporter, copier)


def _reader_security(settings: RemoteReadSettings) -> "Callable[[str], SecurityContext] | None":
    if not settings.account:
        return None
    from qmnode.dcerpc.authentication import initiator_authentication

    return initiator_authentication(settings)
