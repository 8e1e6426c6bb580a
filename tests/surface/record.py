"""What users and stores rely on, as data: names and signatures, command lines, JSON keys, settings, the store's format.

``python -m tests.surface.record`` writes it to ``surface.json`` beside this file, when something was added. Only
additions are compatible: ``test_surface.py`` compares.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import json
import re
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

import click
import pydantic
import rocksdict
import typer
from pydantic_core import PydanticUndefined

import qmnode
from qmnode.commands.command_table import app as node_commands
from tests.lab.addresses import free_alias

_OWN: Final = ("qmnode.model.queue_manager",)
PLACE: Final = Path(__file__).parent / "surface.json"
_PREFIX: Final = struct.Struct("<BBBBIIQ")


# Names and signatures


def python_names() -> dict[str, Any]:
    """The public names of the package and of ``qmnode.sync``, and of the classes that their methods return."""
    import qmnode.model.administration as administration
    import qmnode.model.api as api
    import qmnode.sync as sync

    named = {name: getattr(qmnode, name) for name in qmnode.__all__}
    named |= {f"sync.{name}": getattr(sync, name) for name in sync.__all__}
    for module in (api, administration):
        named |= {
            name: value
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__ and name != "QueuePrivacyLevel"
        }
    return {name: _described(value) for name, value in sorted(named.items())}


def _described(value: Any) -> Any:
    if not inspect.isclass(value):
        return _signature(value) if callable(value) else "constant"
    if issubclass(value, enum.Enum):
        return {member.name: member.value for member in value}
    if issubclass(value, pydantic.BaseModel):
        return "settings"
    members: dict[str, Any] = {}
    for kind in reversed(value.__mro__):
        if not kind.__module__.startswith("qmnode") or kind.__module__ in _OWN:
            continue  # what applications use of a queue manager is QueueManagerApi, and what qmnode.QueueManager adds
        members |= {name: "attribute" for name in vars(kind).get("__annotations__", {}) if not name.startswith("_")}
        members |= {
            name: _signature(member) if callable(getattr(kind, name)) else "attribute"
            for name, member in vars(kind).items()
            if not name.startswith("_") or name in ("__init__", "__aenter__", "__aexit__", "__aiter__", "__anext__")
        }
    return members


def _signature(function: Any) -> dict[str, Any]:
    if isinstance(function, classmethod | staticmethod):
        function = function.__func__
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in (2, 4)]
    optional = {one.name: _default(one.default) for one in parameters if one.default is not one.empty}
    by_place = [one.name for one in parameters if one.kind in (0, 1)]
    return {"required": required, "optional": optional, "by_place": {str(n): name for n, name in enumerate(by_place)}}


def _default(value: Any) -> Any:
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, enum.Enum):
        return _default(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value if value != float("inf") else "infinite"
    if isinstance(value, list | tuple):
        return [_default(one) for one in value]
    if isinstance(value, pydantic.BaseModel):
        return "its fields' defaults"
    return re.sub(r" at 0x[0-9a-f]+|[a-z_]+\.", "", str(value))


# Command lines


def command_lines() -> dict[str, Any]:
    """Every command, option and argument of both programs."""
    from mqenterprise.cli import app as enterprise_commands

    return {
        "qmnode": _command(typer.main.get_command(node_commands)),
        "mqenterprise": _command(typer.main.get_command(enterprise_commands)),
    }


def _command(command: Any) -> dict[str, Any]:
    context = click.Context(command)
    parameters = {
        spelling: {
            "required": one.required,
            "default": None if callable(one.default) else _default(one.default),
            "multiple": one.nargs != 1 or getattr(one, "multiple", False),
            "flag": getattr(one, "is_flag", False),
            "values": {str(choice): True for choice in getattr(getattr(one, "type", None), "choices", ())},
        }
        for one in command.params
        for spelling in ([*one.opts, *one.secondary_opts] if one.opts[0].startswith("-") else [f"<{one.name}>"])
        if one.name not in ("install_completion", "show_completion")
    }
    described: dict[str, Any] = {"parameters": parameters}
    if hasattr(command, "list_commands"):
        names = command.list_commands(context)
        described["commands"] = {name: _command(command.resolve_command(context, [name])[1]) for name in names}
    return described


# Settings


def settings() -> dict[str, Any]:
    """Every field of the node's settings with its default."""
    from qmnode.settings.node import NodeSettings

    return _fields(NodeSettings)


def _fields(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        nested = [one for one in _classes(field.annotation) if issubclass(one, pydantic.BaseModel)]
        default = field.get_default(call_default_factory=True)
        found[name] = {"default": _default(default)}
        if nested:
            found[name]["fields"] = _fields(nested[0])
    return found


def _classes(annotation: Any) -> list[type]:
    if inspect.isclass(annotation) and not getattr(annotation, "__args__", ()):
        return [annotation]
    return [found for one in getattr(annotation, "__args__", ()) for found in _classes(one)]


# JSON


def json_keys() -> dict[str, Any]:
    """The keys of every document: the management API, the command line's JSON, the declaration, exported events."""
    from mqenterprise.topology.declaration import SECTIONS
    from mqenterprise.topology.schema import enterprise_schema
    from qmnode.export.events import COLUMNS
    from qmnode.management.app import build_app

    declared = json.loads(enterprise_schema())["$defs"]
    for model, rows in SECTIONS.values():  # earlier names are taken, but hidden in the schema
        known = declared[model.__name__]["properties"]
        known |= {alias: known[row.name] for row in rows.values() for alias in row.aliases if row.name in known}
    document = build_app(None).openapi()  # type: ignore[arg-type]  # routes and documents need no node
    return {
        "paths": {
            f"{method} {path}": {
                "parameters": {one["name"]: one["in"] for one in operation.get("parameters", ())},
                "answers": dict.fromkeys(operation["responses"], True),
            }
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        },
        "documents": _schemas(document["components"]["schemas"]),
        "declaration": _schemas(declared),
        "events": {name: str(kind) for name, kind in COLUMNS.items()},
    }


def _schemas(schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "keys": {key: _kind(said) for key, said in schema.get("properties", {}).items()},
            "values": {str(value): True for value in schema.get("enum", ())},
            "required": schema.get("required", []),
        }
        for name, schema in sorted(schemas.items())
    }


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    return str(schema.get("type", "any"))


