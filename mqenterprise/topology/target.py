"""The port: what plan and apply need of a directory. :mod:`mqenterprise.topology.ldap_target` is the real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mqenterprise.topology.plan import Step
    from mqenterprise.topology.resources import Table


class TargetError(Exception):
    """The directory did not do it; the sentence says what and why."""


class TargetUnavailable(TargetError):
    """The directory is away. What was done stays done; running again goes on from there."""


class MovedOn(TargetError):
    """The object is no longer as it was when the plan was made: someone else changed it meanwhile."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The directory at one time: which directory it is, what is in it, and whom its names mean.

    ``canonical`` gives the one name of a user or group known under any of its names, or nothing.
    """

    directory: str
    table: Table
    canonical: Callable[[str], str | None]


class Target(Protocol):
    """A directory that can be read whole and changed one step at a time."""

    def snapshot(self, users: Collection[str] = ()) -> Snapshot:
        """Read everything that can be declared. Raises :class:`TargetError`.

        Of a directory's many users only those are read that have certificates, bear our mark, or are named here.
        """
        ...

    def prepare(self) -> None:
        """Create what must be there before the first step: containers, settings. Idempotent."""
        ...

    def carry_out(self, step: Step, token: int) -> None:
        """Do one step; doing it again, or over what a cut left half made of ours, gives the same.

        ``token`` is the fencing token of the lease and goes into the mark of what is written: an object that bears a
        later one is not touched. Called from several threads after one :meth:`snapshot`. Raises :class:`TargetError`.
        """
        ...

    def lease_entry(self) -> LeaseEntry:
        """Where the lease is kept."""
        ...


class LeaseEntry(Protocol):
    """One text in the directory that is changed by compare and set."""

    def read(self) -> str | None:
        """The text, or nothing when there is none yet. Raises :class:`TargetError`."""
        ...

    def swap(self, old: str | None, new: str) -> bool:
        """Replace ``old`` by ``new`` if it still is ``old``; whether it was. Raises :class:`TargetError`."""
        ...
