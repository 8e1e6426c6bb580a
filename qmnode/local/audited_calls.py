"""Changes that applications make to the node itself, beside sending and receiving, for the audit log."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

CHANGES: Final = frozenset(
    {
        "apply_document",
        "backup",
        "control_job",
        "create_queue",
        "delete_queue",
        "edit",
        "import_messages",
        "pause_queue",
        "purge",
        "register_certificate",
        "resume_queue",
        "set_online",
        "set_queue",
        "set_queue_manager_security",
        "start_job",
    }
)
"""Methods that an administrator will want to know of."""
LONGEST: Final = 512
"""The most characters of a name, and names of properties, in an entry: failing calls cannot fill the disk."""


class LocalChange(NamedTuple):
    """A change, or an attempt at one."""

    user_id: int
    action: str
    target: str
    """The object of the change: a queue, a transaction or a directory, by name."""
    properties: tuple[str, ...]
    """The names of the properties that were set, without their values."""
    outcome: str
    """``done``, ``denied``, ``failed`` or ``aborted``."""
    problem: str | None
    """Name of the MQ_ERROR code, when it was not done."""


def properties_of(keywords: dict[str, Any]) -> tuple[str, ...]:
    """The properties that the keywords of a method name."""
    return tuple(name[:LONGEST] for name in sorted(keywords)[:LONGEST])


Auditor = Callable[[LocalChange], None]


def target_of(arguments: list[Any]) -> str:
    """The object that the first argument of a method names."""
    match arguments:
        case [str() as kind, list() as queues, *_]:
            return f"{kind} {', '.join(map(str, queues))}"[:LONGEST]
        case [int() as number, str() as action, *_]:
            return f"{action} {number}"[:LONGEST]
        case [str() as name, *_]:
            return name[:LONGEST]
        case [bytes() as identifier, *_]:
            return identifier[:LONGEST].hex()
        case _:
            return ""
