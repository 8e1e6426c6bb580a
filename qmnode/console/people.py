"""People whom a directory or a provider identifies, and the ways to ask for them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from qmnode.console.port import Credential

GROUPS_AGE: Final = 60.0
"""Seconds for which the groups of a person are taken for true."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom a directory or a provider has identified."""

    name: str
    groups: tuple[str, ...]
    again: Callable[[], Awaitable["Person"]] = field(compare=False)
    """Return the person with the groups of now, without a password. Raises :class:`DeniedError` for a person who is
    no longer there, and :class:`UnavailableError`.
    """


class DeniedError(Exception):
    """An answer of a directory or a provider that proves nobody. The text says why."""


class Passwords(Protocol):
    """Something that knows people by their names and passwords."""

    async def identify(self, name: str, password: str) -> Person | None:
        """The person; None for an unknown name or a wrong password. Raises :class:`UnavailableError`."""


class Provider(Protocol):
    """An OpenID Connect provider."""

    async def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to sign in. Raises :class:`DeniedError` or :class:`UnavailableError`."""

    async def identify(self, code: str, nonce: str, verifier: str) -> Person:
        """The person who came back with a code. Raises :class:`DeniedError` or :class:`UnavailableError`."""

    async def close(self) -> None:
        """Close the connections to the provider."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to sign in beside tokens."""

    credential: Callable[[Person], Credential]
    """The proof of an identified person for the nodes."""
    passwords: Passwords | None = None
    provider: Provider | None = None
    groups_age: float = GROUPS_AGE
