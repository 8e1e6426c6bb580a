"""The take-overs of a store that moves between hosts: a token for each process that was active with it.

The tokens are numbered, and written before anything else of a start. Two hosts that are active at once read the same
last token from their page caches, and take the same next one; only one of the two is found later. So each host keeps
its own tokens in a ledger beside the store, and compares it with the store at each take-over.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from qmnode.storage.layout import Family
from qmnode.storage.origin import move_between
from qmnode.storage.store import Store

_TOKEN: Final = b"takeover/"
_END: Final = b"takeover0"
KEPT: Final = 1000
"""Tokens that a store keeps."""


@dataclass(frozen=True, slots=True)
class Token:
    """The take-over of a store by one process."""

    number: int
    host: str
    boot: str
    process: str
    """An identifier that no other process has."""
    before: str
    """The process that was active before."""
    time: float
    """In seconds since 1970."""
    version: str = ""

    @property
    def key(self) -> bytes:
        """Its place in the store."""
        return _TOKEN + b"%012d" % self.number

    @classmethod
    def parse(cls, text: bytes | str) -> Self:
        """Parse a record. Raises ValueError or TypeError."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Write it as the JSON of its record."""
        return json.dumps(asdict(self), separators=(",", ":"))


def tokens(store: Store) -> list[Token]:
    """The tokens of a store, oldest first."""
    return [Token.parse(value) for _, value in store.scan(Family.META, _TOKEN, _END)]


def take_over(
    store: Store, hosts: tuple[str, ...], *, host: str, boot: str, process: str, version: str
) -> tuple[Token, list[Token]]:
    """Write the token of this process, synced, and return it with those before it. One that has it keeps it."""
    found = tokens(store)
    if found and found[-1].process == process:
        return found[-1], found[:-1]
    last = found[-1] if found else None
    token = Token(
        last.number + 1 if last else 1, host, boot, process, last.process if last else "", time.time(), version
    )
    store.put(Family.META, token.key, token.text().encode())
    for old in found[:-KEPT]:
        store.delete(Family.META, old.key)
    move_between(store, hosts)
    store.flush()
    return token, found


def note_in_ledger(ledger: Path, token: Token) -> None:
    """Append the token to the ledger of this host. Raises OSError."""
    with ledger.open("a", encoding="utf-8") as file:
        file.write(token.text() + "\n")


def violations(ledger: Path, host: str, found: list[Token]) -> list[str]:
    """Sentences about tokens of this host that the store does not have, or has as another's. Raises OSError."""
    by_number = {token.number: token for token in found}
    oldest = min(by_number, default=0)
    sentences = []
    for line in ledger.read_text("utf-8").splitlines() if ledger.exists() else ():
        try:
            own = Token.parse(line)
        except (ValueError, TypeError):
            continue  # torn when the power failed
        if own.number < oldest:
            continue
        here = by_number.get(own.number)
        if here == own:
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(own.time))
        other = f"which the store has as one of {here.host}" if here else "which the store does not have"
        sentences.append(
            f"{host} was active from {when} UTC on with token {own.number}, {other}: two hosts were active at once, or "
            "the store is an older copy. Messages accepted since may be missing; look into the fencing"
        )
    return sentences
