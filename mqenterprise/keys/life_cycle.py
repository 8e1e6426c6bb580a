"""The steps of a rotation, as functions from the key pairs of one node to those after the step. No I/O here.

A pair is made as the next one, published in the place of its provider's current one, and then is the current one; the
one before is previous until no message encrypted to it can arrive, then retired, then destroyed. A rollback makes the
pair before the current one the next one again: from there on it is a rotation like any other, so that what was cut is
finished by either command. Which step is due can always be told from the pairs and the directory: there is no journal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qmnode.security.key_ring import KeyPair, KeyPurpose, KeyState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqenterprise.keys.settings import KeySettings

Pairs = tuple[KeyPair, ...]


class Step(enum.StrEnum):
    """What is due for a key pair."""

    ROTATE = "rotate"
    """The current pair is older than the settings allow, or there is none."""
    PUBLISH = "publish"
    """A next pair waits for its publication: a rotation or a rollback was begun and not finished."""
    RETIRE = "retire"
    """No message encrypted to it can arrive any more."""
    DESTROY = "destroy"
    """Retired for so long that it is not brought back."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long an old key is waited for."""

    settings: KeySettings
    longest_time_to_reach_queue: float
    """Seconds, as the enterprise has it unless the settings say otherwise."""

    def senders_until(self, pair: KeyPair) -> float | None:
        """Until when a sender may still encrypt to a superseded pair; None while it is not superseded."""
        return pair.needed_until(self.settings.security, self._shown_until, 0.0)

    def needed_until(self, pair: KeyPair) -> float | None:
        """Until when a message encrypted to a superseded pair may arrive; None while it is not superseded."""
        return pair.needed_until(self.settings.security, self._shown_until, self.longest_time_to_reach_queue)

    def destroyed_from(self, pair: KeyPair) -> float | None:
        """When a superseded pair may be destroyed."""
        needed = self.needed_until(pair)
        return None if needed is None else needed + self.settings.destroy_after

    def publishable_from(self, pair: KeyPair) -> float:
        """When every node that has this next pair decrypts with it."""
        staged = pair.created_time if pair.staged_time is None else pair.staged_time
        return staged + self.settings.reload_interval

    @property
    def _shown_until(self) -> float:
        return self.settings.replication_delay + self.settings.offline_cache_age

    def due(self, pair: KeyPair, now: float) -> tuple[Step, float] | None:
        """The next step of a pair and from when on it may be taken; None if there is none."""
        match pair.state:
            case KeyState.NEXT:
                return Step.PUBLISH, self.publishable_from(pair)
            case KeyState.CURRENT if pair.purpose is KeyPurpose.ENCRYPTION:
                published = pair.created_time if pair.published_time is None else pair.published_time
                return Step.ROTATE, published + self.settings.maximum_age
            case KeyState.PREVIOUS:
                return Step.RETIRE, self.needed_until(pair) or now
            case KeyState.RETIRED:
                return Step.DESTROY, self.destroyed_from(pair) or now
        return None


def of(pairs: Iterable[KeyPair], provider: str, purpose: KeyPurpose, *states: KeyState) -> Pairs:
    """The pairs of one provider and purpose, only those in the given states if any are given."""
    return tuple(
        pair
        for pair in pairs
        if (pair.provider, pair.purpose) == (provider, purpose) and (not states or pair.state in states)
    )


def staged(pairs: Pairs, fingerprint: str, now: float) -> Pairs:
    """The pair of that fingerprint becomes its provider's next one; another next one is superseded.

    The directory may have shown that other one, if only for a moment, so it is kept as long as any previous pair.
    """
    chosen = _with_private_key(pairs, fingerprint)
    siblings = of(pairs, chosen.provider, chosen.purpose, KeyState.NEXT)
    return tuple(
        replace(pair, state=KeyState.NEXT, staged_time=_staged_time(pair, now))
        if pair is chosen
        else pair.superseded(now)
        if pair in siblings
        else pair
        for pair in pairs
    )


def _staged_time(pair: KeyPair, now: float) -> float | None:
    """Nodes went on to decrypt with a previous pair; only a retired one they must read again."""
    return now if pair.state is KeyState.RETIRED else pair.staged_time


def settled(pairs: Pairs, fingerprint: str, now: float) -> Pairs:
    """After the directory took that key: it is the current pair, and what was current or next is previous."""
    chosen = _with_private_key(pairs, fingerprint)
    replaced = of(pairs, chosen.provider, chosen.purpose, KeyState.CURRENT, KeyState.NEXT)

    def after(pair: KeyPair) -> KeyPair:
        if pair is chosen:
            if pair.state is KeyState.CURRENT:
                return pair
            return replace(pair, state=KeyState.CURRENT, published_time=now, superseded_time=None)
        return pair.superseded(now) if pair in replaced else pair

    return tuple(after(pair) for pair in pairs)


def before(pairs: Pairs, provider: str, purpose: KeyPurpose) -> KeyPair | None:
    """What a rollback publishes: the newest pair that is older than the published one and can still decrypt."""
    in_use = of(pairs, provider, purpose, KeyState.CURRENT, KeyState.NEXT)
    if not in_use:
        return None
    newest = max(pair.created_time for pair in in_use)
    older = [
        pair
        for pair in of(pairs, provider, purpose, KeyState.CURRENT, KeyState.PREVIOUS, KeyState.RETIRED)
        if pair.private_key is not None and pair.created_time < newest
    ]
    return max(older, key=lambda pair: pair.created_time, default=None)


def is_rollback(pair: KeyPair) -> bool:
    """Whether a next pair is one that was published before."""
    return pair.state is KeyState.NEXT and pair.published_time is not None


def aged(pairs: Pairs, shown: Iterable[str], waiting: Waiting, now: float) -> Pairs:
    """Retire and destroy what is due, except keys that the directory still shows."""
    kept = frozenset(shown)

    def after(pair: KeyPair) -> KeyPair:
        due = waiting.due(pair, now)
        if due is None or due[1] > now or pair.fingerprint in kept:
            return pair
        match due[0]:
            case Step.RETIRE:
                return replace(pair, state=KeyState.RETIRED)
            case Step.DESTROY:
                return pair.destroyed(now)
        return pair

    return tuple(after(pair) for pair in pairs)


def _with_private_key(pairs: Pairs, fingerprint: str) -> KeyPair:
    chosen = next((pair for pair in pairs if pair.fingerprint == fingerprint and pair.private_key is not None), None)
    if chosen is None:
        raise KeyError(fingerprint)
    return chosen
