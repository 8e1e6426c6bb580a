"""The steps of a rotation, as functions from the key pairs of one node to those after the step. No I/O here.

A new pair starts as *next*. Published in the place of its provider's current pair, it becomes *current*, and the pair
before it *previous*. When no message encrypted to the previous pair can arrive any more, that pair is *retired*, and
later *destroyed*. A rollback makes the pair before the current one *next* again and then goes on like a rotation, so
that either command finishes an interrupted run of the other. No journal is needed: the pairs and the directory
determine which step is due.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mqenterprise.keys.settings import KeySettings

Pairs = tuple[KeyPair, ...]


class Step(enum.StrEnum):
    """The step that is due for a key pair."""

    ROTATE = "rotate"
    """The current pair is older than the settings allow, or there is none."""
    PUBLISH = "publish"
    """A next pair waits for its publication: a rotation or rollback was started and not finished."""
    RETIRE = "retire"
    """No message encrypted to this pair can arrive any more."""
    DESTROY = "destroy"
    """The time in which a retired pair can be brought back has passed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The times that decide how long an old key is still needed."""

    settings: KeySettings
    longest_time_to_reach_queue: float
    """Seconds; the enterprise's value unless the settings override it."""

    def senders_until(self, pair: KeyPair) -> float | None:
        """Return until when a sender may still encrypt to a superseded pair; None while it is not superseded."""
        return pair.needed_until(self.settings.security, self._shown_until, 0.0)

    def needed_until(self, pair: KeyPair) -> float | None:
        """Return until when a message encrypted to a superseded pair may arrive; None while it is not superseded."""
        return pair.needed_until(self.settings.security, self._shown_until, self.longest_time_to_reach_queue)

    def destroyed_from(self, pair: KeyPair) -> float | None:
        """Return the time from which a superseded pair may be destroyed."""
        needed = self.needed_until(pair)
        return None if needed is None else needed + self.settings.destroy_after

    def publishable_from(self, pair: KeyPair) -> float:
        """Return the time by which every reader of the key store decrypts with this next pair."""
        staged = pair.created_time if pair.staged_time is None else pair.staged_time
        return staged + self.settings.reload_interval

    @property
    def _shown_until(self) -> float:
        return self.settings.replication_delay + self.settings.offline_cache_age

    def due(self, pair: KeyPair, now: float) -> tuple[Step, float] | None:
        """Return the next step of a pair and the time from which it may be taken, or None if no step is left."""
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
    """Return the pairs of one provider and purpose, limited to the given states if there are any."""
    return tuple(
        pair
        for pair in pairs
        if (pair.provider, pair.purpose) == (provider, purpose) and (not states or pair.state in states)
    )


def staged(pairs: Pairs, fingerprint: str, now: float) -> Pairs:
    """Make the pair with that fingerprint its provider's next pair; any other next pair is superseded.

    The directory may have shown the other pair for a moment, so that pair is kept as long as a previous pair.
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
    """Return from when nodes can read a pair: now if it was retired; a previous pair they have never dropped."""
    return now if pair.state is KeyState.RETIRED else pair.staged_time


def settled(pairs: Pairs, fingerprint: str, now: float) -> Pairs:
    """Make the pair that the directory now publishes current, and the pairs that were current or next previous."""
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
    """Return the pair that a rollback publishes: the newest before the published one that can still decrypt."""
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
    """Return whether a next pair was published before."""
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
