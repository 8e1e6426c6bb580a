"""Makes parsers and writers from declarations: one function per structure, with its nested structures inlined.

A parser is ``read(buf, p, end, origin) -> (value, p)``: it parses the structure at
``p``, never reads past ``end``, and aligns to ``origin``, the start of the outermost structure. It is made twice: for
``bytes``, and for a memoryview. A writer is ``parts(value) -> list`` of byte runs; joined they
are the structure.
"""

from __future__ import annotations

import re
import struct
from codecs import utf_16_le_decode
from collections.abc import Callable
from typing import Any

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    Array,
    Choice,
    Data,
    DeclaredStructure,
    Field,
    Length,
    Nested,
    Padding,
    Plan,
    Scalar,
    Text,
    least_size,
    resolve,
    short,
    short_run,
    wrong_run,
)

_FIRST_LOOK = 64
"""Bytes of a view that are first searched for the end of a text: most names are shorter."""


def text_end(buf: bytes | memoryview, p: int, end: int) -> int:
    """The offset after the null character that ends UTF-16 text at ``p``, or -1 when none is before ``end``."""
    if isinstance(buf, bytes):
        return _text_end(buf, p, end)
    # A view cannot be searched, so a part of it is copied, at most a multiple of the text. If each of many texts in a
    # buffer copied the whole rest, the time would grow with the square of their number.
    size = _FIRST_LOOK
    while True:
        found = _text_end(bytes(buf[p : min(p + size, end)]), 0, size)
        if found >= 0:
            return p + found
        if p + size >= end:
            return -1
        size *= 4


def _text_end(buf: bytes, p: int, end: int) -> int:
    at = buf.find(b"\0\0", p, end)
    while at >= 0 and (at - p) % 2:
        at = buf.find(b"\0\0", at + 1, end)
    return at if at < 0 else at + 2


class Code:
    """Lines of a function under construction, with the objects they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {
            "Bad": PacketError, "short": short, "short_run": short_run, "wrong_run": wrong_run,
            "new": tuple.__new__, "text_end": text_end, "memoryview": memoryview,
        }  # fmt: skip
        self.count = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def variable(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}_{self.count}"

    def name(self, value: Any, hint: str) -> str:
        """A name in the function's globals for an object."""
        for known, there in self.names.items():
            if there is value and not isinstance(value, int):
                return known
        name = self.variable(re.sub(r"\W", "_", hint))
        self.names[name] = value
        return name

    def compile(self, signature: str, filename: str) -> Callable[..., Any]:
        source = f"def made({signature}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, filename, "exec"), self.names)  # noqa: S102 - made of our own declarations only
        made: Callable[..., Any] = self.names.pop("made")
        made.__source__ = source  # type: ignore[attr-defined]
        return made


def fixed_run(fields: tuple[Field, ...], place: int) -> tuple[Field, ...]:
    """The fixed fields from ``place`` on that one unpack reads."""
    stop = place
    while stop < len(fields) and isinstance(fields[stop], Scalar) and fields[stop].when is None:
        stop += 1
    return fields[place:stop]


def same_cases(item: Choice) -> list[tuple[list[int], Field | None]]:
    """The cases of a choice with the values that share one, absence first: it is the most frequent."""
    groups: list[tuple[list[int], Field | None]] = []
    for value, case in sorted(item.cases.items(), key=lambda pair: pair[1] is not None):
        for values, known in groups:
            if known == case:
                values.append(value)
                break
        else:
            groups.append(([value], case))
    return groups


