"""The repository that every kind of object starts from: an entry becomes a typed value and back, by the mapping."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import structlog

from mqenterprise.directory.entities import Filter
from mqenterprise.directory.entries import Change, ChangeKind, Entry
from mqenterprise.directory.errors import ConstraintViolated, HalfWritten, ObjectNotFound
from mqenterprise.directory.mapping import (
    Attribute,
    ObjectMapping,
    Refers,
    Values,
    default_of,
    filter_of,
    satisfies,
)
from mqenterprise.directory.names import escape_filter
from qmnode.directory.port import DirectoryObject
from qmnode.objects.rows import Changes
from qmnode.structures.guid import Guid, guid_from_bytes, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.references import References

Entity = TypeVar("Entity", bound=DirectoryObject)

log = structlog.get_logger(__name__)

PROBLEMS_KEPT: Final = 1000


class ObjectRepository(Generic[Entity]):
    """One kind of object that is one entry. A kind that is more than that overrides what differs."""

    mapping: ObjectMapping
    name_field = "name"

    def __init__(self, connection: LdapConnection, references: References) -> None:
        self._connection = connection
        self._references = references
        self.half_written: list[HalfWritten] = []
        """Entries that :meth:`list` left out, because something that they cannot be without is missing."""

    # Where

    def _base(self) -> str:
        return self._connection.dialect.contexts.domain

    def _dn(self, entity: Entity) -> str:
        """The distinguished name: the one it was read with, or the one that 2.2.1 gives."""
        raise NotImplementedError

    def _by_name(self, name: str) -> Iterator[Entry]:
        """The entries of that name, the one where it belongs first."""
        filter = f"(&(objectClass={self.mapping.object_class})(cn={escape_filter(name)}))"
        return self._connection.search(self._base(), filter, self.mapping.names(None))

    def _located(self, entity: Entity) -> str:
        """The distinguished name of an object that exists; by its GUID when its path is not known."""
        if entity.full_path is None and entity.identifier is not None:
            return self._entry_by_guid(entity.identifier, ("objectGUID",)).dn
        return entity.full_path or self._dn(entity)

    # Reading

    def get(self, identifier: Guid, attributes: Collection[str] | None = None) -> Entity:
        """The object of that GUID. Raises ``ObjectNotFound``, and ``HalfWritten`` for half of one."""
        return self._complete(self._entry_by_guid(identifier, self.mapping.names(attributes)), attributes)

    def at(self, dn: str, attributes: Collection[str] | None = None) -> Entity:
        """The object at a full path. Raises ``ObjectNotFound``."""
        return self._complete(self._connection.read(dn, self.mapping.names(attributes)), attributes)

    def find(self, name: str) -> Entity | None:
        """The object of that name, or nothing."""
        entry = next(self._by_name(name), None)
        return None if entry is None else self._complete(entry, None)

    def list(self, *filters: Filter, attributes: Collection[str] | None = None) -> Iterator[Entity]:
        """All objects that satisfy all filters. Half of an object is left out and noted in :attr:`half_written`."""
        asked = None if attributes is None else {*attributes, *(expression.attribute for expression in filters)}
        ldap_filter, left = filter_of(self.mapping, filters)
        for entry in self._connection.search(self._base(), ldap_filter, self.mapping.names(asked)):
            try:
                found = self._complete(entry, asked)
            except HalfWritten as problem:
                self._note(problem)
                continue
            if satisfies(found, left):
                yield found

    def _note(self, problem: HalfWritten) -> None:
        log.warning("directory entry left out", reason=problem.sentence)
        if len(self.half_written) < PROBLEMS_KEPT:
            self.half_written.append(problem)

    def _entry_by_guid(self, identifier: Guid, names: Collection[str]) -> Entry:
        base, filter, is_base = self._connection.dialect.by_guid(identifier)
        wanted = (*names, "objectClass")
        found = (self._connection.read(base, wanted),) if is_base else self._connection.search(base, filter, wanted)
        for entry in found:
            # A GUID of another kind of object is nobody's of this kind.
            if self.mapping.object_class.lower().encode() in map(bytes.lower, entry.attributes.get("objectclass", ())):
                return entry
        raise ObjectNotFound(f"there is no {self.mapping.entity.__name__} with the GUID {guid_to_text(identifier)}")

    def _complete(self, entry: Entry, attributes: Collection[str] | None) -> Entity:
        """An object of an entry; a kind that has more to read than one entry does so here."""
        return self._decoded(entry, attributes)

    def _decoded(self, entry: Entry, attributes: Collection[str] | None, **more: Any) -> Entity:
        try:
            return self._read(entry, attributes, **more)
        except (ValueError, struct.error) as error:  # UnicodeDecodeError is one
            raise HalfWritten(f"{entry.dn} is not what it should be: {error}; correct or delete it") from error

    def _read(self, entry: Entry, attributes: Collection[str] | None, **more: Any) -> Entity:
        values: dict[str, Any] = {"full_path": entry.dn}
        for row in self.mapping.attributes:
            if row.on_computer or (attributes is not None and row.field not in attributes and not row.required):
                continue
            raw = entry.attributes.get(row.name.lower())
            if raw:
                values[row.field] = self._value(row, raw, entry.dn)
            elif row.required and (attributes is None or row.field in attributes or row.field == "identifier"):
                raise HalfWritten(f"{entry.dn} lacks {row.name}: someone made half of it; complete or delete it")
        values.update(more)
        values.update(self._computed(entry, attributes))
        return self._built(values)

    def _built(self, values: dict[str, Any]) -> Entity:
        # A field without a default that was not asked for still needs something; it is not to be used (3.1.7.1.20).
        for item in fields(self.mapping.entity):
            if item.name not in values and item.default is MISSING:
                values[item.name] = 0 if item.name == "actual_cost" else b"" if item.name.endswith("identifier") else ""
        return self.mapping.entity(**values)  # type: ignore[return-value]

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        """The fields that take more than one attribute."""
        return {}

    def _value(self, row: Attribute, raw: Values, dn: str) -> Any:
        if row.refers is not None:
            return self._resolved(row, row.refers, raw, dn)
        try:
            return row.codec.decode(raw)
        except (ValueError, struct.error) as error:
            raise HalfWritten(f"{row.name} of {dn} is not what it should be: {error}") from error

    def _resolved(self, row: Attribute, refers: Refers, raw: Values, dn: str) -> Any:
        found = []
        for value in raw:
            try:
                found.append(self._references.guid_of(value.decode(), refers))
            except (ObjectNotFound, ConstraintViolated):
                # 3.1.6.11.1.3 skips a routing server that is gone. 3.1.6.11.5.3 makes a gate that is gone an error; one
                # deleted machine would take the whole link from everyone, so it is skipped as well.
                if row.required:
                    named = value.decode()[:200]
                    raise HalfWritten(f"{row.name} of {dn} names {named!r}, which does not exist") from None
        return found[0] if row.required else tuple(found)

    # Writing

    def add(self, entity: Entity) -> Entity:
        """Create it. Raises ``ObjectAlreadyExists``."""
        dn = self._dn(entity)
        entry = self._connection.add(dn, self._classes(), self._new_attributes(entity))
        return self._added(entity, entry)

    def modify(self, entity: Entity, attributes: Collection[str] | None = None) -> None:
        """Write the given fields. Without ``attributes``: read, compare and write the fields that differ."""
        dn = self._located(entity)
        wanted = self._different(entity, dn) if attributes is None else tuple(attributes)
        self._connection.modify(dn, self._changes(entity, wanted))

    def delete(self, entity: Entity) -> None:
        """Delete it and what lies beneath it. Raises ``ObjectNotFound``."""
        dn = self._located(entity)
        self._connection.delete(dn, tree=True)
        self._references.forget(dn)

    def _classes(self) -> Sequence[str]:
        return ("top", self.mapping.object_class)

    def _added(self, entity: Entity, entry: Entry) -> Entity:
        value = entry.first("objectGUID")
        if value is None:
            raise HalfWritten(f"{entry.dn} was created and has no objectGUID")
        return replace(entity, identifier=guid_from_bytes(value), full_path=entry.dn)

    def _new_attributes(self, entity: Entity) -> dict[str, Sequence[bytes]]:
        rows = (row for row in self.mapping.attributes if row.changes is not Changes.NEVER and not row.on_computer)
        written = {row.name: self._encoded(row, entity) for row in rows}
        return {**written, **self._computed_attributes(entity)}

    def _computed_attributes(self, entity: Entity) -> dict[str, Sequence[bytes]]:
        """The attributes that more than one field makes."""
        return {}

    def _changes(self, entity: Entity, wanted: Collection[str], *, on_computer: bool = False) -> Sequence[Change]:
        changes: dict[str, Change] = {}
        for name in wanted:
            row = self.mapping.of(name)
            if row is None:
                for computed in self.mapping.computed.get(name, ()):
                    if computed in (more := self._computed_attributes(entity)):
                        changes[computed] = Change(ChangeKind.REPLACE, computed, tuple(more[computed]))
            elif row.on_computer == on_computer and self._may_change(row):
                changes[row.name] = Change(ChangeKind.REPLACE, row.name, self._encoded(row, entity))
        # A descriptor cannot be taken away, and one that we do not know is not to be.
        return [c for c in changes.values() if c.values or c.attribute != "nTSecurityDescriptor"]

    @staticmethod
    def _may_change(row: Attribute) -> bool:
        return row.changes is Changes.ALWAYS

    def _different(self, entity: Entity, dn: str) -> tuple[str, ...]:
        present = self.at(dn)
        names = (*(row.field for row in self.mapping.attributes if self._may_change(row)), *self.mapping.computed)
        return tuple(
            name
            for name in dict.fromkeys(names)
            if getattr(present, name) != getattr(entity, name)
            and not (getattr(entity, name) is None and default_of(self.mapping.entity, name) is None)
        )

    def _encoded(self, row: Attribute, entity: Entity) -> Values:
        value = getattr(entity, row.field)
        try:
            if row.refers is not None:
                guids: tuple[Guid, ...] = (guid_from_bytes(value),) if isinstance(value, bytes) else value
                return tuple(self._references.dn_of(guid, row.refers).encode() for guid in guids)
            return row.codec.encode(value)
        except ObjectNotFound as error:
            raise ConstraintViolated(f"{row.field} cannot be written: {error.sentence}") from error
        except (ValueError, OverflowError, TypeError, AttributeError) as error:
            kind = self.mapping.entity.__name__
            raise ConstraintViolated(f"{value!r} is no {row.field} of a {kind}: {error}") from error
