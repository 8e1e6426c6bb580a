"""Options made from the rows of the table (:mod:`qmnode.objects`): a group for ``qmnode.commands.option_groups``."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, make_dataclass
from typing import Annotated, Any, ClassVar

import typer

from qmnode.commands.output import say
from qmnode.objects.rows import FLAG, NONE, QUOTA, Changes, Property, is_none
from qmnode.settings.sizes import quota_from_text


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The base of groups that :func:`options` makes."""

    rows: ClassVar[dict[str, Property]] = {}
    """The rows by the names of the fields, with aliases."""

    def given(self) -> dict[str, Any]:
        """The written values of the options of the command line, by the names of the properties."""
        values: dict[str, Any] = {}
        for field in fields(self):
            value, row = getattr(self, field.name), self.rows[field.name]
            if value is None:
                continue
            if row.name in values:
                raise typer.BadParameter("use one of the two names", param_hint=f"{row.option} / --{field.name}")
            if field.name != row.name:
                say(f"--{field.name.replace('_', '-')} is {row.option} now")
            values[row.name] = _read(row, value)
        return values


def options(rows: Iterable[Property]) -> type[RowOptions]:
    """A class with an option for each row. Names of earlier releases are hidden, and say the new name."""
    named = {name: row for row in rows for name in (row.name, *row.aliases)}
    group: Any = make_dataclass(
        "Options",
        [(name, _annotation(name, row), _default(row)) for name, row in named.items()],
        bases=(RowOptions,),
        frozen=True,
    )
    group.rows = named
    return group  # type: ignore[no-any-return]


def _default(row: Property) -> Any:
    return False if row.form is FLAG and row.changes is Changes.ONCE else None


def _annotation(name: str, row: Property) -> Any:
    form, hidden = row.form, name != row.name
    option, help_ = f"--{name.replace('_', '-')}", f"{row.sentence}{_more(row)}."
    if row.changes is Changes.ONCE:
        help_ = f"{help_} This cannot be changed later."
    if form is FLAG:
        if row.changes is not Changes.ONCE:
            option = f"{option}/--no-{option[2:]}"
        return Annotated[bool | None, typer.Option(option, help=help_, hidden=hidden)]
    if form.type is int and not form.nullable:
        return Annotated[int | None, number_option(row, option, hidden)]
    if form.names:
        return Annotated[form.names | None, typer.Option(option, help=help_, hidden=hidden, case_sensitive=False)]
    return Annotated[str | None, typer.Option(option, metavar=_metavar(row), help=help_, hidden=hidden)]


def number_option(row: Property, option: str = "", hidden: bool = False) -> Any:
    """The option of a number: its range, its unit and its sentence."""
    form, name = row.form, option or row.option
    unit, help_ = form.unit.upper() or None, f"{row.sentence}."
    return typer.Option(name, min=form.least, max=form.most, metavar=unit, help=help_, hidden=hidden)


def _more(row: Property) -> str:
    if row.form is QUOTA:
        return ": 10MB, 1GB; a bare number is KB"
    return f"; at most {row.form.most} {row.form.unit}" if row.form.type is str and row.form.most else ""


def _metavar(row: Property) -> str | None:
    """The placeholder of the value in a help text: the first word that the form expects."""
    word = "SIZE" if row.form is QUOTA else "GUID" if isinstance(row.default, bytes) else row.form.words.split()[0]
    return f"{word}|{NONE}" if row.form.nullable else None


def _read(row: Property, text: Any) -> Any:
    if not row.form.nullable:
        return text
    if is_none(text):
        return None
    if row.form is not QUOTA:
        return text
    try:
        return quota_from_text(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=row.option) from None