class ReaderCode(Code):
    """The parser of one structure. ``p + self.ahead`` is the place of the next field."""

    def __init__(self, owner: type[DeclaredStructure], of_bytes: bool) -> None:
        super().__init__()
        self.owner = owner
        self.of_bytes = of_bytes
        self.ahead = 0
        self.done: dict[str, str] = {}  # padding that was read together with the data before it
        self.aligned = not owner.PLAN.floating  # the next field is known to start at a multiple of 4

    def make(self) -> Callable[..., Any]:
        value = self.structure(self.owner, {})
        self.add(f"return {value}, {self.place()}")
        return self.compile("buf, p, end, origin", f"<reader of {self.owner.PLAN.name}>")

    def place(self) -> str:
        return f"p + {self.ahead}" if self.ahead else "p"

    def settle(self) -> None:
        """Make ``p`` itself the place of the next field."""
        if self.ahead:
            self.add(f"p += {self.ahead}")
            self.ahead = 0

    def slice(self, stop: str) -> str:
        return f"buf[p:{stop}]" if self.of_bytes else f"bytes(buf[p:{stop}])"

    # structures
    def structure(self, kind: type[DeclaredStructure], symbols: dict[str, str]) -> str:
        """Emit the parser of a structure; fill ``symbols`` with its numbers by path; return the value's variable."""
        plan = kind.PLAN
        start = None
        if plan.total is not None:
            start = self.variable("start")
            self.add(f"{start} = {self.place()}")
        limit, opened = "", False
        values: dict[str, str] = {}
        place = 0
        whole = ""
        while place < len(plan.fields):
            item = plan.fields[place]
            if limit and item.attribute in plan.outside_total:
                self.close_total(plan, limit)
                limit = ""
            run = fixed_run(plan.fields, place)
            if run:
                whole = self.run(plan, run, values, symbols)
                place += len(run)
            else:
                values[item.attribute] = self.field(kind, item, symbols)
                place += 1
            if start is not None and not opened and plan.total in symbols:
                limit, opened = self.open_total(plan, start, symbols[plan.total]), True
        if limit:
            self.close_total(plan, limit)
        self.requirements(plan, symbols)
        if len(values) != len(plan.stored) or len(fixed_run(plan.fields, 0)) != len(plan.fields):
            whole = ""  # not the tuple of one unpack
        whole = whole or "(" + "".join(f"{values[item.attribute]}, " for item in plan.stored) + ")"
        value = self.variable("s")
        self.add(f"{value} = new({self.name(kind, plan.name)}, {whole})")
        return value

    def open_total(self, plan: Plan, start: str, total: str) -> str:
        limit = self.variable("limit")
        self.add(f"{limit} = end; end = {start} + {total}")
        self.add(f"if end > {limit} or end < {self.place()}: raise Bad({plan.name!r}, {plan.total!r}, {start}, "
                 f"f'says {{{total}}} bytes, {{{limit} - {start}}} are there')")  # fmt: skip
        return limit

    def close_total(self, plan: Plan, limit: str) -> None:
        self.add(f"if {self.place()} != end: raise Bad({plan.name!r}, {plan.total!r}, {self.place()}, "
                 f"f'leaves {{end - ({self.place()})}} bytes after the last field')")  # fmt: skip
        self.add(f"end = {limit}")

    def requirements(self, plan: Plan, symbols: dict[str, str]) -> None:
        for path, value in plan.requires.items():
            number, bit = resolve(plan, path)
            if bit is not None and bit.width == 1:
                wrong = f"not {symbols[number]} & {bit.mask}" if value else f"{symbols[number]} & {bit.mask}"
            else:
                expression = symbols[number] if bit is None else f"({symbols[number]} & {bit.mask}) >> {bit.shift}"
                wrong = f"{expression} != {value}"
            self.add(f"if {wrong}: raise Bad({plan.name!r}, {path!r}, origin, 'must be {value}')")

    def run(self, plan: Plan, run: tuple[Field, ...], values: dict[str, str], symbols: dict[str, str]) -> str:
        """Emit one unpack for consecutive fixed fields. Return the variable of the tuple, if one is kept."""
        scalars = [item for item in run if isinstance(item, Scalar)]
        unpacker = struct.Struct("<" + "".join(item.code for item in scalars))
        at = self.place()
        fields = self.name(run, f"fields_{run[0].attribute}")
        self.add(f"if {at} + {unpacker.size} > end: raise short_run({plan.name!r}, {fields}, {at}, end)")
        call = f"{self.name(unpacker.unpack_from, 'unpack')}(buf, {at})"
        kept = ""
        if len(run) == len(plan.fields) and not any(item.derived for item in run):
            kept = self.variable("t")
            self.add(f"{kept} = {call}")
            names = [f"{kept}[{place}]" for place in range(len(scalars))]
        else:
            names = [self.variable(item.attribute or "x") for item in scalars]
            self.add(f"{', '.join(names)}, = {call}")
        checks = []
        for item, variable in zip(scalars, names, strict=True):
            symbols[item.attribute] = values[item.attribute] = variable
            check = self.check(item, variable)
            if check:
                checks.append(check)
        if checks:
            everything = kept or f"({', '.join(names)},)"
            self.add(f"if {' or '.join(checks)}: raise wrong_run({plan.name!r}, {fields}, {at}, {everything})")
        self.ahead += unpacker.size
        self.aligned &= unpacker.size % 4 == 0
        return kept

    def check(self, item: Scalar, variable: str) -> str:
        if item.const is not None:
            return f"{variable} != {item.const!r}"
        if item.strict and item.allowed is not None:
            if isinstance(item.allowed, range) and item.allowed.step == 1:
                if item.allowed.start == 0 and item.code in "BHIQ":
                    return f"{variable} >= {item.allowed.stop}"
                return f"not {item.allowed.start} <= {variable} < {item.allowed.stop}"
            return f"{variable} not in {self.name(item.allowed, 'allowed')}"
        return ""

    # fields
    def field(self, kind: type[DeclaredStructure], item: Field, symbols: dict[str, str]) -> str:
        """Emit one field that is not part of a run; return its variable."""
        if item.when is None:
            return self.present(kind, item, symbols)
        number, bit = resolve(kind.PLAN, item.when)
        assert bit is not None
        self.settle()
        result = self.variable(item.attribute)
        aligned = self.aligned
        self.add(f"if {symbols[number]} & {bit.mask}:")
        self.depth += 1
        self.add(f"{result} = {self.present(kind, item, symbols)}")
        self.settle()
        self.depth -= 1
        self.add(f"else: {result} = None")
        self.aligned &= aligned
        return result

    def present(self, kind: type[DeclaredStructure], item: Field, symbols: dict[str, str]) -> str:
        match item:
            case Scalar():
                values: dict[str, str] = {}
                self.run(kind.PLAN, (item,), values, symbols)
                return values[item.attribute]
            case Nested():
                inner: dict[str, str] = {}
                value = self.structure(item.structure, inner)
                symbols.update({f"{item.attribute}.{path}": variable for path, variable in inner.items()})
                return value
            case Data():
                return self.data(kind.PLAN, item, symbols)
            case Text():
                value = self.text(kind.PLAN, item, symbols)
                self.aligned = False
                return value
            case Padding():
                return self.padding(kind.PLAN, item)
            case Choice():
                return self.choice(kind, item, symbols)
            case Array():
                value = self.array(kind, item, symbols)
                self.aligned = False
                return value
        raise TypeError(f"{kind.__name__}.{item.name}: no parser for {type(item).__name__}")

    def call(self, kind: type[DeclaredStructure]) -> str:
        reader = "_read_bytes" if self.of_bytes else "_read_view"
        return f"{self.name(kind, kind.PLAN.name)}.{reader}(buf, p, end, origin)"

    def counted(self, plan: Plan, item: Data | Text, symbols: dict[str, str]) -> str:
        """Emit the check that counted bytes are present; return the variable of the offset after them."""
        length = item.length
        assert length is not None
        number = symbols[length.attribute]
        if length.bias:
            self.add(f"if {number} < {length.bias}: raise Bad({plan.name!r}, {length.name!r}, p, 'counts too few')")
            number = f"({number} - {length.bias})"
        if length.per > 1:
            self.add(f"if {number} * {length.unit} % {length.per}: raise Bad({plan.name!r}, {length.name!r}, p, "
                     "'counts a part of a byte')")  # fmt: skip
            number = f"{number} * {length.unit} // {length.per}"
        elif length.unit > 1:
            number = f"{number} * {length.unit}"
        stop = self.variable("q")
        self.add(f"{stop} = p + {number}")
        self.add(f"if {stop} > end: raise short({plan.name!r}, {item.name!r}, p, {stop} - p, end)")
        return stop

    def data(self, plan: Plan, item: Data, symbols: dict[str, str]) -> str:
        self.settle()
        result = self.variable(item.attribute or "data")
        followed = item.padding
        padded = self.variable("padding") if followed is not None else ""
        if item.length is not None and not item.length.bias and (followed is None or self.aligned):
            # Absent parts are frequent: they have no bytes and, at this aligned place, no padding.
            nothing = f"{result} = {padded} = b''" if followed is not None else f"{result} = b''"
            self.add(f"if not {symbols[item.length.attribute]}: {nothing}")
            self.add("else:")
            self.depth += 1
            self.some_data(plan, item, symbols, result)
            if followed is not None:
                self.some_padding(plan, followed, padded)
            self.depth -= 1
        else:
            self.some_data(plan, item, symbols, result)
            if followed is not None:
                self.some_padding(plan, followed, padded)
        if followed is not None:
            self.done[followed.attribute] = padded
        self.aligned = followed is not None and not followed.clipped and followed.align % 4 == 0
        return result

    def some_data(self, plan: Plan, item: Data, symbols: dict[str, str], result: str) -> None:
        stop = "end" if item.rest else self.counted(plan, item, symbols)
        if item.limit is not None:
            self.add(f"if {stop} - p > {item.limit}: raise Bad({plan.name!r}, {item.name!r}, p, "
                     f"f'has {{{stop} - p}} bytes, at most {item.limit} are allowed')")  # fmt: skip
        self.add(f"{result} = " + (self.slice(stop) if not item.view else self.borrowed(stop)))
        self.add(f"p = {stop}")

    def borrowed(self, stop: str) -> str:
        return f"memoryview(buf)[p:{stop}]" if self.of_bytes else f"buf[p:{stop}]"

    def text(self, plan: Plan, item: Text, symbols: dict[str, str]) -> str:
        self.settle()
        result = self.variable(item.attribute or "text")
        where = f"{plan.name!r}, {item.name!r}, p"
        if item.scan:
            stop = self.variable("q")
            self.add(f"{stop} = text_end(buf, p, end)")
            self.add(f"if {stop} < 0: raise Bad({where}, 'has no terminating null character')")
        else:
            stop = self.counted(plan, item, symbols)
            if item.length is not None and item.length.unit % 2:
                self.add(f"if {stop} - p & 1: raise Bad({where}, 'has an odd number of bytes')")
            if item.terminated:
                present = f"{stop} != p and " if item.empty_is_absent else f"{stop} == p or "
                missing = f"buf[{stop} - 1] or buf[{stop} - 2]"
                missing = f"({missing})" if item.empty_is_absent else missing
                self.add(f"if {present}{missing}: raise Bad({where}, 'has no terminating null character')")
        if item.attribute:
            self.add(f"{result} = {self.slice(stop)}")
        else:
            self.names["decode"] = utf_16_le_decode
            without_null = f"{stop} - 2 if {stop} > p else p" if item.terminated or item.scan else stop
            self.add(f"{result} = decode(buf[p:{without_null}], 'surrogatepass')[0]")
        self.add(f"p = {stop}")
        return result

    def padding(self, plan: Plan, item: Padding) -> str:
        known = self.done.pop(item.attribute, None)
        if known is not None:
            return known
        self.settle()
        result = self.variable("padding")
        self.some_padding(plan, item, result)
        self.aligned = not item.clipped and item.align % 4 == 0
        return result

    def some_padding(self, plan: Plan, item: Padding, result: str) -> None:
        self.add(f"if not origin - p & {item.align - 1}: {result} = b''")
        self.add("else:")
        self.depth += 1
        stop = self.variable("q")
        self.add(f"{stop} = p + (origin - p & {item.align - 1})")
        if item.clipped:
            self.add(f"if {stop} > end: {stop} = end")
        else:
            self.add(f"if {stop} > end: raise short({plan.name!r}, {item.name!r}, p, {stop} - p, end)")
        self.add(f"{result} = {self.slice(stop)}")
        self.add(f"p = {stop}")
        self.depth -= 1

    def choice(self, kind: type[DeclaredStructure], item: Choice, symbols: dict[str, str]) -> str:
        self.settle()
        number, bit = resolve(kind.PLAN, item.on)
        result, selector = self.variable(item.attribute or "choice"), self.variable("k")
        before, after = self.aligned, True
        expression = symbols[number] if bit is None else f"{symbols[number]} >> {bit.shift} & {bit.mask >> bit.shift}"
        self.add(f"{selector} = {expression}")
        word = "if"
        for values, case in same_cases(item):
            self.add(f"{word} {' or '.join(f'{selector} == {value}' for value in values)}:")
            self.depth += 1
            self.aligned = before
            self.add(f"{result} = {'None' if case is None else self.present(kind, case, dict(symbols))}")
            self.settle()
            after &= self.aligned
            self.depth -= 1
            word = "elif"
        self.aligned = after
        self.add(f"else: raise Bad({kind.PLAN.name!r}, {item.name!r}, p, "
                 f"f'{item.on} is {{{selector}}}, which no case is for')")  # fmt: skip
        return result

    def array(self, kind: type[DeclaredStructure], item: Array, symbols: dict[str, str]) -> str:
        self.settle()
        assert item.length is not None
        number = symbols[item.length.attribute]
        least = least_size(item.item)
        self.add(f"if {number} * {least} > end - p: raise short({kind.PLAN.name!r}, {item.name!r}, p, "
                 f"{number} * {least}, end)")  # fmt: skip
        result = self.variable(item.attribute or "array")
        self.add(f"{result} = []")
        self.add(f"for _ in range({number}):")
        self.depth += 1
        if isinstance(item.item, Nested):
            value = self.variable("s")
            self.add(f"{value}, p = {self.call(item.item.structure)}")
        else:
            value = self.present(kind, item.item, dict(symbols))
        self.settle()
        self.add(f"{result}.append({value})")
        self.depth -= 1
        self.add(f"{result} = tuple({result})")
        return result


