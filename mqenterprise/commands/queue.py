"""``mqenterprise queue publish|list|find|set|unpublish``: the public queues in the directory."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from mqenterprise.commands.opening import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    opened,
    show,
)
from mqenterprise.directory.entities import Queue, equals
from mqenterprise.directory.errors import ConstraintViolated, DirectoryError, ObjectAlreadyExists
from mqenterprise.directory.service import EnterpriseDirectory
from qmnode.commands.complaint import complain
from qmnode.commands.groups import Commands
from qmnode.commands.target import WideOption
from qmnode.model.message import INFINITE
from qmnode.settings.sizes import quota_from_text, quota_text
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text, guid_to_text
from qmnode.structures.queue_attributes import QueuePrivacyLevel

app = Commands(no_args_is_help=True, help="Public queues in the directory.")

COLUMNS = {"pathname": "queue", "format_name": "format name", "label": "label", "properties": "properties"}
PRIVACY = {"none": QueuePrivacyLevel.NONE, "optional": QueuePrivacyLevel.OPTIONAL, "body": QueuePrivacyLevel.BODY}


def _kilobytes(text: str) -> int:
    if text == str(INFINITE):
        return INFINITE
    try:
        quota = quota_from_text(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return INFINITE if quota is None else quota


Pathname = Annotated[str, typer.Argument(help="computer\\queue, its PUBLIC= name or its GUID.", metavar="QUEUE")]
Label = Annotated[str | None, typer.Option(help="Label of the queue, by which senders can find it.")]
Type = Annotated[str | None, typer.Option("--type", help="GUID of the service that the queue offers.")]
Kilobytes = Annotated[
    int | None,
    typer.Option(parser=_kilobytes, metavar="SIZE|none", help="10MB, 1GB; a bare number is KB, and 4294967295 none."),
]
Journaling = Annotated[bool | None, typer.Option("--journal/--no-journal", help="Keep copies of received messages.")]
Authentication = Annotated[
    bool | None, typer.Option("--authenticated/--no-authenticated", help="Accept signed messages only.")
]
Privacy = Annotated[str | None, typer.Option("--privacy", help="Encryption: none, optional or body.")]
Priority = Annotated[
    int | None,
    typer.Option(
        "--base-priority", min=-32768, max=32767, help="Priority of the queue against others with the same next hop."
    ),
]
Multicast = Annotated[
    str | None, typer.Option("--multicast", help="address:port of a multicast group; empty for none.")
]


@dataclasses.dataclass(frozen=True, slots=True)
class Properties:
    """The options for properties of a queue that can be changed."""

    label: Label = None
    type: Type = None
    quota: Kilobytes = None
    journal_quota: Kilobytes = None
    journaling: Journaling = None
    authentication: Authentication = None
    privacy_level: Privacy = None
    base_priority: Priority = None
    multicast_address: Multicast = None

    def given(self) -> dict[str, Any]:
        """The properties that the command line names."""
        named = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if "type" in named:
            named["type"] = _guid(named["type"])
        if "privacy_level" in named:
            privacy = named["privacy_level"]
            if privacy.lower() not in PRIVACY:
                raise ConstraintViolated(f"--privacy {privacy}: choose none, optional or body")
            named["privacy_level"] = PRIVACY[privacy.lower()]
        return named


UNCHANGED: Final = Properties()


@app.command()
def publish(
    pathname: Annotated[str, typer.Argument(help="computer\\queue", metavar="QUEUE")],
    directory_file: DirectoryFile = None,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="Accept messages in transactions only.")
    ] = False,
    properties: Properties = UNCHANGED,
    as_json: AsJson = False,
) -> None:
    """Publish a queue. Its computer must have a queue manager in the directory."""
    with opened(directory_file) as directory:
        named = properties.given()
        try:
            added = directory.queues.add(replace(Queue(pathname=pathname, transactional=transactional), **named))
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
        changes = properties.given()
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
        "label": queue.label,
        "type": guid_to_text(queue.type) if queue.type and queue.type != ZERO_GUID else None,
        "transactional": queue.transactional,
        "journaling": queue.journaling,
        "authentication": queue.authentication,
        "privacy_level": queue.privacy_level.name.lower(),
        "quota": queue.quota,
        "journal_quota": queue.journal_quota,
        "base_priority": queue.base_priority,
        "multicast_address": queue.multicast_address,
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
        f"quota {quota_text(row['quota'])}": row["quota"] != INFINITE,
        f"journal quota {quota_text(row['journal_quota'])}": row["journal_quota"] != INFINITE,
    }
    return ", ".join(name for name, applies in named.items() if applies)
