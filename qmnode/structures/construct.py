"""Builds values from the arguments of a caller: checks each field and sets the dependent ones.

Dependent fields are the flags for optional parts, the type of a choice, required flags, padding, and totals.
"""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Any

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Array,
    Choice,
    Data,
    Field,
    Length,
    Nested,
    Padding,
    Scalar,
    Text,
)
from qmnode.structures.plan import Plan, resolve, scalar_problem

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure

    Raw = dict[str, Any]


def construct(cls: type[Structure], values: Raw) -> Any:
    """The value of ``cls`` with these fields. Raises TypeError for a wrong name, PacketError for a wrong value."""
    plan = cls.PLAN
    raw: Raw = {}
    for field in plan.stored:
        if field.attribute in values:
            raw[field.attribute] = stored_form(plan, field, values[field.attribute])
        elif field.required:
            raise TypeError(f"{plan.name}: {field.attribute} is missing")
        else:
            raw[field.attribute] = stored_form(plan, field, field.default)
    _no_other(plan, values)
    return settle(cls, raw, 0)


def adopt(cls: type[Structure], raw: Raw, changes: Raw) -> Any:
    """A copy of the stored fields ``raw`` with a caller's changes."""
    plan = cls.PLAN
    _no_other(plan, changes)
    for field in plan.stored:
        if field.attribute in changes:
            raw[field.attribute] = stored_form(plan, field, changes[field.attribute])
    return settle(cls, raw, 0)


def _no_other(plan: Plan, values: Raw) -> None:
    for name in values:
        if plan.field(name) is None or plan.field(name) not in plan.stored:
            raise TypeError(f"{plan.name} has no field {name} to set")


def _bad(plan: Plan, field: Field, sentence: str) -> PacketError:
    return PacketError(plan.name, field.name, None, sentence)


# --- one field --------------------------------------------------------------------------------------------------------
def stored_form(plan: Plan, field: Field, value: Any) -> Any:
    """A field's value as the structure keeps it: text as its bytes, arrays as tuples."""
    if value is None and (field.when is not None or isinstance(field, Choice)):
        return None
    match field:
        case Scalar():
            return _scalar(plan, field, value)
        case Data():
            return _data(plan, field, value)
        case Padding():
            return bytes(value)
        case Text():
            return _text(plan, field, value)
        case Nested():
            kind = field.structure
            if type(value) is not kind:
                raise _bad(plan, field, f"must be a {kind.__name__}, is {value!r:.60}")
            return value
        case Array():
            items = tuple(stored_form(plan, field.item, item) for item in value)
            _countable(plan, field, field.length, len(items))
            return items
        case Choice():
            return value  # settle checks it, as it knows the case
    raise AssertionError(f"no such kind of field: {field!r}")


def _scalar(plan: Plan, field: Scalar, value: Any) -> Any:
    if field.form != "number":
        if not isinstance(value, bytes | bytearray | memoryview):  # bytes(16) would be 16 zeros
            raise _bad(plan, field, f"must be bytes, is {value!r:.60}")
        value = bytes(value)
        if len(value) != field.size:
            raise _bad(plan, field, f"must have {field.size} bytes, has {len(value)}")
    elif field.code not in "fd":
        value = int(operator.index(value))  # the plain number of an enum's member
    try:
        packed = struct.pack(f"<{field.code}", value)
    except (struct.error, OverflowError) as error:
        raise _bad(plan, field, f"{value!r:.60} does not fit: {error}") from error
    if field.code in "fd":  # the part of a Python float that 4 bytes keep
        value = struct.unpack(f"<{field.code}", packed)[0]
    problem = scalar_problem(field, value)
    if problem is not None:
        raise _bad(plan, field, problem)
    return value


def _data(plan: Plan, field: Data, value: Any) -> Any:
    if isinstance(value, memoryview) and field.view:
        value = value if value.format == "B" and value.ndim == 1 else value.cast("B")
    elif not isinstance(value, bytes):
        value = bytes(memoryview(value))
    if field.limit is not None and len(value) > field.limit:
        raise _bad(plan, field, f"has {len(value)} bytes, at most {field.limit} are allowed")
    _countable(plan, field, field.length, len(value))
    return value


def _text(plan: Plan, field: Text, value: str) -> bytes | str:
    if field.scan and "\0" in value:
        raise _bad(plan, field, "has a null character inside")
    written = value.encode("utf-16-le", "surrogatepass")
    if (field.terminated or field.scan) and (value or not field.empty_is_absent):
        written += b"\0\0"
    _countable(plan, field, field.length, len(written))
    return written if field.attribute else value


def _countable(plan: Plan, field: Field, length: Length | None, size: int) -> None:
    """Raise if a length field cannot hold the size."""
    if length is None:
        return
    if not isinstance(field, Array):
        if size % length.unit:
            raise _bad(plan, field, f"has {size} bytes, must be a multiple of {length.unit}")
        size = size // length.unit * length.per
    size += length.bias
    if size >> (8 * length.size) or (length.allowed is not None and size not in length.allowed):
        raise _bad(plan, field, f"is too large: {length.name} would be {size}")


