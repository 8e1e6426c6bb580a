"""The report on keys: one row for each pair, with the step that is due; and what a rotation would do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.keys import life_cycle
from mqenterprise.keys.life_cycle import Step, Waiting
from mqenterprise.keys.rotation import KeysOfNode, needs_next
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState
from qmnode.security.published_keys import usable_providers
from qmnode.security.rsa_keys import PROVIDER_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS: Final = {
    "node": "node",
    "key": "key",
    "fingerprint": "fingerprint",
    "state": "state",
    "age": "age",
    "senders": "may send",
    "due": "due",
}
"""The columns of the table for people, which fits 100 characters. The rows hold more for programs."""
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table: related values share a column, and times are shortened to days."""
    provider = PROVIDER_BY_NAME.get(row["provider"])
    kind = provider.privacy_level.name.lower() if provider is not None else row["provider"]
    purpose = "" if row["purpose"] == KeyPurpose.ENCRYPTION.value else f" {row['purpose']}"
    until = row.get("senders_until")
    due = " ".join(part for part in (row["due"], (row.get("due_from") or "")[:10]) if part)
    return {
        **row,
        "key": f"{kind} {row.get('length', '')}{purpose}".strip(),
        "fingerprint": (row.get("fingerprint") or "").removeprefix("SHA256:")[:12],
        "senders": f"until {until[:10]}" if until else (row.get("senders") or "").partition(";")[0],
        "due": due or None,
    }


def rows_of(keys: KeysOfNode, waiting: Waiting, now: float, *, destroyed: bool = False) -> Iterator[dict[str, Any]]:
    """Return the rows of a node. Destroyed pairs are included only on request."""
    for provider in usable_providers(waiting.settings.security):
        if not life_cycle.of(keys.pairs, provider.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, KeyState.NEXT):
            yield {
                "node": keys.node.computer_name,
                "purpose": KeyPurpose.ENCRYPTION.value,
                "provider": provider.name,
                "due": Step.ROTATE.value,
                "is_due": True,
            }
    for pair in sorted(keys.pairs, key=lambda each: (each.provider, each.purpose, -each.created_time)):
        if destroyed or pair.state is not KeyState.DESTROYED:
            yield _row(keys, pair, waiting, now)


def _row(keys: KeysOfNode, pair: KeyPair, waiting: Waiting, now: float) -> dict[str, Any]:
    shown = pair.fingerprint in keys.shown
    # The directory and the store disagree: a publication was interrupted, or someone else wrote.
    misplaced = shown is not (pair.state is KeyState.CURRENT) and pair.state is not KeyState.NEXT
    step, time = (Step.PUBLISH, now) if misplaced else (waiting.due(pair, now) or (None, None))
    return {
        "node": keys.node.computer_name,
        "purpose": pair.purpose.value,
        "provider": pair.provider,
        "algorithm": "RSA",
        "length": pair.modulus_length,
        "fingerprint": pair.fingerprint,
        "state": pair.state.value,
        "shown": shown,
        "age": _span(now - pair.created_time),
        "age_seconds": round(now - pair.created_time),
        "senders": _senders(pair, waiting, now),
        "senders_until": _date(waiting.senders_until(pair)),
        "needed_until": _date(waiting.needed_until(pair)),
        "due": None if step is None else step.value,
        "due_from": _date(time),
        "is_due": time is not None and time <= now,
    }


def _senders(pair: KeyPair, waiting: Waiting, now: float) -> str | None:
    """Describe the senders that may still use a key."""
    if pair.purpose is not KeyPurpose.ENCRYPTION:
        return None
    match pair.state:
        case KeyState.NEXT:
            return "nobody yet"
        case KeyState.CURRENT:
            return "everyone"
        case KeyState.PREVIOUS:
            until = waiting.senders_until(pair)
            if until is not None and now < until:
                return f"who has not read the directory again, until {_date(until)}"
            return "nobody; messages may be under way"
    return "nobody"


def _date(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _span(seconds: float) -> str:
    return next((f"{seconds / size:.0f} {unit}" for size, unit in _UNITS if seconds >= 2 * size), f"{seconds:.0f} s")


def to_rotate(keys: KeysOfNode, waiting: Waiting, now: float, begun: float) -> list[str]:
    """Return one sentence for each action of ``Fleet.rotate``."""
    made = [
        f"a new {provider.name} {purpose.value} key"
        for provider in usable_providers(waiting.settings.security)
        for purpose in KeyPurpose
        if needs_next(keys.pairs, provider, purpose, begun)
    ]
    return made + to_publish(keys, waiting, now)


def to_publish(keys: KeysOfNode, waiting: Waiting, now: float) -> list[str]:
    """Return one sentence for each key whose publication was started, or that the directory wrongly shows."""
    rows = (row for row in rows_of(keys, waiting, now) if row["due"] == Step.PUBLISH.value)
    return [f"{row['provider']} {row['purpose']} key {row['fingerprint']}: publish" for row in rows]


def to_roll_back(keys: KeysOfNode, waiting: Waiting, now: float, begun: float) -> list[str]:
    """Return one sentence for each key that ``Fleet.roll_back`` would publish; keys published since ``begun`` stay."""
    found = []
    for provider in sorted({pair.provider for pair in keys.pairs}):
        current = life_cycle.of(keys.pairs, provider, KeyPurpose.ENCRYPTION, KeyState.CURRENT)
        underway = any(map(life_cycle.is_rollback, life_cycle.of(keys.pairs, provider, KeyPurpose.ENCRYPTION)))
        target = life_cycle.before(keys.pairs, provider, KeyPurpose.ENCRYPTION)
        if underway or any((pair.published_time or 0.0) >= begun for pair in current):
            continue
        if target is not None:
            found.append(f"{provider} encryption key {target.fingerprint}: publish again")
    return found + to_publish(keys, waiting, now)


def to_retire(keys: KeysOfNode, waiting: Waiting, now: float) -> list[str]:
    """Return one sentence for each key that ``Fleet.retire`` would retire or destroy."""
    steps_of_retirement = (Step.RETIRE.value, Step.DESTROY.value)
    rows = (row for row in rows_of(keys, waiting, now) if row["due"] in steps_of_retirement and row["is_due"])
    return [f"{row['provider']} {row['purpose']} key {row['fingerprint']}: {row['due']}" for row in rows]