class WriterCode(Code):
    """The writer of one structure: collects byte runs in the list ``out``."""

    def __init__(self, owner: type[DeclaredStructure]) -> None:
        super().__init__()
        self.owner = owner
        self.names["pack"] = struct.pack
        self.pending: list[str] = []

    def make(self) -> Callable[..., Any]:
        self.add("out = []")
        self.structure(self.owner, "v")
        self.flush()
        self.add("return out")
        return self.compile("v", f"<writer of {self.owner.PLAN.name}>")

    def flush(self) -> None:
        if self.pending:
            self.add(f"out += ({', '.join(self.pending)},)")
            self.pending = []

    def structure(self, kind: type[DeclaredStructure], value: str) -> None:
        plan = kind.PLAN
        run = fixed_run(plan.fields, 0)
        if len(run) == len(plan.fields) == len(plan.stored):
            packer = struct.Struct("<" + "".join(item.code for item in run if isinstance(item, Scalar)))
            self.pending.append(f"{self.name(packer.pack, 'pack')}(*{value})")
            return
        names = {item.attribute: self.variable(item.attribute) for item in plan.stored}
        self.add(f"{', '.join(names.values())}, = {value}")
        place = 0
        while place < len(plan.fields):
            run = fixed_run(plan.fields, place)
            if run:
                packer = struct.Struct("<" + "".join(item.code for item in run if isinstance(item, Scalar)))
                values = ", ".join(
                    count(item, names[item.of], plan) if isinstance(item, Length) else names[item.attribute]
                    for item in run
                )
                self.pending.append(f"{self.name(packer.pack, 'pack')}({values})")
                place += len(run)
            else:
                item = plan.fields[place]
                self.field(kind, item, names[item.attribute], names)
                place += 1

    def field(self, kind: type[DeclaredStructure], item: Field, value: str, names: dict[str, str]) -> None:
        if item.when is not None:
            self.flush()
            self.add(f"if {value} is not None:")
            self.depth += 1
            self.present(kind, item, value, names)
            self.flush()
            self.depth -= 1
        else:
            self.present(kind, item, value, names)

    def present(self, kind: type[DeclaredStructure], item: Field, value: str, names: dict[str, str]) -> None:
        match item:
            case Scalar():
                self.pending.append(f"{self.name(struct.Struct('<' + item.code).pack, 'pack')}({value})")
            case Text(attribute=""):
                null = " + b'\\0\\0'" if item.terminated or item.scan else ""
                self.pending.append(f"{value}.encode('utf-16-le', 'surrogatepass'){null}")
            case Data() | Text() | Padding():
                self.pending.append(value)
            case Nested():
                self.structure(item.structure, value)
            case Choice():
                self.choice(kind, item, value, names)
            case Array():
                self.array(kind, item, value, names)

    def choice(self, kind: type[DeclaredStructure], item: Choice, value: str, names: dict[str, str]) -> None:
        self.flush()
        number, bit = resolve(kind.PLAN, item.on)
        first, *rest = number.split(".")
        selector = self.variable("k")
        expression = ".".join([names[first], *rest])
        self.add(f"{selector} = {expression}" + (f" >> {bit.shift} & {bit.mask >> bit.shift}" if bit else ""))
        word = "if"
        for values, case in same_cases(item):
            self.add(f"{word} {' or '.join(f'{selector} == {value}' for value in values)}:")
            self.depth += 1
            if case is not None:
                self.present(kind, case, value, names)
            self.flush()
            self.add("pass")
            self.depth -= 1
            word = "elif"

    def array(self, kind: type[DeclaredStructure], item: Array, value: str, names: dict[str, str]) -> None:
        self.flush()
        one = self.variable("item")
        self.add(f"for {one} in {value}:")
        self.depth += 1
        if isinstance(item.item, Nested):
            self.add(f"out += {one}._parts()")
        else:
            self.present(kind, item.item, one, names)
            self.flush()
        self.depth -= 1


def count(item: Length, counted: str, plan: Plan) -> str:
    """The expression of a length field's value."""
    expression = f"len({counted})"
    if not isinstance(plan.field(item.of), Array):
        if item.unit > 1:
            expression += f" // {item.unit}"
        if item.per > 1:
            expression += f" * {item.per}"
    return expression + (f" + {item.bias}" if item.bias else "")
