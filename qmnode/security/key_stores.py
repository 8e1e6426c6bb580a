"""Key stores by name: the file store, and what is installed beside it."""

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any, Final

from qmnode.security.errors import KeyStoreError
from qmnode.security.file_key_store import open_file_key_store
from qmnode.security.key_store import KeyStore, KeyStoreOptions

ENTRY_POINT_GROUP: Final = "qmnode.key_store"
"""An entry point is a function from :class:`KeyStoreOptions` to a :class:`KeyStore`."""
FILE: Final = "file"


def open_key_store(name: str, options: KeyStoreOptions, *, factories: Iterable[Any] | None = None) -> KeyStore:
    """The key store of that name. Raises :class:`KeyStoreError` when there is none, or its settings are wrong."""
    if name == FILE:
        return open_file_key_store(options)
    installed = list(entry_points(group=ENTRY_POINT_GROUP) if factories is None else factories)
    for entry_point in installed:
        if entry_point.name == name:
            factory: Callable[[KeyStoreOptions], KeyStore] = entry_point.load()
            return factory(options)
    known = ", ".join(sorted([FILE, *(entry_point.name for entry_point in installed)]))
    raise KeyStoreError(f"no key store named {name!r} is installed (known: {known})")
