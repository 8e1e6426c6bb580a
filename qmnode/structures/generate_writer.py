"""Writers made from declarations: the lines of one function per structure. See ``generate.py`` for their form."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qmnode.structures.fields import Array, Choice, Data, Field, Length, Nested, Padding, Scalar, Text
from qmnode.structures.generate import Code, fixed_run, same_cases
from qmnode.structures.plan import Plan, resolve

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure


class WriterCode(Code):
    """The writer of one structure: collects byte runs in the list ``out``."""

    def __init__(self, owner: type[Structure]) -> None:
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

    def structure(self, kind: type[Structure], value: str) -> None:
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

    def field(self, kind: type[Structure], item: Field, value: str, names: dict[str, str]) -> None:
        if item.when is not None:
            self.flush()
            self.add(f"if {value} is not None:")
            self.depth += 1
            self.present(kind, item, value, names)
            self.flush()
            self.depth -= 1
        else:
            self.present(kind, item, value, names)

    def present(self, kind: type[Structure], item: Field, value: str, names: dict[str, str]) -> None:
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

    def choice(self, kind: type[Structure], item: Choice, value: str, names: dict[str, str]) -> None:
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

    def array(self, kind: type[Structure], item: Array, value: str, names: dict[str, str]) -> None:
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
