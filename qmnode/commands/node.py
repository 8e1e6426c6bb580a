"""``qmnode init``, ``backup``, ``restore``, ``verify`` and ``salvage``."""

from pathlib import Path
from typing import Annotated

import typer

from qmnode.commands.node_options import NODE, ConfigOption, DataOption, JsonOption, Node, data_directory, run_async
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_facts, print_json, progress, say, size_text, write_json
from qmnode.commands.table_writer import print_table

init_app = Commands()
connect_app = Commands()
disconnect_app = Commands()
backup_app = Commands()
restore_app = Commands()
verify_app = Commands()
salvage_app = Commands()

_CONFIGURATION = """\
# The settings of a qmnode node. What is left out has its default; `qmnode run --config` says what is wrong.
data: {data}
{computer_name}{other_names}
local:
  # Applications: qmnode.connect(), and the qmnode command.
  socket: {local}

management:
  # Administration over HTTP, for the user that the node runs as.
  socket: {management}
  # Over the network it needs tokens and a certificate:
  # listen: 0.0.0.0:8443
  # tokens: /etc/qmnode/tokens.yaml
  # certificate: /etc/qmnode/certificate.pem
  # private_key: /etc/qmnode/key.pem
  # audit_log: /var/log/qmnode/audit.log

quotas:
  # All messages together: 10GB, none, ...; a bare number is KB.
  queue_manager_quota: 1GB
"""


