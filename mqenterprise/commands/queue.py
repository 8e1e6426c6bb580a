"""``mqenterprise queue publish|list|lists|find|set|unpublish``: the public queues in the directory."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqenterprise.commands.directory_option import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    opened,
    show,
)
from mqenterprise.directory.errors import ConstraintViolated, DirectoryError, ObjectAlreadyExists
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.repositories import declared_lists, resolve_distribution_list
from qmnode.commands.error_line import complain
from qmnode.commands.node_options import WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.row_options import options
from qmnode.directory.port import Queue, equals
from qmnode.objects.rows import NO_QUOTA, QUOTA, Changes, Door
from qmnode.objects.table import QUEUE
from qmnode.settings.sizes import quota_text
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text

app = Commands(no_args_is_help=True, help="Public queues in the directory.")

COLUMNS = {"pathname": "queue", "format_name": "format name", "label": "label", "properties": "properties"}
_ROWS: Final = [row for row in QUEUE.at(Door.DIRECTORY) if row.is_written]

Pathname = Annotated[str, typer.Argument(help="computer\\queue, its PUBLIC= name or its GUID.", metavar="QUEUE")]
if TYPE_CHECKING:
    from qmnode.commands.row_options import RowOptions as Fixed
    from qmnode.commands.row_options import RowOptions as Properties
else:
    Fixed = options(row for row in _ROWS if row.changes is Changes.ONCE)
    Properties = options(row for row in _ROWS if row.changes is Changes.ALWAYS)

ORDINARY: Final = Fixed()
UNCHANGED: Final = Properties()


def _values(group: Fixed | Properties) -> dict[str, Any]:
    """The properties that the command line names, as the directory's objects have them."""
    values: dict[str, Any] = {}
    quotas = [name for name, row in group.rows.items() if row.form is QUOTA]
    # The release before called 'none' by its number.
    group = replace(group, **{name: "none" for name in quotas if getattr(group, name) == str(NO_QUOTA)})
    for name, written in group.given().items():
        row, fault = QUEUE[name], None
        try:
            values[name] = row.form.read(written)
            fault = row.fault(values[name])
        except ValueError as error:
            fault = str(error)
        if fault:
            raise ConstraintViolated(f"{row.option}: {fault}")
    return values


@app.command()
def publish(
    pathname: Annotated[str, typer.Argument(help="computer\\queue", metavar="QUEUE")],
    directory_file: DirectoryFile = None,
    fixed: Fixed = ORDINARY,
    properties: Properties = UNCHANGED,
    as_json: AsJson = False,
) -> None:
    """Publish a queue. Its computer must have a queue manager in the directory."""
    with opened(directory_file) as directory:
        named = _values(fixed) | _values(properties)
        try:
            added = directory.queues.add(replace(Queue(pathname=pathname), **named))
        except ObjectAlreadyExists:
            complain(f"{pathname} is published already; mqenterprise queue set changes it")
            raise typer.Exit(FAILED) from None
        _show([added], as_json=as_json)


