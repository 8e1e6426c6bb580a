"""The rotation of a node's keys by the node itself, for its management API: the steps of ``mqenterprise keys``.

The difference is the waiting: the command waits until every node has read a new key, the node reads its key store at
once and publishes what it has read.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.directory.chosen_directory import load_settings, settings_from
from mqenterprise.directory.errors import AccessRefused
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.keys import life_cycle
from mqenterprise.keys.fleet import store_of
from mqenterprise.keys.life_cycle import Step, Waiting
from mqenterprise.keys.publication import Publication
from mqenterprise.keys.rotation import ATTEMPTS, KeysOfNode, Rotation, needs_next
from mqenterprise.keys.settings import KeyRotationError, KeySettings
from qmnode.directory.port import DirectoryOperationError
from qmnode.security.errors import KeyStoreError, LegacyUnavailableError, WeakAlgorithmError
from qmnode.security.key_stores import (
    KeyChange,
    KeyPair,
    KeyPurpose,
    KeyRotationOptions,
    KeyState,
    PlannedStep,
    RotationAction,
    RotationFailure,
    RotationPlan,
    RotationStage,
    StepKind,
)
from qmnode.security.published_keys import usable_providers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from mqenterprise.directory.settings import DirectorySettings

_IN_USE: Final = (KeyState.NEXT, KeyState.CURRENT)


class OwnKeys:
    """The keys of one node: a :class:`qmnode.security.key_stores.KeyRotation`.

    It connects to the directory for each call, so that it keeps no connection and no password while nothing is rotated.
    """

    def __init__(
        self,
        options: KeyRotationOptions,
        directory: Mapping[str, Any],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``directory`` are the settings of the node's own directory: ``file``, or ``directory``."""
        self._options = options
        self._directory_of_node = directory
        self._clock = clock

    async def plan(self) -> RotationPlan:
        """Return what each action would do now."""
        with _explained():
            async with self._opened() as (rotation, waiting):
                keys = await rotation.look()
        now = self._clock()
        return RotationPlan(
            keys.version,
            {
                RotationAction.ROTATE: tuple(_to_rotate(keys, waiting, now)),
                RotationAction.ROLLBACK: tuple(_to_roll_back(keys, waiting, now)),
                RotationAction.RETIRE: tuple(_to_retire(keys, waiting, now)),
            },
        )

    async def carry_out(
        self,
        action: RotationAction,
        begun: float,
        read: Callable[[], Awaitable[frozenset[str]]],
        progress: Callable[[RotationStage], None],
    ) -> tuple[KeyChange, ...]:
        """Carry out an action and return the keys that it changed."""
        with _explained():
            async with self._opened() as (rotation, _):
                before = _states((await rotation.look()).pairs)  # the directory answers before a key is made
                with _resumable(action):
                    match action:
                        case RotationAction.ROTATE:
                            await rotation.prepare(begun)
                            await _publish(rotation, read, progress)
                        case RotationAction.ROLLBACK:
                            await rotation.roll_back()
                            await _publish(rotation, read, progress)
                        case RotationAction.RETIRE:
                            await rotation.retire()
                after = _states((await rotation.look()).pairs)
        return tuple(change for change in after if change not in before)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Rotation, Waiting]]:
        options = self._options
        directory = await asyncio.to_thread(EnterpriseDirectory, self._settings())
        try:
            publication = Publication(directory)
            node = await asyncio.to_thread(publication.node, options.identifier(), options.computer_name)
            enterprise = await asyncio.to_thread(publication.longest_time_to_reach_queue)
            given = options.settings
            settings = KeySettings(
                directory=str(options.data),
                security=options.security,
                modulus_length=given.modulus_length,
                reload_interval=options.security.key_reload_interval,
                replication_delay=given.replication_delay,
                offline_cache_age=given.offline_cache_age,
                destroy_after=given.destroy_after,
                maximum_age=given.maximum_age,
            )
            waiting = Waiting(settings, max(float(options.security.longest_time_to_reach_queue), enterprise))
            yield Rotation(node, store_of(node, settings), publication, waiting, self._clock), waiting
        finally:
            await asyncio.to_thread(directory.close)

    def _settings(self) -> DirectorySettings:
        own = self._directory_of_node
        file = self._options.settings.directory or own.get("file")
        return load_settings(Path(file)) if file is not None else settings_from(own.get("directory", {}))


async def _publish(
    rotation: Rotation, read: Callable[[], Awaitable[frozenset[str]]], progress: Callable[[RotationStage], None]
) -> None:
    """Publish the next keys, each after the node has read it."""
    for _ in range(ATTEMPTS):
        progress(RotationStage.READING)
        known = await read()
        progress(RotationStage.PUBLISHING)
        if await rotation.publish(known) is None:
            return
    raise KeyRotationError(
        "the new key is made and not published, because the node did not find it in its key store: see the log of the "
        "node, then rotate again, which goes on with this key"
    )


