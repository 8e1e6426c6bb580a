"""The port to a directory for plan and apply. :mod:`mqenterprise.topology.ldap_target` implements it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mqenterprise.topology.plan import Step
    from mqenterprise.topology.resources import Table


class TargetError(Exception):
    """The directory refused an operation; the message says which and why."""


class TargetUnavailable(TargetError):
    """The directory is unavailable. Finished steps remain; another run continues from there."""


class ConflictingChange(TargetError):
    """The object is not in its planned state: someone else changed it since the plan was made."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The directory at one time: its identity, its contents, and the meaning of its names.

    ``canonical`` returns the one name of a user or group that is known under any of its names, or None.
    """

    directory: str
    table: Table
    canonical: Callable[[str], str | None]


class Target(Protocol):
    """A directory that is read as a whole and changed one step at a time."""

    def snapshot(self, users: Collection[str] = ()) -> Snapshot:
        """Read everything that can be declared. Raises :class:`TargetError`.

        Of the directory's many users, only those with certificates, with our mark, or named here are read.
        """

    def prepare(self) -> None:
        """Create the containers and settings that must exist before the first step. Idempotent."""

    def carry_out(self, step: Step, token: int) -> None:
        """Carry out one step. It is idempotent, also on an object of ours that an interruption left incomplete.

        ``token`` is the fencing token of the lease and is written into the mark. An object with a later token is not
        touched. Called from several threads after one :meth:`snapshot`. Raises :class:`TargetError`.
        """

    def lease_entry(self) -> LeaseEntry:
        """Return the entry that holds the lease."""


class LeaseEntry(Protocol):
    """One text in the directory that only changes by compare and set."""

    def read(self) -> str | None:
        """Return the text, or None when there is none yet. Raises :class:`TargetError`."""

    def swap(self, old: str | None, new: str) -> bool:
        """Replace ``old`` by ``new``. Return False if the text is no longer ``old``. Raises :class:`TargetError`."""