@app.command("list")
def list_(
    directory_file: DirectoryFile = None,
    computer: Annotated[str | None, typer.Option(help="Only the queues of this computer.")] = None,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """List the public queues of the directory, or of one computer."""
    with opened(directory_file) as directory:
        fields = [field.name for field in dataclasses.fields(Queue)]
        found = directory.queues.of(computer, fields) if computer else directory.queues.list(attributes=fields)
        _show(found, as_json=as_json, empty="no public queues", wide=wide)
        for problem in directory.half_written():
            complain(problem.sentence)


@app.command()
def lists(directory_file: DirectoryFile = None, as_json: AsJson = False, wide: WideOption = False) -> None:
    """List the declared distribution lists: their format names to send to, and those of their queues."""
    with opened(directory_file) as directory:
        rows: list[dict[str, Any]] = []
        for name, identifier in sorted(declared_lists(directory.connection)):
            row: dict[str, Any] = {"name": name, "format_name": f"DL={guid_to_text(identifier)}", "queues": []}
            try:
                row["queues"] = list(resolve_distribution_list(directory.connection, identifier))
            except DirectoryError as problem:
                complain(f"{name}: {problem.sentence}")
            rows.append(row)
        shown = rows if as_json else [row | {"queues": ", ".join(row["queues"])} for row in rows]
        titles = {"name": "list", "format_name": "send to", "queues": "queues"}
        show(shown, titles, as_json=as_json, empty="no distribution lists", whole=("send to",), wide=wide)


@app.command()
def find(
    name: Annotated[
        str | None, typer.Argument(help="computer\\queue, a PUBLIC= name or a GUID.", metavar="QUEUE")
    ] = None,
    directory_file: DirectoryFile = None,
    label: Annotated[str | None, typer.Option(help="Queues with this label.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Queues of this service (a GUID).")] = None,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """Look queues up by path name, GUID, label or type; exit code 1 when there is none."""
    if name is None and label is None and type_ is None:
        complain("say what to find: computer\\queue, a GUID, --label or --type")
        raise typer.Exit(SOMETHING_TO_DO)
    with opened(directory_file) as directory:
        if name is not None:
            found = [queue] if (queue := _by_name(directory, name)) else []
        else:
            filters = [equals("label", label)] if label is not None else []
            filters += [equals("type", _guid(type_))] if type_ is not None else []
            found = list(directory.queues.list(*filters))
        _show(found, as_json=as_json, empty="no such queue", wide=wide)
        if not found:
            raise typer.Exit(FAILED)


@app.command("set")
def set_(
    name: Pathname,
    directory_file: DirectoryFile = None,
    properties: Properties = UNCHANGED,
    as_json: AsJson = False,
) -> None:
    """Change the given properties of a queue. Whether it is transactional cannot be changed."""
    with opened(directory_file) as directory:
        changes = _values(properties)
        if not changes:
            complain("name at least one property to change; see --help")
            raise typer.Exit(SOMETHING_TO_DO)
        queue = replace(_existing(directory, name), **changes)
        directory.queues.modify(queue, tuple(changes))
        _show([queue], as_json=as_json)


@app.command()
def unpublish(name: Pathname, directory_file: DirectoryFile = None) -> None:
    """Take a queue out of the directory. Its messages stay where they are."""
    with opened(directory_file) as directory:
        queue = _existing(directory, name)
        directory.queues.delete(queue)
        typer.echo(f"{queue.pathname} is not public any more")


def _by_name(directory: EnterpriseDirectory, name: str) -> Queue | None:
    if "\\" in name:
        return directory.queues.find(name)
    if name.upper().startswith("PUBLIC="):
        name = name[len("PUBLIC=") :]
    return next(directory.queues.list(equals("identifier", _guid(name))), None)


def _existing(directory: EnterpriseDirectory, name: str) -> Queue:
    found = _by_name(directory, name)
    if found is None:
        raise DirectoryError(f"there is no public queue {name}")
    return found


def _guid(text: str) -> Guid:
    try:
        return guid_from_text(text)
    except ValueError:
        raise ConstraintViolated(f"{text!r} is no GUID, and a path name is computer\\queue") from None


def _row(queue: Queue) -> dict[str, Any]:
    return {
        "pathname": queue.pathname,
        "identifier": guid_to_text(queue.identifier) if queue.identifier else None,
        "format_name": f"PUBLIC={guid_to_text(queue.identifier)}" if queue.identifier else None,
        **{row.name: row.form.write(getattr(queue, row.name)) for row in _ROWS},
    }


def _show(queues: Iterable[Queue], *, as_json: bool, empty: str = "", wide: bool = False) -> None:
    rows = sorted((_row(queue) for queue in queues), key=lambda row: str(row["pathname"]))
    if not as_json:
        rows = [row | {"properties": _properties(row)} for row in rows]
    show(
        rows,
        COLUMNS,
        as_json=as_json,
        empty=empty,
        whole=("queue", "format name"),
        drop=("properties", "label"),
        wide=wide,
    )


def _properties(row: dict[str, Any]) -> str:
    """Return the properties that differ from those of most queues."""
    named = {
        "transactional": row["transactional"],
        "journal": row["journaling"],
        "signed only": row["authentication"],
        "encrypted only": row["privacy_level"] == "body",
        "never encrypted": row["privacy_level"] == "none",
    } | {
        f"{quota.name.replace('_', ' ')} {quota_text(row[quota.name])}": row[quota.name] is not None
        for quota in _ROWS
        if quota.form is QUOTA
    }
    return ", ".join(name for name, applies in named.items() if applies)
