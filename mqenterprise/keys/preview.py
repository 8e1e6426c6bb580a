"""Preview what a rotation, rollback or retirement would do to the keys of a node."""

from __future__ import annotations

from mqenterprise.keys import life_cycle
from mqenterprise.keys.life_cycle import Step, Waiting
from mqenterprise.keys.report import rows_of
from mqenterprise.keys.rotation import KeysOfNode, needs_next
from qmnode.security.key_stores import KeyPurpose, KeyState
from qmnode.security.published_keys import usable_providers


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
