"""The commands of both programs as a tree, and as pages of the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import typer

from tests.docs.reference.markdown import cell, table

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS: Final = ("qmnode", "mqenterprise")
_PLAIN: Final = {"<": "&lt;"}
_COMPLETION: Final = ("install_completion", "show_completion")
_WORDS: Final = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER"}


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or an argument if ``spellings`` is its name alone."""

    spellings: tuple[str, ...]
    value: str
    """The value that it takes; empty for a flag."""
    help: str
    default: str
    required: bool
    argument: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its words, such as ``qmnode queue create``."""

    path: str
    help: str
    epilog: str
    options: tuple[Option, ...]
    commands: tuple[Command, ...]

    @property
    def usage(self) -> str:
        """The line that begins its help."""
        words = [self.path]
        if any(not one.argument for one in self.options):
            words.append("[OPTIONS]")
        words += [one.spellings[0] if one.required else f"[{one.spellings[0]}]" for one in self.options if one.argument]
        return " ".join([*words, *(["COMMAND ..."] if self.commands else [])])

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return re.split(r"(?<=[.:;])\s", self.help.strip(), maxsplit=1)[0].rstrip(".:;")

    def walk(self) -> Iterator[Command]:
        """The command and all below it."""
        yield self
        for one in self.commands:
            yield from one.walk()


def program(name: str) -> Command:
    """The tree of one program."""
    from mqenterprise.cli import app as enterprise
    from qmnode.commands.command_table import app as node

    return _command(name, typer.main.get_command({"qmnode": node, "mqenterprise": enterprise}[name]))


def _command(path: str, found: Any) -> Command:
    context = click.Context(found)
    names = found.list_commands(context) if hasattr(found, "list_commands") else []
    commands = [_command(f"{path} {name}", found.resolve_command(context, [name])[1]) for name in names]
    options = [
        _option(one, context)
        for one in found.params
        if one.name not in _COMPLETION and not getattr(one, "hidden", False)
    ]
    return Command(path, _plain(found.help), _plain(found.epilog), tuple(options), tuple(commands))


def _option(found: Any, context: click.Context) -> Option:
    argument = not found.opts[0].startswith("-")
    flag = bool(getattr(found, "is_flag", False))
    shown = found.metavar or _placeholder(found.display_type(context))
    default = found.default
    if default is None or callable(default) or default in (False, (), []):
        text = ""
    elif flag:
        text = found.opts[0] if default is True else str(default)
    else:
        text = (
            ", ".join(map(str, default))
            if isinstance(default, list | tuple)
            else str(getattr(default, "value", default))
        )
    spellings = (found.metavar or found.name.upper(),) if argument else (*found.opts, *found.secondary_opts)
    return Option(
        spellings, "" if flag or argument else shown, _plain(found.help), text, bool(found.required), argument
    )


def _placeholder(kind: str) -> str:
    """Choices as they are written; of another type, its word for people."""
    kind = re.sub(r"^<(?:list\[)?|\]?>$", "", kind)
    word = kind.split(" ")[0]
    return kind if "|" in kind else _WORDS.get(word, word.upper())


def _plain(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").replace("\b", "").split("\n\n")).strip()


def page(name: str) -> str:
    """All commands of a program."""
    tree = program(name)
    lines = [f"# Commands of {name}", "", escaped(tree.help), ""]
    lines += [
        f"Every command has `--help`. `man {name}` has the same pages; `{name} --install-completion` sets up the shell"
    ]
    lines += ["(see [Shell completion and man pages](../completion.md)).", ""]
    lines += table(
        ["command", "purpose"], [[f"[`{one.path}`](#{anchor(one)})", escaped(one.summary)] for one in tree.commands]
    )
    for command in tree.walk():
        if command is not tree:
            lines += _section(command)
    return "\n".join(lines) + "\n"


def _section(command: Command) -> list[str]:
    depth = min(len(command.path.split()), 3)
    lines = ["", f"{'#' * depth} {command.path} {{ #{anchor(command)} }}", "", "```text", command.usage, "```", ""]
    lines += [escaped(command.help), ""]
    rows = []
    for one in command.options:
        names = ", ".join(f"`{each}`" for each in one.spellings)
        notes = [escaped(one.help)]
        notes += [
            "Required." if one.required and not one.argument else "",
            f"Default: `{one.default}`." if one.default else "",
        ]
        rows.append([names + (f" `{one.value}`" if one.value else ""), cell(" ".join(note for note in notes if note))])
    lines += table(["option or argument", "meaning"], rows) if rows else []
    example = command.epilog.removeprefix("Example:").strip()
    if example:
        lines += ["", "Example:", "", "```sh", *re.split(r"\s{2,}or:\s+|\s+or:\s+", example), "```"]
    return lines


def anchor(command: Command) -> str:
    """The name of its heading."""
    return command.path.replace(" ", "-")


def escaped(text: str) -> str:
    """The text with what Markdown would take for markup made plain; code in backticks stays as it is."""
    return re.sub(r"(`[^`]*`)|([\\*_\[|<])", lambda found: found[1] or _PLAIN.get(found[2], f"\\{found[2]}"), text)