# The store


def store_format() -> dict[str, Any]:
    """Column families, keys and values of a store that a node has just written, seen without the node's code."""
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(_write_store(Path(place)))
        directory = next(path.parent for path in Path(place).rglob("CURRENT"))
        families = [name for name in rocksdict.Rdict.list_cf(str(directory)) if name != "default"]
        options = {name: rocksdict.Options(raw_mode=True) for name in families}
        options["default"] = rocksdict.Options(raw_mode=True)
        store = rocksdict.Rdict(
            str(directory), rocksdict.Options(raw_mode=True), options, rocksdict.AccessType.read_only()
        )
        found = {name: _family(name, list(store.get_column_family(name).items())) for name in sorted(families)}
        store.close()
    return {"directory": directory.relative_to(place).as_posix(), "families": found}


async def _write_store(place: Path) -> None:
    transport = {"address": free_alias((1801, 3527))}
    settings = qmnode.Settings.model_validate({"computer_name": "ALPHA", "transport": transport})
    async with qmnode.QueueManager.open(place / "node", settings) as manager:
        await manager.create_queue(".\\private$\\orders", label="orders", journaling=True)
        await manager.create_queue(".\\private$\\payments", transactional=True)
        orders = await manager.open_queue("DIRECT=OS:.\\private$\\orders", qmnode.Access.SEND)
        for properties in (
            {},
            {"acknowledgements_requested": qmnode.Acknowledgment.FULL_RECEIVE},
            {"negative_journaling_requested": True, "positive_journaling_requested": True},
            {"allow_peek_when_locked": True, "time_to_be_received": 86_400},
            {"application_dead_letter_queue": ".\\private$\\orders"},
        ):
            await orders.send(qmnode.Message(b"order", recoverable=True, **properties))
        payments = await manager.open_queue("DIRECT=OS:.\\private$\\payments", qmnode.Access.SEND)
        await payments.send(qmnode.Message(b"payment"), transaction="single")
        away = await manager.open_queue("DIRECT=OS:beta\\private$\\orders", qmnode.Access.SEND)
        await away.send(qmnode.Message(b"order", recoverable=True))
        later = await manager.open_queue("DIRECT=TCP:127.0.0.2\\private$\\payments", qmnode.Access.SEND)
        await later.send(qmnode.Message(b"payment"), transaction="single")


def _family(name: str, entries: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    found: dict[str, Any] = {"key sizes": sorted({len(key) for key, _ in entries} if name != "meta" else [])}
    match name:
        case "meta":
            numbers = {key.decode(): len(value) for key, value in entries if not value.startswith(b"{")}
            found["names"] = numbers | {"origin": "host and boot"}
            found["json"] = {key.decode(): True for key, value in entries if value.startswith(b"{")}
        case "queues":
            found["definition"] = {key: type(said).__name__ for _, value in entries for key, said in _json(value)}
        case "messages":
            prefixes = [_PREFIX.unpack_from(value) for _, value in entries]
            found["versions"] = sorted({prefix[0] for prefix in prefixes})
            found["flags"] = sorted({prefix[1] for prefix in prefixes})
            found["packets at 20"] = all(value[20:25] for _, value in entries)
        case _:
            found["value sizes"] = sorted({len(value) for _, value in entries})
    return found


def _json(value: bytes) -> Any:
    return json.loads(value).items()


def surface() -> dict[str, Any]:
    """All of it."""
    return {
        "python": python_names(),
        "command lines": command_lines(),
        "settings": settings(),
        "json": json_keys(),
        "store": store_format(),
    }


def _text(document: dict[str, Any]) -> str:
    """One line for each command, setting, document and class, so that changes can be read."""

    def entries(value: Any, depth: int) -> str:
        if depth == 0 or not isinstance(value, dict):
            return json.dumps(value, sort_keys=True)
        lines = (f"{json.dumps(key)}: {entries(value[key], depth - 1)}" for key in sorted(value))
        return "{\n" + ",\n".join(lines) + "\n}"

    parts = {"json": 3, "command lines": 4}
    return "{\n" + ",\n".join(f'"{part}": {entries(document[part], parts.get(part, 2))}' for part in document) + "\n}"


def differences(recorded: Any, found: Any, path: str = "") -> list[str]:
    """What was recorded and is no longer so. Keys of an object may be added, nothing else."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        gone = [f"{path}/{key} is gone" for key in recorded if key not in found]
        return gone + [
            line for key in recorded if key in found for line in differences(recorded[key], found[key], f"{path}/{key}")
        ]
    return [] if recorded == found else [f"{path} was {recorded!r} and is {found!r}"]


if __name__ == "__main__":
    now = json.loads(json.dumps(surface()))
    for line in differences(json.loads(PLACE.read_text()) if PLACE.exists() else {}, now):
        print(line)
    PLACE.write_text(_text(now) + "\n")