@contextmanager
def _explained() -> Iterator[None]:
    """Turn each error of a rotation into one with its sentence."""
    try:
        yield
    except (KeyRotationError, DirectoryOperationError) as error:
        raise RotationFailure(error.sentence) from None
    except (KeyStoreError, WeakAlgorithmError, LegacyUnavailableError) as error:
        raise RotationFailure(str(error)) from None


@contextmanager
def _resumable(action: RotationAction) -> Iterator[None]:
    """Add to an error after the first step that the same action goes on where it stopped."""
    try:
        yield
    except AccessRefused as error:
        raise KeyRotationError(
            f"{error.sentence}. Old keys still decrypt. Name an account that may publish the keys of this node in "
            f"management.key_rotation.directory, then start {action.value} again: it does the remaining steps"
        ) from None
    except DirectoryOperationError as error:
        raise KeyRotationError(
            f"{error.sentence}. Old keys still decrypt. When the directory answers, start {action.value} again: it "
            "does the remaining steps"
        ) from None


def _states(pairs: life_cycle.Pairs) -> frozenset[KeyChange]:
    return frozenset(KeyChange(pair.fingerprint, pair.purpose, pair.state) for pair in pairs)


def _to_rotate(keys: KeysOfNode, waiting: Waiting, now: float) -> Iterator[PlannedStep]:
    for provider in usable_providers(waiting.settings.security):
        for purpose in KeyPurpose:
            of_it = life_cycle.of(keys.pairs, provider.name, purpose, *_IN_USE)
            if needs_next(keys.pairs, provider, purpose, now):
                length = waiting.settings.modulus_length or provider.default_modulus_length
                yield PlannedStep(kind=StepKind.MAKE, provider=provider.name, purpose=purpose, length=length)
                yield PlannedStep(kind=StepKind.PUBLISH, provider=provider.name, purpose=purpose, length=length)
                yield from (_kept(pair, waiting, now) for pair in of_it)
    yield from _to_publish(keys, waiting, now)


def _to_publish(keys: KeysOfNode, waiting: Waiting, now: float) -> Iterator[PlannedStep]:
    """Keys whose publication was begun, or in whose place the directory shows another."""
    for pair in keys.pairs:
        if pair.state is KeyState.NEXT:
            yield _step(StepKind.PUBLISH, pair)
            replaced = life_cycle.of(keys.pairs, pair.provider, pair.purpose, KeyState.CURRENT)
            yield from (_kept(each, waiting, now) for each in replaced)
        elif pair.state is KeyState.CURRENT and pair.fingerprint not in keys.shown:
            yield _step(StepKind.PUBLISH, pair)


def _to_roll_back(keys: KeysOfNode, waiting: Waiting, now: float) -> Iterator[PlannedStep]:
    for provider in sorted({pair.provider for pair in keys.pairs}):
        in_use = life_cycle.of(keys.pairs, provider, KeyPurpose.ENCRYPTION, *_IN_USE)
        underway = next(filter(life_cycle.is_rollback, in_use), None)
        target = underway or life_cycle.before(keys.pairs, provider, KeyPurpose.ENCRYPTION)
        if target is not None:
            yield _step(StepKind.PUBLISH, target)
            yield from (_kept(pair, waiting, now) for pair in in_use if pair is not target)


def _to_retire(keys: KeysOfNode, waiting: Waiting, now: float) -> Iterator[PlannedStep]:
    kinds = {Step.RETIRE: StepKind.RETIRE, Step.DESTROY: StepKind.DESTROY}
    for pair in keys.pairs:
        due = waiting.due(pair, now)
        if due is not None and due[0] in kinds and due[1] <= now and pair.fingerprint not in keys.shown:
            yield _step(kinds[due[0]], pair)


def _kept(pair: KeyPair, waiting: Waiting, now: float) -> PlannedStep:
    """A key that is replaced now."""
    replaced = pair.superseded(now)
    if pair.purpose is not KeyPurpose.ENCRYPTION:
        return _step(StepKind.KEEP, pair)
    return _step(StepKind.KEEP, pair, waiting.senders_until(replaced), waiting.needed_until(replaced))


def _step(
    kind: StepKind, pair: KeyPair, senders_until: float | None = None, needed_until: float | None = None
) -> PlannedStep:
    return PlannedStep(
        kind=kind,
        provider=pair.provider,
        purpose=pair.purpose,
        length=pair.modulus_length,
        fingerprint=pair.fingerprint,
        senders_until=senders_until,
        needed_until=needed_until,
    )
