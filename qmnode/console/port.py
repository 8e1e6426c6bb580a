"""The ports of the console to the nodes that it shows, and to their enterprise."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from starlette.routing import BaseRoute

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

    credential: Callable[[Person], "Credential"]
    """The proof of an identified person for the nodes."""
    passwords: Passwords | None = None
    provider: Provider | None = None
    groups_age: float = GROUPS_AGE


Credential = Callable[[str], str]
"""The bearer token that proves a person to a machine; it may change from request to request."""


class Machine(NamedTuple):
    """A queue manager with a node."""

    name: str
    site: str = ""
    gate: bool = False
    routing_server: bool = False
    identifier: str = ""
    """Of its queue manager, as the directory has it; empty where nothing but the address tells nodes apart."""


class Answer(NamedTuple):
    """The answer of a node's management API."""

    status: int
    content: bytes
    media_type: str = "application/json"
    disposition: str = ""


class UnavailableError(Exception):
    """A node that gives no answer. The text says why, without the name of the node."""


class RefusedError(UnavailableError):
    """A node that answers, and does not do what was asked."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Node(Protocol):
    """The management API of a node, as one person may use it."""

    async def ask(self, method: str, path: str, query: str = "", content: bytes = b"") -> Answer:
        """Send a request; the path is percent-encoded. Raises :class:`UnavailableError`."""

    def stream(self, path: str, query: str) -> AsyncIterator[bytes]:
        """The content of an answer as it comes. Raises :class:`UnavailableError`, also when it is cut off."""

    async def close(self) -> None:
        """Close the connections to the node."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The sites, links and machines of an enterprise, as of the last reading."""

    machines: Sequence[Machine]
    sites: Sequence[Mapping[str, Any]] = ()
    """``name`` and ``foreign`` of each."""
    links: Sequence[Mapping[str, Any]] = ()
    """``first``, ``second``, ``cost`` and ``gates`` of each."""
    as_of: float | None = None
    """When it was read, in seconds since 1970."""
    reason: str = ""
    """Why it could not be read again since."""


class Enterprise(Protocol):
    """The nodes that a console shows: those of a directory, or one alone."""

    @property
    def name(self) -> str:
        """The name of a node alone; empty for an enterprise."""

    @property
    def features(self) -> tuple[str, ...]:
        """The parts that it can answer: ``map``, ``routes``, ``plan``, ``audit``."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """More routes below ``api``, for this kind of enterprise."""

    async def outline(self) -> Outline:
        """Its sites, links and machines. Does not wait for long, and never fails: an old outline has a reason."""

    def crossing(self, machine: str, format_name: str) -> tuple[str, str] | None:
        """The sites at the ends of the routing link that messages in an outgoing queue cross next; None if none."""

    def destination(self, format_name: str) -> str:
        """Where the messages of an outgoing queue go, by names; empty if the format name says as much."""

    def node(self, machine: str, credential: Credential) -> Node:
        """A node, for the person whom this proves."""

    async def close(self) -> None:
        """Close what is open."""
