"""Rotation of the node's own keys: its plan, its start and its progress. Off unless the settings permit it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field

from qmnode.administration.key_rotation import Run
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import Document, time_or_none
from qmnode.management.large_requests import InSteps
from qmnode.management.problems import about
from qmnode.management.request_context import Context, Node, caller_of, note, require_administer
from qmnode.security.key_stores import (
    KeyPurpose,
    KeyState,
    PlannedStep,
    RotationAction,
    RotationFailure,
    RotationPlan,
    RotationStage,
    StepKind,
)
from qmnode.structures.error_codes import ErrorCode

router = APIRouter(route_class=InSteps)

_WHAT: Final = "the rotation of keys"
_FORBIDDEN: Final = (
    "this node permits no rotation of its keys through the management API: set management.key_rotation.enabled in its "
    "settings and restart it, or run 'mqenterprise keys rotate' on its host"
)


class RunState(StrEnum):
    """How a rotation is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class StepDocument(Document):
    """One step of a plan. Times are those if it is carried out now."""

    kind: StepKind = Field(
        description="`make` a key; `publish` it in the directory; `keep` a replaced key, which goes on decrypting; "
        "`retire` a key, which then no longer decrypts; `destroy` its private half for good"
    )
    purpose: KeyPurpose
    provider: str = Field(description="The cryptographic service provider")
    length: int = Field(description="Bits of its modulus")
    fingerprint: str | None = Field(description="Null for a key that is not made yet")
    senders_until: datetime | None = Field(description="Until when a sender may still encrypt to a replaced key")
    needed_until: datetime | None = Field(description="Until when a message to a replaced key may arrive")

    @classmethod
    def of(cls, step: PlannedStep) -> Self:
        """Make the document from a step."""
        return cls.from_attributes(
            step,
            senders_until=time_or_none(step.senders_until or 0.0),
            needed_until=time_or_none(step.needed_until or 0.0),
        )


class ChangeDocument(Document):
    """A key that a rotation has changed."""

    fingerprint: str
    purpose: KeyPurpose
    state: KeyState


class RunDocument(Document):
    """A rotation that was started."""

    action: RotationAction
    who: str = Field(description="Who started it", examples=["alice"])
    state: RunState
    stage: RotationStage = Field(description="How far it is, or was")
    begun: datetime | None
    ended: datetime | None
    fault: str | None = Field(description="Why it failed, and what to do")
    changes: list[ChangeDocument] = Field(description="The keys that it changed, with their states since")

    @classmethod
    def of(cls, run: Run) -> Self:
        """Make the document from a run."""
        state = RunState.RUNNING if run.ended is None else RunState.DONE if run.fault is None else RunState.FAILED
        return cls.from_attributes(
            run,
            state=state,
            begun=time_or_none(run.begun),
            ended=time_or_none(run.ended or 0.0),
            changes=[ChangeDocument.from_attributes(change) for change in run.changes],
        )


class PlanDocument(Document):
    """The steps of each action on the keys now."""

    version: int = Field(description="Of the key store's contents: the start of an action names it")
    rotate: list[StepDocument]
    rollback: list[StepDocument]
    retire: list[StepDocument]

    @classmethod
    def of(cls, plan: RotationPlan) -> Self:
        """Make the document from a plan."""
        return cls(version=plan.version, **_steps(plan.steps))


class Rotation(Document):
    """Whether keys can be rotated here, what that would do, and the last rotation."""

    permitted: bool = Field(description="Whether the settings permit it (`management.key_rotation.enabled`)")
    plan: PlanDocument | None = Field(description="Null where it is not permitted, under way, or cannot be made")
    fault: str | None = Field(description="Why no plan can be made, and what to do")
    run: RunDocument | None = Field(description="The last one since the node started")


class Start(Document):
    """An action on the keys of the node."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"action": "rotate", "version": 3}})

    action: RotationAction = Field(
        description="`rotate`: make keys and publish them; `rollback`: publish the keys before the present ones again; "
        "`retire`: retire and destroy old keys that are due"
    )
    version: int = Field(ge=0, description="Of the plan that was looked at")


@router.get("/v1/keys/rotation", **about("node", "What a rotation of the keys would do"))
async def show_key_rotation(request: Request, node: Node) -> Rotation:
    """The plan, read from the key store and the directory, or the progress of a rotation. For the role `administer`."""
    _require(request, node)
    rotations = node.rotations
    if rotations is None:
        return Rotation(permitted=False, plan=None, fault=_FORBIDDEN, run=None)
    plan, fault = None, None
    if not rotations.is_under_way:
        try:
            plan = PlanDocument.of(await rotations.plan())
        except RotationFailure as failure:
            fault = failure.sentence
    run = rotations.run
    return Rotation(permitted=True, plan=plan, fault=fault, run=None if run is None else RunDocument.of(run))


@router.post("/v1/keys/rotation", status_code=202, **about("node", "Rotate the keys of the node", 409))
async def start_key_rotation(wanted: Start, request: Request, node: Node) -> RunDocument:
    """Start what a plan has shown. For the role `administer`, where ``management.key_rotation.enabled`` permits it.

    It goes on in the node. The new key is published after the node has read it, and old keys go on decrypting. The
    audit log has an entry when it starts and one when it ends.
    """
    note(request, action=wanted.action.value)
    _require(request, node)
    if node.rotations is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, _FORBIDDEN)
    caller = caller_of(request)
    run = await node.rotations.start(wanted.action, wanted.version, caller.name, caller.channel)
    return RunDocument.of(run)


def _require(request: Request, node: Context) -> None:
    require_administer(request, _WHAT)
    node.require("rotate_keys")


def _steps(steps: Mapping[RotationAction, Iterable[PlannedStep]]) -> dict[str, list[StepDocument]]:
    return {action.value: [StepDocument.of(step) for step in steps[action]] for action in RotationAction}
