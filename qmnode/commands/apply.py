"""``qmnode apply`` and ``qmnode document``: the document of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.commands.node_options import NODE, JsonOption, Node
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_json, say
from qmnode.structures.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST: Final = 32 * 1024 * 1024
"""Bytes of a document."""
apply_app = Commands()
document_app = Commands()


@apply_app.command(epilog="Example: qmnode apply machine.yml --check or: qmnode apply machine.yml --prune")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The document, YAML or JSON; - is standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Say what would change, and change nothing.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete queues that a document made and this one does not have.")
    ] = False,
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="With --prune: also those that hold messages, which are lost.")
    ] = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Make private queues, addresses and bridges as a document says. A second time changes nothing.

    Only what a document made is ever deleted. Properties that the document omits get their defaults; sections, access
    lists and owners that it omits stay as they are. For administrators.
    """
    if with_messages and not prune:
        raise typer.BadParameter("it is about what --prune deletes", param_hint="--with-messages")
    document = _read(file)
    done = node.run(
        lambda qm: qm.operations.apply_document(document, prune=prune, with_messages=with_messages, dry_run=check)
    )
    if as_json:
        print_json(done)
        return
    for step in done["steps"]:
        print("\n".join(step_lines(step)))
    changed = sum(step["action"] != "keep" for step in done["steps"])
    kept = len(done["steps"]) - changed
    say(f"{counted(changed, 'change')}{' to make' if check else ''}, {counted(done['unchanged'], 'queue')} as declared")
    if kept:
        say(f"{counted(kept, 'queue')} not deleted: receive the messages first, or say --with-messages")
    if done["left_over"]:
        say(printable(f"no longer in the document, and deleted with --prune: {', '.join(done['left_over'])}"))


@document_app.command(epilog="Example: qmnode document --all > machine.yml")
def document(
    everything: Annotated[
        bool, typer.Option("--all", help="All private queues, addresses and bridges, not only what a document made.")
    ] = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Print the document of the node, as its queues, addresses and bridges are now, in YAML. For administrators."""
    found = node.run(lambda qm: qm.operations.show_document(everything=everything))
    if as_json:
        print_json(found)
        return
    import yaml

    print(yaml.safe_dump(found, sort_keys=False, width=120), end="")


def step_lines(step: Mapping[str, Any], machine: str = "") -> list[str]:
    """Return the lines that show a step, with the name of the machine if it is one of many."""
    if queue := step["queue"]:
        title = f"queue {machine}\\private$\\{queue}" if machine else queue
    else:
        title = f"bridge {step['bridge']}" if step["bridge"] else "addresses"
        title += f" of {machine}" if machine else ""
    signs = {"create": "+", "change": "~", "delete": "-", "keep": "="}
    why = f": {step['reason']}" if step["reason"] else ""
    if step["action"] == "delete" and step["messages"]:
        why = f": with {counted(step['messages'], 'message')}"
    lines = [f"{signs[step['action']]} {title}{why}"]
    for name, change in step["changes"].items():
        old, new = _text(change["from"]), _text(change["to"])
        lines.append(f"    {name}: {new}" if step["action"] == "create" else f"    {name}: {old} -> {new}")
    return [printable(line) for line in lines]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    if isinstance(value, list) and not all(isinstance(one, dict) for one in value):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, list):  # an access list
        entries = [f"{one['to']}: {verb} {' '.join(one[verb])}" for one in value for verb in one if verb != "to"]
        return "; ".join(entries) or "nobody"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _read(file: Path) -> dict[str, Any]:
    """The document, after a look at it here, where its lines are known."""
    import yaml

    from qmnode.administration.document_faults import DocumentFault
    from qmnode.administration.machine_documents import read_document
    from qmnode.errors import ConfigurationError
    from qmnode.settings.mistakes import line_of, unreadable
    from qmnode.settings.yaml_text import read_yaml

    name = Path("standard input") if str(file) == "-" else file
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as source:
            content = source.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ConfigurationError(
                f"{name} is larger than {_LARGEST >> 20} MiB: a document has the queues of one machine"
            )
        text = content.decode("utf-8")
        plain = read_yaml(text)
    except FileNotFoundError:
        raise ConfigurationError(f"{file} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(unreadable(name, error)) from None
    plain = {} if plain is None else plain
    try:
        read_document(plain)
    except DocumentFault as fault:
        where = line_of(yaml.compose(text, yaml.SafeLoader), fault.place)
        raise ConfigurationError(f"{name}{where}: {fault.where}: {fault.sentence_alone}") from None
    return dict(plain)
