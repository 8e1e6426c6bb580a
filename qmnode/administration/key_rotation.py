"""Rotations of the node's own keys on behalf of administrators: one at a time, and only as the plan showed it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.security.key_stores import (
    KeyChange,
    KeyRotation,
    RotationAction,
    RotationFailure,
    RotationPlan,
    RotationStage,
)
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.security.message_security import KeyStoreStatus

log = structlog.get_logger(__name__)

PATIENCE: Final = 10.0
"""Seconds until a directory or key store that does not answer counts as unavailable."""
_GRACE: Final = 5.0
"""Seconds that a rotation has to finish when the node stops."""
_NOTHING: Final = {
    RotationAction.ROTATE: "there is no key to replace",
    RotationAction.ROLLBACK: "no earlier key is left that could be published again",
    RotationAction.RETIRE: "no old key is due: the plan says until when each is needed",
}


class KeyReader(Protocol):
    """The port to the reader of the node's private keys."""

    async def read(self) -> KeyStoreStatus:
        """Read them again now."""


@dataclass(frozen=True, slots=True)
class Run:
    """A rotation that was started. Times are seconds since 1970."""

    action: RotationAction
    who: str
    channel: str
    begun: float
    stage: RotationStage = RotationStage.MAKING
    ended: float | None = None
    fault: str | None = None
    """Why it failed, and what to do; None while it is under way and after success."""
    changes: tuple[KeyChange, ...] = ()


class KeyRotations:
    """The rotations of one node."""

    def __init__(
        self,
        keys: KeyRotation,
        reader: KeyReader,
        ended: Callable[[Run], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``ended`` is called with each run when it is over."""
        self.run: Run | None = None
        """The last rotation since the node started."""
        self._keys = keys
        self._reader = reader
        self._ended = ended
        self._clock = clock
        self._starting = False
        self._task: asyncio.Task[None] | None = None
        self._planning: asyncio.Task[RotationPlan] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a rotation is being carried out."""
        return self._task is not None and not self._task.done()

    async def plan(self) -> RotationPlan:
        """Return the steps of each action now. Callers at the same time share one reading of key store and directory.

        Raises :class:`RotationFailure` with the reason when one of the two does not answer.
        """
        if self._planning is None or self._planning.done():
            self._planning = asyncio.create_task(self._keys.plan(), name="plan of a key rotation")
            self._planning.add_done_callback(_retrieved)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(self._planning)
        except TimeoutError:
            raise RotationFailure(
                f"the directory or the key store has not answered for {PATIENCE:.0f} s: see that both are up, then try "
                "again"
            ) from None

    async def start(self, action: RotationAction, version: int, who: str, channel: str) -> Run:
        """Start an action as the plan for this version of the key store showed it.

        Raises MQ_ERROR_SHARING_VIOLATION when another rotation is under way or the keys have changed since the plan,
        and MQ_ERROR_SERVICE_NOT_AVAILABLE when the directory or the key store is unavailable. Nothing has changed then.
        """
        if self._starting or self.is_under_way:
            by = f" by {self.run.who}" if self.run is not None and self.is_under_way else ""
            raise _conflict(f"a rotation of these keys was started{by} and is under way: wait until it is over")
        self._starting = True
        try:
            await self._read()
            plan = await self.plan()
            if plan.version != version:
                raise _conflict(
                    "the keys have changed since this plan was made: look at the new plan, and decide again"
                )
            if not plan.steps[action]:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, _NOTHING[action])
            self.run = run = Run(action, who, channel, self._clock())
            self._task = asyncio.create_task(self._carry_out(run), name="key rotation")
            return run
        except RotationFailure as failure:
            raise _unavailable(failure.sentence) from None
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Let a rotation finish for a moment, then cut it: run again, it does the remaining steps."""
        for task in (self._task, self._planning):
            if task is None:
                continue
            await asyncio.wait([task], timeout=_GRACE)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, RotationFailure):
                await task

    async def _carry_out(self, run: Run) -> None:
        fault: str | None = None
        changes: tuple[KeyChange, ...] = ()
        try:
            changes = await self._keys.carry_out(run.action, run.begun, self._read, self._progress)
            await self._read()
        except RotationFailure as failure:
            fault = failure.sentence
        except asyncio.CancelledError:
            fault = "the node was stopped meanwhile: start it again to do the remaining steps"
            raise
        except Exception:
            log.exception("a rotation of the node's keys failed unexpectedly")
            fault = "it failed unexpectedly: the log of the node says why"
        finally:
            assert self.run is not None
            self.run = replace(self.run, ended=self._clock(), fault=fault, changes=changes)
            self._ended(self.run)

    async def _read(self) -> frozenset[str]:
        status = await self._reader.read()
        if status.fault is not None:
            raise RotationFailure(f"the node cannot read its key store: {status.fault}")
        return frozenset(status.fingerprints)

    def _progress(self, stage: RotationStage) -> None:
        assert self.run is not None
        self.run = replace(self.run, stage=stage)


def _retrieved(task: asyncio.Task[RotationPlan]) -> None:
    """Look at an exception that no caller waits for any more."""
    if not task.cancelled():
        task.exception()


def _unavailable(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, f"{sentence}. No key was changed")


def _conflict(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_SHARING_VIOLATION, sentence)