# --- what follows from the rest ---------------------------------------------------------------------------------------
def settle(cls: type[Structure], raw: Raw, start: int) -> Any:
    """Set flags, choices, padding and totals of a value that starts at ``start`` (counted from its alignment)."""
    plan = cls.PLAN
    for path, value in plan.requires.items():
        _put(plan, raw, path, value)
    for field in plan.stored:
        if field.when is not None:
            present = raw[field.attribute] is not None
            if bool(_get(plan, raw, field.when)) is not present:
                _put(plan, raw, field.when, int(present))
        elif isinstance(field, Choice):
            raw[field.attribute] = _choose(cls, field, raw)
    inside = _place(cls, raw, start)
    if plan.total is not None:
        _put(plan, raw, plan.total, inside)
        stated = plan.field(plan.total)
        if stated is not None:
            stored_form(plan, stated, inside)  # raises if the field cannot hold the size
    make: Any = tuple.__new__
    return make(cls, raw.values())


def _choose(cls: type[Structure], field: Choice, raw: Raw) -> Any:
    """Check the value of a choice against its case, or set ``on`` to the first case that fits."""
    plan, value = cls.PLAN, raw[field.attribute]
    now = _get(plan, raw, field.on)
    for number in (now, *field.cases):
        if number not in field.cases:
            continue
        case = field.cases[number]
        if case is None:
            if value is None:
                _put(plan, raw, field.on, number)
                return None
            continue
        if value is None or (isinstance(case, Nested) and type(value) is not case.structure):
            continue
        form = _stored_or_none(plan, case, value)
        if form is not None:
            _put(plan, raw, field.on, number)
            return form
    raise _bad(plan, field, f"{value!r:.60} is of no kind that {field.name} can be")


def _stored_or_none(plan: Plan, case: Field, value: Any) -> Any:
    try:
        return stored_form(plan, case, value)
    except (PacketError, TypeError, AttributeError):
        return None


def _place(cls: type[Structure], raw: Raw, start: int) -> int:
    """Set padding and the items whose padding depends on their place. Return the size that counts for the total."""
    plan = cls.PLAN
    at = start
    inside = None
    for field in plan.fields:
        if field.attribute in plan.outside_total and inside is None:
            inside = at - start
        if field.derived:
            assert isinstance(field, Length)
            at += field.size
            continue
        value = raw[field.attribute]
        if isinstance(field, Padding):
            need = -at % field.align
            value = raw[field.attribute] = value[:need].ljust(need, b"\0")
        elif isinstance(field, Array | Choice | Nested):
            value = raw[field.attribute] = _placed(value, at)
        at += _size(field, value)
    return at - start if inside is None else inside


def _placed(value: Any, at: int) -> Any:
    """A structure, or a tuple of them, with the padding that it has at ``at``."""
    plan = getattr(value, "PLAN", None)
    if plan is not None:
        if not plan.floating:
            return value
        raw = {field.attribute: part for field, part in zip(plan.stored, value, strict=True)}
        return settle(type(value), raw, at)
    if not isinstance(value, tuple):
        return value
    items = []
    for item in value:
        items.append(_placed(item, at))
        at += getattr(items[-1], "size", 0)
    return tuple(items)


def _size(field: Field, value: Any) -> int:
    if value is None:
        return 0
    match field:
        case Scalar():
            return field.size
        case Text(attribute=""):
            return len(value.encode("utf-16-le", "surrogatepass")) + 2 * (field.terminated or field.scan)
        case Data() | Text() | Padding():
            return len(value)
        case Nested():
            return int(value.size)
        case Array():
            return sum(_size(field.item, item) for item in value)
        case Choice():
            case = next(case for case in field.cases.values() if case is not None and _is_case(case, value))
            return _size(case, value)
    raise AssertionError(f"no such kind of field: {field!r}")


def _is_case(case: Field, value: Any) -> bool:
    return not isinstance(case, Nested) or type(value) is case.structure


def _get(plan: Plan, raw: Raw, path: str) -> int:
    number, bit = resolve(plan, path)
    first, *rest = number.split(".")
    value = raw[first]
    for word in rest:
        value = getattr(value, word)
    word_value: int = value
    return word_value if bit is None else bit.get(word_value)


def _put(plan: Plan, raw: Raw, path: str, value: int) -> None:
    number, bit = resolve(plan, path)
    if _get(plan, raw, path) == value:
        return
    word = value if bit is None else bit.put(_get(plan, raw, number), value)
    first, *rest = number.split(".")
    raw[first] = _with(raw[first], rest, word)


def _with(holder: Any, path: list[str], value: int) -> Any:
    if not path:
        return value
    first, *rest = path
    return holder.replace(**{first: _with(getattr(holder, first), rest, value)})