@init_app.command(epilog="Example: qmnode init --config /etc/qmnode/node.yaml --data /var/lib/qmnode")
def init(
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration to write.")] = Path("node.yaml"),
    data: Annotated[Path, typer.Option("--data", help="Directory of the message store, new or empty.")] = Path(
        "/var/lib/qmnode"
    ),
    run_directory: Annotated[Path, typer.Option("--run-directory", help="Directory for the node's sockets.")] = Path(
        "/run/qmnode"
    ),
    computer_name: Annotated[
        str, typer.Option(help="NetBIOS name of the node's computer. Default: the host's name.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a node: a configuration, and a message store with an identity. Overwrites nothing."""
    from qmnode.node import QueueManager
    from qmnode.settings.node import computer_name_fault, read_settings
    from qmnode.unix_sockets import check_socket_path

    if config.exists():
        say(f"{config} exists already: qmnode run --config {config}")
        raise typer.Exit(1)
    if data.exists() and any(data.iterdir()):
        say(f"{data} is not empty: name a new directory with --data")
        raise typer.Exit(1)
    check_socket_path(run_directory.absolute() / "management.sock")
    if computer_name and (fault := computer_name_fault(computer_name)):
        raise typer.BadParameter(fault, param_hint="--computer-name")
    text = _CONFIGURATION.format(
        data=_yaml(data.absolute()),
        computer_name=f"computer_name: {_yaml(computer_name)}\n" if computer_name else "",
        other_names=_other_names(),
        local=_yaml(run_directory.absolute() / "qmnode.sock"),
        management=_yaml(run_directory.absolute() / "management.sock"),
    )
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"{error.filename} cannot be written: {error.strerror}; name other places with --config and --data")
        raise typer.Exit(1) from error

    async def first_start() -> tuple[str, bytes]:
        async with QueueManager.open(data, read_settings(config)) as manager:
            return manager.computer_name, manager.identifier

    name, identifier = run_async(first_start())
    facts = {"computer_name": name, "identifier": _guid(identifier), "config": str(config), "data": str(data)}
    if as_json:
        print_json(facts)
        return
    print_facts(facts)
    say(f"start it: qmnode run --config {config}")


def _other_names() -> str:
    """The qualified name of this host, by which others may know it, where the system knows one."""
    import socket

    name = socket.getfqdn()
    if "." not in name or name.startswith("localhost"):
        return ""
    return f"# Further names of this computer in format names.\nother_names: [{_yaml(name)}]\n"


def _yaml(value: object) -> str:
    import json

    return json.dumps(str(value), ensure_ascii=False)


def _guid(identifier: bytes) -> str:
    from qmnode.structures.guid import Guid, guid_to_text

    return guid_to_text(Guid(identifier))


@disconnect_app.command(epilog="Example: qmnode disconnect")
def disconnect(node: Node = NODE) -> None:
    """Exchange no messages with other machines until 'connect' or a restart. Messages for them wait."""
    node.run(lambda qm: qm.set_online(False))
    say("the node is offline")


@connect_app.command(epilog="Example: qmnode connect")
def connect(node: Node = NODE) -> None:
    """Exchange messages with other machines again."""
    node.run(lambda qm: qm.set_online(True))
    say("the node is online")


@backup_app.command(epilog="Example: qmnode backup /var/lib/qmnode-backups/monday")
def backup(
    directory: Annotated[
        Path, typer.Argument(help="Directory to create; the node's user needs the right to create it.")
    ],
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Copy the store of the running node, which goes on meanwhile. For root and the node's own user.

    On the file system of the store the copy is made of hard links. Only the node's user can read it.
    """
    with progress(f"writing {directory}"):
        node.run(lambda qm: qm.backup(directory))
    if as_json:
        print_json({"backup": str(directory.absolute())})
    say(f"{directory} is written: qmnode verify --data {directory}")


@restore_app.command(epilog="Example: qmnode restore /var/lib/qmnode-backups/monday --data /var/lib/qmnode")
def restore(
    directory: Annotated[
        Path | None, typer.Argument(metavar="BACKUP", help="Directory that 'qmnode backup' wrote.")
    ] = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="COPY", help="Instead: folder or s3://bucket/prefix of storage.remote_copy."),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="Moment to restore a copy to, UTC: 2026-01-31T09:30:00. Default: the last."
        ),
    ] = "",
    key: Annotated[
        Path | None, typer.Option("--key", help="File with the copy's passphrase. Default: that of the configuration.")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a backup, or the copy that a node keeps elsewhere, to where a node will start: an empty directory, or none.

    The store is as it was when the backup was made, or at the moment. Messages that were received since then come
    again: those in the store, and those that their senders still keep. For a copy, missing.jsonl in the directory
    lists the messages that are missing or come again.

    The node will know that it runs on a copy, and skip the message identifiers that the original may have given out
    since. Never run the original beside it. Run this as the node's user, who then owns the files.
    """
    from qmnode.storage.backup import restore as restore_backup

    target = data_directory(data, config)
    if source:
        if directory is not None:
            raise typer.BadParameter("name a backup, or a copy with --from, not both")
        _restore_copy(source, at, key, target, config, as_json)
        return
    if directory is None or at or key is not None:
        raise typer.BadParameter("name a backup, or a copy with --from; --at and --key are for copies")
    with progress(f"restoring to {target}") as bar:
        count = restore_backup(directory, target, bar)
    if as_json:
        print_json({"data": str(target), "bytes": count})
    say(f"{size_text(count)} restored to {target}, as it was when the backup was made")
    say(
        "messages that were received since then are there again, and senders may deliver again what they still keep: "
        "receivers need to know repeats (docs/exactly-once.md)"
    )


def _restore_copy(source: str, at: str, key: Path | None, target: Path, config: Path | None, as_json: bool) -> None:
    from qmnode.copies.pieces import moment_text
    from qmnode.copies.restoring import MISSING, restore_copy
    from qmnode.settings.node import read_settings

    moment = _moment(at)
    key = key or read_settings(config).storage.remote_copy.key
    if key is None:
        raise typer.BadParameter("name the file with the copy's passphrase", param_hint="--key")
    with progress(f"restoring to {target}") as bar:
        restored = restore_copy(source, key, target, moment, bar)
    lacking, ends = restored.lacking, moment_text(restored.ends)
    if as_json:
        print_json({"data": str(target), "list": str(target / MISSING), **restored.document()})
    say(f"{size_text(restored.size)} restored to {target}, as it was at {moment_text(restored.moment)}")
    say(f"{counted(len(lacking.missing), 'message')} accepted later, by {ends}, and not received since: missing")
    say(
        f"{counted(len(lacking.gone), 'message')} accepted later, and received, sent on or deleted by {ends}: not there"
    )
    say(f"{counted(len(lacking.again), 'message')} received, sent on or deleted later: there again")
    if lacking.moved:
        say(f"{counted(len(lacking.moved), 'message')} moved later to another queue: where they were before")
    for sentence in restored.damaged:
        say(f"damaged: {sentence}")
    say(f"{target / MISSING} lists these messages. What was accepted after {ends} is unknown to the copy, and missing")
    say("senders may deliver again what they still keep: receivers need to know repeats (docs/exactly-once.md)")


def _moment(text: str) -> float | None:
    from datetime import UTC, datetime

    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r:.60} is no time: write 2026-01-31T09:30:00", param_hint="--at") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


@verify_app.command(epilog="Example: qmnode verify --data /var/lib/qmnode")
def verify(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check a store whose node is stopped, or a backup: every record, counter and index. Changes nothing.

    Queues that are open to everyone are listed; that alone is no finding.

    Exit code 1: something is wrong with it; each finding is named.
    """
    from qmnode.administration.access_control import open_queue_of
    from qmnode.storage.verification import verify as verify_store

    target = data_directory(data, config)
    with progress(f"checking {target}") as bar:
        report = verify_store(target, bar)
    opened = [one for name, security in report.descriptors for one in open_queue_of(name, security)]
    if as_json:
        print_json(
            {
                "data": str(target),
                "format_version": report.format_version,
                "queues": report.queues,
                "messages": report.messages,
                "findings": [{"where": one.where, "sentence": one.sentence} for one in report.findings],
                "findings_omitted": report.omitted,
                "open_queues": [
                    {"queue": one.pathname, "trustee": one.trustee, "rights": list(one.rights)} for one in opened
                ],
            }
        )
    elif report.findings:
        print_table(
            ("where", "what is wrong"), [(one.where, one.sentence) for one in report.findings], whole=("where",)
        )
    if opened and not as_json:
        print_table(
            ("queue", "open to", "rights"),
            [(one.pathname, one.trustee, list(one.rights)) for one in opened],
            whole=("queue", "open to"),
        )
        say("these queues are open to everyone: on the running node, qmnode queue acl close --all closes them")
    findings = len(report.findings) + report.omitted
    found = counted(findings, "finding") if findings else "no findings"
    say(f"{counted(report.queues, 'queue')}, {counted(report.messages, 'message')}, {found}")
    if report.findings:
        raise typer.Exit(1)


@salvage_app.command(epilog="Example: qmnode salvage /var/lib/qmnode --to salvaged.ndjson")
def salvage(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="Directory of the damaged store; its node is stopped.")
    ],
    target: Annotated[Path, typer.Option("--to", metavar="FILE", help="New file for the messages.")],
    as_json: JsonOption = False,
) -> None:
    """Bring every whole message out of a damaged store, and list the rest. Changes nothing in the store.

    The file is as 'qmnode message export' writes it: 'qmnode message import FILE' sends the messages. It holds their
    bodies, so only its owner can read it. Beside it there must be room for the store's logs.

    Exit code 1: something was left behind; each is named.
    """
    import os

    from qmnode.management.message_documents import exported
    from qmnode.model.stored_message import received_message
    from qmnode.storage.salvage import Salvage

    _check_salvage(store, target)
    found, count = Salvage(store), 0
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        say(f"{target} cannot be made: {error.strerror}; name a new file in a directory that is there")
        raise typer.Exit(1) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file, progress(f"reading {store}") as bar:
            for one in found.messages(target.parent, bar):
                write_json(exported(one.queue, received_message(one.lookup_identifier, one.value)), file)
                count += 1
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        target.unlink(missing_ok=True)
        say(f"{target} cannot be written: {error.strerror}; make room for the messages, or name a file elsewhere")
        raise typer.Exit(1) from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    rest = [{"where": str(one.where), "sentence": one.sentence} for one in found.rest]
    if as_json:
        print_json({"file": str(target), "messages": count, "missing": found.missing, "rest": rest})
    elif rest:
        print_table(("where", "what is wrong"), [tuple(one.values()) for one in rest], whole=("where",))
    say(
        f"{counted(count, 'message')} in {target}, which holds their bodies; {found.missing:,} counted ones are missing"
    )
    if rest:
        raise typer.Exit(1)


def _check_salvage(store: Path, target: Path) -> None:
    """Exit code 1 for a directory that was no store, or a file in it."""
    if not any(store.glob("*.sst")) and not any(store.glob("*.log")):
        say(f"{store} is no message store: there are no tables and no logs in it; name a node's data")
        raise typer.Exit(1)
    if target.absolute().resolve().is_relative_to(store.resolve()):
        say(f"{target} is in the store, which is only read: name a file elsewhere")
        raise typer.Exit(1)
