"""The facts that a survey finds. A value that nobody gave is None, and reported as unknown, never as a default."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.topology.names import fold
from qmnode.objects.table import PRIVATE_QUEUE

if TYPE_CHECKING:
    from mqenterprise.topology.normal_form import Table

LONGEST: Final = 300
"""The most characters of a text that another machine or a file gives."""
PROPERTIES: Final = tuple(name for name, row in PRIVATE_QUEUE.items() if not row.added)
"""Properties of a queue, by their names in a declaration. MS-MQMR shows whether it is transactional, and no other."""


class SurveyError(Exception):
    """The survey cannot be done or written. The text says why, and what to do."""


def shown(text: object) -> str:
    """A text of another machine or of a file, short, and in one line."""
    cut = str(text)[:LONGEST]
    return "".join(each if each.isprintable() else "\ufffd" for each in cut)


class Answer(StrEnum):
    """How a machine answered over MS-MQMR."""

    ANSWERED = "answered"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    NOT_ASKED = "not asked"


@dataclass(slots=True)
class Sample:
    """Messages of a queue that were looked at, from its front and from its end."""

    looked_at: int = 0
    bytes: int = 0
    """Of bodies and extensions."""
    largest: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    senders: Counter[str] = field(default_factory=Counter)
    """Identifiers of the queue managers that the messages name as their source."""
    addressed_by: Counter[str] = field(default_factory=Counter)
    """The kinds of format names that senders used: ``DIRECT=OS``, ``PUBLIC``, ``PRIVATE`` and others."""
    replies_to: Counter[str] = field(default_factory=Counter)
    """The kinds of format names of response queues."""
    signed: int = 0
    encrypted: int = 0
    oldest: float | None = None
    """When the first message arrived, in seconds since 1970."""
    newest: float | None = None
    arrivals_an_hour: float | None = None
    """By the arrival times at the end of the queue."""
    incomplete: str = ""
    """Why fewer messages were looked at than asked for."""


@dataclass(slots=True)
class Queue:
    """A queue, as far as it is known."""

    machine: str
    name: str
    private: bool
    domain: str = ""
    identifier: bytes = b""
    """Its GUID in the directory, of a public queue."""
    values: dict[str, Any] = field(default_factory=dict)
    """Properties by their names in a declaration."""
    sources: dict[str, str] = field(default_factory=dict)
    """Where each value comes from."""
    access: list[dict[str, Any]] | None = None
    """Its access list as a declaration writes it."""
    messages: int | None = None
    bytes: int | None = None
    journal_messages: int | None = None
    journal_bytes: int | None = None
    active: bool | None = None
    """Whether it has messages or a program has it open. None: nobody said."""
    later: int | None = None
    """Messages when it was looked at again."""
    sample: Sample | None = None
    not_sampled: str = ""
    """Why no messages were looked at."""
    endpoint: str = ""
    """The NServiceBus endpoint that reads it."""
    hints: dict[str, str] = field(default_factory=dict)
    """Remarks of a spreadsheet: its reader, its owner, DTC, triggers."""
    problem: str = ""
    """Why the queue manager did not show it."""

    @property
    def path(self) -> str:
        """Its path name (MS-MQMQ 2.1.1)."""
        return f"{self.machine}\\{'private$' + chr(92) if self.private else ''}{self.name}"

    def learn(self, name: str, value: Any, source: str) -> None:
        """Keep a value, unless a better source gave one."""
        if value is not None and name not in self.values:
            self.values[name] = value
            self.sources[name] = source

    @property
    def unknown(self) -> list[str]:
        """The properties that nobody gave."""
        if self.identifier:  # the directory holds them
            return []
        missing = [name for name in PROPERTIES if name not in self.values]
        return [*missing, "access"] if self.access is None else missing


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An outgoing queue of a machine."""

    name: str
    state: str
    messages: int
    bytes: int
    next_hops: tuple[str, ...]


@dataclass(slots=True)
class Machine:
    """A queue manager, as far as it is known."""

    name: str
    domain: str = ""
    identifier: str = ""
    """The GUID of its queue manager."""
    sites: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    foreign: bool = False
    is_declared: bool = False
    """Whether a directory has it."""
    host: str = ""
    """Where it is asked."""
    port: int | None = None
    answer: Answer = Answer.NOT_ASKED
    reason: str = ""
    version: str = ""
    connected: bool | None = None
    bytes: int | None = None
    """In all of its queues."""
    dead_letters: int | None = None
    transactional_dead_letters: int | None = None
    journal_messages: int | None = None
    """Copies of sent messages in the machine's journal."""
    outgoing: list[Outgoing] = field(default_factory=list)
    remote_read: str = ""
    """Why its messages could not be looked at; empty if they could."""
    seconds: float = 0.0
    triggers: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Certificate:
    """A user's certificate in a directory."""

    user: str
    domain: str
    subject: str
    not_after: float | None
    """Seconds since 1970; None if it cannot be read."""


@dataclass(slots=True)
class Estate:
    """Everything that a survey found."""

    name: str
    tables: list[Table] = field(default_factory=list)
    """The contents of each directory."""
    domains: list[str] = field(default_factory=list)
    other_domains: list[str] = field(default_factory=list)
    """Domains of the forest, or trusted ones, that were not read."""
    machines: dict[str, Machine] = field(default_factory=dict)
    queues: dict[tuple[str, bool, str], Queue] = field(default_factory=dict)
    certificates: list[Certificate] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Entries and rows that could not be read, with the reason."""
    files: list[str] = field(default_factory=list)

    def machine(self, name: str) -> Machine:
        """The machine of this name. Case does not count."""
        return self.machines.setdefault(fold(name), Machine(shown(name)))

    def queue(self, machine: str, name: str, *, private: bool) -> Queue:
        """The queue of this name at this machine."""
        owner = self.machine(machine)
        key = (fold(machine), private, fold(name))
        return self.queues.setdefault(key, Queue(owner.name, shown(name), private, owner.domain))

    def of_machine(self, machine: Machine) -> list[Queue]:
        """Return the queues that are known of a machine."""
        return [queue for key, queue in self.queues.items() if key[0] == fold(machine.name)]
