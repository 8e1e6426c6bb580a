"""Commands whose options come in groups: options that many commands share are declared once, as the fields of a class.

A parameter of a command whose type is a dataclass stands for an option of each field, in their order:

    @dataclass(frozen=True)
    class Node:
        socket: SocketOption = None
        config: ConfigOption = None

    @app.command()
    def show(name: QueueName, *, node: Node, as_json: JsonOption = False) -> None: ...
"""

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

import typer

Command = TypeVar("Command", bound="Callable[..., None]")


class Commands(typer.Typer):
    """A ``typer.Typer`` for commands with groups of options. They fail with one sentence, never with a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(add_completion=False, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Register a function as a command, with an option for each field of its groups."""
        register = super().command(name, **settings)

        def registered(command: Command) -> Command:
            register(_flat(command))
            return command

        return registered


def _flat(command: Callable[..., None]) -> Callable[..., None]:
    """The same command with a parameter for each option of its groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    if not groups:
        return command
    flat: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if parameter.name in groups:
            flat += _options(groups[parameter.name])
        else:
            flat.append(parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    called.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return called


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
