"""Fields of documents, made from the rows of the table (:mod:`qmnode.objects`)."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model

from qmnode.objects.rows import Property, is_none

Model = TypeVar("Model", bound=BaseModel)

_GUID: Final = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
GUID_PATTERN: Final = rf"^({_GUID}|\{{{_GUID}\}})$"
GUID_EXAMPLE: Final = "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"


def shown(row: Property, value: Any) -> Any:
    """A value as documents have it. Texts without a value are empty, as in the first release."""
    written = row.form.write(value)
    return "" if written is None and row.default == "" else written


def _taken(row: Property, value: Any) -> Any:
    if isinstance(value, bool) and row.form.type is int:
        raise ValueError("a number is wanted, not true or false")
    if not row.form.nullable or not is_none(value):
        if row.form.unit == "KB" and isinstance(value, str) and not value.strip().isdecimal():
            raise ValueError(f"{value!r:.80} is no number of KB: write one, or null for none")
        return value
    return "" if row.default == "" else None


def _checked(row: Property, written: Any) -> Any:
    form, fault = row.form, None
    try:
        if form.nullable and form.type is int and written is not None and written > form.most:
            raise ValueError(f"the most is {form.most}, and null is none")
        fault = row.fault(form.read(written))
    except ValueError as error:
        fault = f"{written!r:.80}: {error}"
    if fault:
        raise ValueError(fault)
    return written


def _schema(row: Property) -> dict[str, Any]:
    """The limits of a value for its schema."""
    form = row.form
    if form.type is int:
        return {"minimum": form.least, "maximum": form.most}
    if isinstance(row.default, bytes):
        return {"pattern": GUID_PATTERN, "examples": [GUID_EXAMPLE]}
    return {} if form.type is not str or form.most is None else {"maxLength": form.most}


def _kind(row: Property) -> Any:
    kind = row.form.names or row.form.type
    return kind if not row.form.nullable or row.default == "" else kind | None


def settings(rows: Iterable[Property]) -> dict[str, Any]:
    """Fields of a request that sets these properties: a value that a property cannot have is refused with its words."""
    return {
        row.name: (
            Annotated[_kind(row), BeforeValidator(partial(_taken, row)), AfterValidator(partial(_checked, row))],
            Field(default=shown(row, row.default), description=row.description, json_schema_extra=_schema(row)),
        )
        for row in rows
    }


def answers(rows: Iterable[Property]) -> dict[str, Any]:
    """Fields of an answer that shows these properties, with whatever value they have."""
    return {
        row.name: (
            _kind(row),
            Field(default=shown(row, row.default) if row.added else ..., description=row.description),
        )
        for row in rows
    }


def described(rows: Iterable[Property], **example: Any) -> Callable[[dict[str, Any]], None]:
    """Extend the schema of a document about messages: sentences and ranges of the fields that are properties."""
    by_key = {row.key or row.name: row for row in rows}

    def extend(schema: dict[str, Any]) -> None:
        for key, field in schema["properties"].items():
            row = by_key.get(key)
            if row is not None:
                field.setdefault("description", row.sentence)
                if example and field.get("type") == "integer":
                    field |= {"minimum": row.form.least, "maximum": row.form.most}
        if example:
            schema["example"] = example

    return extend


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Decorate a document: these fields come after its own."""

    def extended(document: type[Model]) -> type[Model]:
        return create_model(
            document.__name__, __base__=document, __module__=document.__module__, __doc__=document.__doc__, **fields
        )

    return extended
