"""Commands that are imported when they are run: with many commands, ``--help`` stays as fast as with one."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from qmnode.commands.error_line import complain
from qmnode.commands.fast_start import exit_code

WIDEST_HELP: Final = 100
"""Columns of the widest help: longer lines are hard to read."""
_SENTENCE_END: Final = re.compile(r"(?<=\.)\s")
_BEFORE_OPTION: Final = re.compile(r"(?= --)")
_OR: Final = re.compile(r"\s+or:\s+")


@dataclass(frozen=True, slots=True)
class Row:
    """A command of a table."""

    target: str
    """``module:attribute`` of a ``typer.Typer``: with one command it is the command, with several a group of them.
    ``module:attribute/name`` is one command of a group."""
    help: str
    """One line for the list of commands."""

    def load(self, name: str) -> Any:
        """Import the command's module, and return the command under this name."""
        module, _, place = self.target.partition(":")
        attribute, _, inner = place.partition("/")
        command: Any = typer.main.get_command(getattr(import_module(module), attribute))
        if inner:
            command = command.commands[inner]
        command.name = name
        return readable(command)


def readable(command: Any) -> Any:
    """Give a command, and those below it, a help that wraps at every width and never cuts off a name.

    Typer's own, with its frames, has six columns, and cuts the names of options off in a terminal of 80.
    """
    command.rich_markup_mode = None
    command.make_parser = partial(_make_parser, command.make_parser)
    command.format_epilog = partial(_write_examples, command)
    if inner := getattr(command, "commands", {}):
        command.format_commands = partial(_write_commands, inner)
        for one in inner.values():
            readable(one)
    return command


def _make_parser(make_parser: Any, context: Any) -> Any:
    """A parser that refuses an option with one value that is given twice: the first one would be ignored."""
    parser = make_parser(context)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        options, rest, order = parse(args)
        for one in order:
            if one.param_type_name != "option" or one.multiple or one.is_flag or one.count:
                continue
            if order.count(one) > 1:
                raise _UsageError(f"{max(one.opts, key=len)} is given more than once: it has one value", context)
        return options, rest, order

    parser.parse_args = parse_args
    return parser


def _write_commands(commands: Mapping[str, Any], _context: Any, formatter: Any) -> None:
    """Write the commands of a group, each with the first sentence of its help."""
    with formatter.section("Commands"):
        formatter.write_dl([(name, _SENTENCE_END.split((one.help or "").strip())[0]) for name, one in commands.items()])


def _write_examples(command: Any, _context: Any, formatter: Any) -> None:
    """Write the examples of a command, so that each can be copied: a long one is continued after a backslash."""
    examples = _OR.split((command.epilog or "").strip().removeprefix("Example:").strip())
    if examples != [""]:
        with formatter.section("Example" if len(examples) == 1 else "Examples"):
            for example in examples:
                lines = [""]
                for part in _BEFORE_OPTION.split(example):
                    if not lines[-1] or len(lines[-1]) + len(part) < formatter.width - 6:
                        lines[-1] += part
                    else:
                        lines.append(part.lstrip())
                indent = " " * formatter.current_indent
                formatter.write(indent + f" \\\n{indent}  ".join(lines) + "\n")


def command_table(table: Mapping[str, Row]) -> type[TyperGroup]:
    """A class for ``typer.Typer(cls=...)`` whose commands are those of ``table``."""

    class TableGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, row in table.items():
                self.add_command(TyperCommand(name, help=row.help))  # enough for help; replaced when it is run
            self.context_settings["max_content_width"] = WIDEST_HELP
            readable(self)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            row = table.get(name) if name else None
            return name, row.load(name) if name and row else command, rest

    return TableGroup


def _print_version(wanted: bool) -> None:
    if wanted:
        from qmnode.version import program_version

        print(program_version())
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
]
PROGRAM: Final = "qmnode"


_UsageError: Final[Any] = typer.BadParameter.__base__  # typer does not export it
_CommandError: Final[Any] = _UsageError.__base__


def run(app: typer.Typer, program: str = PROGRAM) -> None:
    """Run a command line to its exit code: 0 done, 1 failed, 2 wrong usage, 3 no node, 4 no message in time."""

    from qmnode.commands.output import escape_what_the_output_has_not

    escape_what_the_output_has_not()  # before anything is printed: no message and no name ends a listing

    def work() -> int:
        try:
            code = app(prog_name=program, standalone_mode=False)
        except _UsageError as error:
            complain(_usage(error, program))
            return int(error.exit_code)
        except _CommandError as error:
            complain(error.format_message())
            return int(error.exit_code)
        except typer.Abort:
            complain("nothing was done")
            return 1
        return code if isinstance(code, int) else 0

    sys.exit(exit_code(work))


def _usage(error: Any, program: str) -> str:
    """A line: what is wrong, and where help is. Help itself, where a command was given without anything."""
    if error.ctx is None:
        return f"{program}: {error.format_message()}"
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{error.ctx.command_path}: name a command"
    path, message = error.ctx.command_path, " ".join(error.format_message().split())
    message = message.removeprefix("Invalid value: ").replace(": Value error, ", ": ", 1)
    return f"{path}: {message[:1].lower()}{message[1:].rstrip('.')} (see '{path} --help')"
