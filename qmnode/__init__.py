"""A queue manager node that speaks MSMQ.

    import qmnode

    async with qmnode.QueueManager.open("/var/lib/qmnode") as qm:
        await qm.create_queue(r".\\private$\\orders")
        queue = await qm.open_queue(r"DIRECT=OS:.\\private$\\orders", qmnode.Access.SEND)
        await queue.send(qmnode.Message(b"order 7", recoverable=True))

Without asyncio, :mod:`qmnode.sync` has the same names: ``qmnode.sync.connect()``.

The names below are loaded when they are first used, so that importing a part of the package costs only that part.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qmnode import sync as sync
    from qmnode.errors import MessageQueuingError as MessageQueuingError
    from qmnode.local.remote import connect as connect
    from qmnode.model.api import Access as Access
    from qmnode.model.api import DirectoryLogin as DirectoryLogin
    from qmnode.model.api import QueueApi as QueueApi
    from qmnode.model.api import QueueInformation as QueueInformation
    from qmnode.model.api import QueueType as QueueType
    from qmnode.model.api import Share as Share
    from qmnode.model.message import Acknowledgment as Acknowledgment
    from qmnode.model.message import Message as Message
    from qmnode.node import QueueManager as QueueManager
    from qmnode.settings.node import Settings as Settings

    __version__: str

_HOMES = {
    "Access": "qmnode.model.api",
    "Acknowledgment": "qmnode.model.message",
    "DirectoryLogin": "qmnode.model.api",
    "Message": "qmnode.model.message",
    "MessageQueuingError": "qmnode.errors",
    "QueueApi": "qmnode.model.api",
    "QueueInformation": "qmnode.model.api",
    "QueueManager": "qmnode.node",
    "QueueType": "qmnode.model.api",
    "Settings": "qmnode.settings.node",
    "Share": "qmnode.model.api",
    "connect": "qmnode.local.remote",
}

__all__ = [
    "Access",
    "Acknowledgment",
    "DirectoryLogin",
    "Message",
    "MessageQueuingError",
    "QueueApi",
    "QueueInformation",
    "QueueManager",
    "QueueType",
    "Settings",
    "Share",
    "__version__",
    "connect",
    "sync",
]


def __getattr__(name: str) -> Any:
    match name:
        case "__version__":
            return import_module("qmnode.version").program_version()
        case "sync":
            return import_module("qmnode.sync")
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'qmnode' has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
