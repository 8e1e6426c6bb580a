"""The objects of an MS-NRBF stream as nested Python values."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from qmnode.bodies.dates import from_nrbf
from qmnode.bodies.dictionary_keys import KeyHashes
from qmnode.bodies.limits import BodyError, Budget


class Reference(NamedTuple):
    """MemberReference (2.5.3), and the placeholder for an object wherever it occurs."""

    identifier: int


@dataclass(slots=True)
class Instance:
    """An object: its type, and its members' values in order."""

    type_name: str
    members: tuple[str, ...]
    values: list[Any] = field(default_factory=list)


_ASSEMBLY: Final = re.compile(r", [^\[\],]+, Version=[^\[\]]*?(?=\])")
_BACKING: Final = re.compile(r"(?:\w+\+)?<([^<>]+)>k__BackingField\Z")


def short_type_name(name: str) -> str:
    """A type's name without the assemblies of its type arguments."""
    return _ASSEMBLY.sub("", name)


class ValueBuilder:
    """Follows references from the root. Each value that it makes is charged, however often an object is shared."""

    def __init__(self, objects: dict[int, Any], budget: Budget) -> None:
        self._objects = objects
        self._budget = budget
        self._within: dict[int, None] = {}

    def build(self, value: Any) -> Any:
        """Build a value with everything that it refers to."""
        match value:
            case Reference():
                return self._object(value.identifier)
            case Instance():
                return self._instance(value)
            case list():
                self._budget.spend(len(value) // 4)
                if not any(isinstance(one, (Reference, Instance, list, str, bytes)) for one in value):
                    return value
                return [self.build(one) for one in value]
            case str() | bytes():
                self._budget.spend(1, len(value))
        return value

    def _object(self, identifier: int) -> Any:
        if identifier not in self._objects:
            raise BodyError(f"object {identifier} is referred to, and is not in the stream")
        held = self._objects[identifier]
        if identifier in self._within:
            return {"$cycle": short_type_name(held.type_name) if isinstance(held, Instance) else "array"}
        self._budget.spend()
        self._within[identifier] = None
        self._budget.check_depth(len(self._within))
        found = self.build(held)
        del self._within[identifier]
        return found

    def _instance(self, instance: Instance) -> Any:
        self._budget.spend(1 + len(instance.members), len(instance.type_name))
        members: dict[str, Any] = {}
        for name, value in zip(instance.members, instance.values, strict=False):
            self._budget.spend(0, len(name))
            backing = _BACKING.match(name)
            members[backing[1] if backing else name] = self.build(value)
        name = instance.type_name.partition("[[")[0]
        show = _SHOWN.get(name)
        if show is not None:
            try:
                return show(members)
            except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError):
                pass  # members of another framework version, or forged ones: shown as they are
        return {"$type": short_type_name(instance.type_name), **members}


def _sized(items: str, size: str = "_size") -> Callable[[dict[str, Any]], Any]:
    return lambda members: members[items][: _count(members[size])]


def _count(size: int) -> int:
    if size < 0:
        raise ValueError("a negative size")
    return size


def _queue(members: dict[str, Any]) -> list[Any]:
    array, head, size = members["_array"], _count(members["_head"]), _count(members["_size"])
    return [*array[head:], *array[:head]][:size]


def _mapping(pairs: list[tuple[Any, Any]]) -> Any:
    """A dictionary if the keys are distinct scalars, and not many have one hash; otherwise pairs."""
    are_scalars = all(isinstance(key, (str, int, float, UUID, Decimal)) for key, _ in pairs)
    hashes = KeyHashes()
    if (
        are_scalars
        and len({str(key) for key, _ in pairs}) == len(pairs)
        and all(hashes.admits(key) for key, _ in pairs)
    ):
        return dict(pairs)
    return [{"key": key, "value": value} for key, value in pairs]


def _pairs(members: dict[str, Any]) -> Any:
    held = members.get("KeyValuePairs") or []  # an empty dictionary has none
    return _mapping([(one["key"], one["value"]) for one in held])


def _columns(members: dict[str, Any]) -> Any:
    keys: list[Any] = members["Keys"] if "Keys" in members else members["keys"]
    values: list[Any] = members["Values"] if "Values" in members else members["values"]
    return _mapping(list(zip(keys, values, strict=True))[: members.get("_size")])


def _guid(members: dict[str, Any]) -> UUID:
    a, b, c = (members[f"_{letter}"] & mask for letter, mask in (("a", 0xFFFFFFFF), ("b", 0xFFFF), ("c", 0xFFFF)))
    return UUID(
        fields=(a, b, c, members["_d"], members["_e"], int.from_bytes(bytes(members[f"_{x}"] for x in "fghijk")))
    )


def _decimal(members: dict[str, Any]) -> Decimal:
    flags, high, middle, low = (members[name] & 0xFFFFFFFF for name in ("flags", "hi", "mid", "lo"))
    whole = high << 64 | middle << 32 | low
    return Decimal(f"{'-' if flags >> 31 else ''}{whole}E-{flags >> 16 & 0xFF}")


def _only(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda members: members[name]


_GENERIC: Final = "System.Collections.Generic."
_SHOWN: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    f"{_GENERIC}List`1": _sized("_items"),
    "System.Collections.ArrayList": _sized("_items"),
    f"{_GENERIC}Queue`1": _queue,
    "System.Collections.Queue": _queue,
    f"{_GENERIC}Stack`1": _sized("_array"),
    "System.Collections.Stack": _sized("_array"),
    f"{_GENERIC}HashSet`1": lambda members: members["Elements"] or [],
    f"{_GENERIC}LinkedList`1": lambda members: members["Data"] or [],
    f"{_GENERIC}Dictionary`2": _pairs,
    f"{_GENERIC}KeyValuePair`2": lambda members: {"key": members["key"], "value": members["value"]},
    f"{_GENERIC}SortedList`2": _columns,
    "System.Collections.Hashtable": _columns,
    "System.Collections.SortedList": _columns,
    "System.Guid": _guid,
    "System.Decimal": _decimal,
    "System.DateTime": lambda members: from_nrbf(members["dateData"] if "dateData" in members else members["ticks"]),
    "System.TimeSpan": lambda members: timedelta(microseconds=members["_ticks"] // 10),
    **{
        f"System.{name}": _only("m_value")
        for name in (
            "Boolean",
            "Byte",
            "SByte",
            "Int16",
            "UInt16",
            "Int32",
            "UInt32",
            "Int64",
            "UInt64",
            "Single",
            "Double",
            "Char",
        )
    },
}
"""Types of the framework that are shown as their contents, by name."""
