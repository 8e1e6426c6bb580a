"""Entries of a directory server as they are: what is read, what is changed, and the connection that does both."""

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as the server gave it: attribute names in lower case, values as bytes."""

    dn: str
    attributes: Mapping[str, tuple[bytes, ...]]

    def first(self, attribute: str) -> bytes | None:
        """The only or first value, or nothing."""
        values = self.attributes.get(attribute.lower())
        return values[0] if values else None


class Scope(enum.Enum):
    """How deep a search goes (RFC 4511 4.5.1.2)."""

    BASE = "BASE"
    LEVEL = "LEVEL"
    SUBTREE = "SUBTREE"


class ChangeKind(enum.Enum):
    """The operation of one change in a modify request (RFC 4511 4.6)."""

    ADD = "MODIFY_ADD"
    DELETE = "MODIFY_DELETE"
    REPLACE = "MODIFY_REPLACE"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. All changes of one request take effect together or not at all.

    Deleting an exact value that is not there fails with ``ConditionFailed``: with an addition in the same request this
    is compare and set.
    """

    kind: ChangeKind
    attribute: str
    values: tuple[bytes, ...] = ()


class Connection(Protocol):
    """Entries as they are. A write whose outcome is unknown was read back before this said what became of it."""

    @property
    def root(self) -> str:
        """The distinguished name of the directory's root (rootDomainNamingContext)."""

    def read(self, dn: str, attributes: Collection[str] = ("*",)) -> Entry:
        """One entry. Raises ``ObjectNotFound``."""

    def search(
        self, base: str, filter: str, attributes: Collection[str] = ("*",), scope: Scope = Scope.SUBTREE
    ) -> Iterator[Entry]:
        """The entries under a base, page by page. Nothing when the base does not exist."""

    def add(self, dn: str, object_classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]) -> Entry:
        """Create an entry and read it back with its ``objectGUID``. Raises ``ObjectAlreadyExists``."""

    def modify(self, dn: str, changes: Sequence[Change]) -> None:
        """Change an entry, atomically. Raises ``ObjectNotFound`` and ``ConditionFailed``."""

    def delete(self, dn: str, *, tree: bool = False, only_if: tuple[str, bytes] | None = None) -> None:
        """Delete an entry, and with ``tree`` what lies beneath it. Raises ``ObjectNotFound``.

        With ``only_if`` only while an attribute has that value, where the server can tell, else ``ConditionFailed``.
        """
