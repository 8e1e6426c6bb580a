"""An estate on its way from Windows to nodes: the survey's order of moves, and how far the moves are.

Everything is read: the report of `mqenterprise survey`, the plans of `mqenterprise switch`, the carries of the nodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.switching import BACK, FORWARD, Plan
from mqenterprise.survey.report import VERSION
from mqenterprise.survey.run import REPORT
from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_DIRECT: Final = "DIRECT="


class Place(StrEnum):
    """Where a queue is, or a machine with all of its queues."""

    WINDOWS = "windows"
    MOVING = "moving"
    NODE = "node"


class Carried(NamedTuple):
    """A carry into a node, as the node lists it."""

    node: str
    source: str
    """The format name of the queue at its source."""
    messages: int
    held: int


@dataclass(slots=True)
class _Move:
    """The progress of a queue's move."""

    place: Place = Place.WINDOWS
    target: str = ""
    note: str = ""


@dataclass(slots=True)
class Moving:
    """The files of a move."""

    survey: Path
    """The folder that `mqenterprise survey` wrote."""
    plans: Path | None = None
    """The folder of the plans of `mqenterprise switch`."""
    _read: tuple[tuple[int, int], dict[str, Any]] = field(default=((0, 0), {}))

    def report(self) -> dict[str, Any]:
        """The report of the survey; it is read again when its file has changed. Raises :class:`OperationsError`."""
        path = self.survey / REPORT
        try:
            state = path.stat()
            if self._read[0] != (key := (state.st_mtime_ns, state.st_size)):
                report = json.loads(path.read_text("utf-8"))
                if not isinstance(report, dict) or report.get("version") != VERSION:
                    raise ValueError(f"it is of another version than {VERSION}")
                self._read = key, report
        except (OSError, ValueError) as error:
            raise OperationsError(
                f"{path} is no report of a survey: {error}: run mqenterprise survey, or correct --survey"
            ) from None
        return self._read[1]

    def document(self, at_nodes: Mapping[str, bool], carried: Iterable[Carried] | None) -> dict[str, Any]:
        """Each machine with its place, and the survey's order of moves with how far each is.

        ``at_nodes``: the machines of the directory, and whether a node of theirs has answered, be it with a refusal;
        ``carried``: None if the person may not see carries. Raises :class:`OperationsError`.
        """
        report = self.report()
        unread: list[str] = []
        moves = {fold(queue["path"]): _Move() for queue in report["queues"]}
        names = {}
        for machine in report["machines"]:
            names[fold(machine["name"])] = machine["name"]
            for known in (machine["host"], machine["host"].partition(".")[0]):
                names.setdefault(fold(known), machine["name"])
        for one in carried or ():
            if (move := moves.get(fold(_path_of(one.source, names)))) is not None:
                move.place, move.target, move.note = Place.MOVING, one.node, _carry_note(one)
        for plan in self._all_plans(unread):
            if (move := moves.get(fold(plan.queue))) is not None:
                move.place, move.target, move.note = _place(plan), plan.target, _plan_note(plan)
        here = {fold(name) for name, answers in at_nodes.items() if answers}
        for queue in report["queues"]:
            if fold(queue["machine"]) in here:
                moves[fold(queue["path"])] = _Move(Place.NODE, queue["machine"])
        queues: dict[str, list[Mapping[str, Any]]] = {}
        for queue in report["queues"]:
            queues.setdefault(fold(queue["machine"]), []).append(queue)
        machines = [
            _machine(machine, queues.get(fold(machine["name"]), ()), moves, here) for machine in report["machines"]
        ]
        surveyed = {fold(machine["name"]) for machine in report["machines"]}
        machines += [_new(name) for name in at_nodes if fold(name) not in surveyed]
        places = [move.place for move in moves.values()]
        return {
            "taken": report["taken"],
            "queues": {place.value: places.count(place) for place in Place},
            "machines": machines,
            "order": [_step(step, moves) for step in report["order"]],
            "unread": unread,
            "without_carries": carried is None,
        }

    def _all_plans(self, unread: list[str]) -> Iterable[Plan]:
        if self.plans is None:
            return
        if not self.plans.is_dir():
            unread.append(f"{self.plans} is no folder: correct --plans")
        for path in sorted(self.plans.glob("*.switch.json")):
            try:
                yield Plan.read(path)
            except OperationsError as error:
                unread.append(error.sentence)


def _path_of(source: str, names: Mapping[str, str]) -> str:
    """The path name of a queue by the format name of its carrier; empty for another kind of name."""
    if not source.upper().startswith(_DIRECT):
        return ""
    host, _, queue = source[len(_DIRECT) :].partition(":")[2].partition("\\")
    return f"{names.get(fold(host), names.get(fold(host.partition('.')[0]), host))}\\{queue.partition(';')[0]}"


def _place(plan: Plan) -> Place:
    if plan.taken_back:
        return Place.WINDOWS if set(BACK) <= set(plan.done) else Place.MOVING
    if set(FORWARD) <= set(plan.done):
        return Place.NODE
    return Place.MOVING if plan.done else Place.WINDOWS


def _plan_note(plan: Plan) -> str:
    steps = [name for name, _, _ in plan.steps()]
    left = [name for name in steps if name not in plan.done and (name in BACK) == plan.taken_back]
    return f"next: {left[0]}" if left else "taken back" if plan.taken_back else "switched"


def _carry_note(one: Carried) -> str:
    return f"{one.messages:,} messages carried" + (f", {one.held:,} held" if one.held else "")


def _of_all(places: Sequence[Place]) -> Place:
    """The place of several things: on the move, unless all of them are at the same."""
    return places[0] if len(set(places)) == 1 else Place.MOVING if places else Place.WINDOWS


def _machine(
    machine: Mapping[str, Any], mine: Sequence[Mapping[str, Any]], moves: Mapping[str, _Move], here: set[str]
) -> dict[str, Any]:
    places = [moves[fold(queue["path"])].place for queue in mine]
    return {
        "name": machine["name"],
        "site": next(iter(machine["sites"]), ""),
        "place": Place.NODE if fold(machine["name"]) in here else _of_all(places),
        "queues": len(mine),
        "moved": places.count(Place.NODE),
        "messages": sum(queue["messages"] or 0 for queue in mine),
        "reason": machine["reason"],
    }


def _new(name: str) -> dict[str, Any]:
    """A machine of the directory that the survey did not find: made since, so it is a node."""
    return {
        "name": name, "site": "", "place": Place.NODE, "queues": 0, "moved": 0, "messages": 0, "reason": "",
    }  # fmt: skip


def _step(step: Mapping[str, Any], moves: Mapping[str, _Move]) -> dict[str, Any]:
    queues = [(path, moves.get(fold(path), _Move())) for path in step["queues"]]
    return {
        "position": step["position"],
        "what": step["what"],
        "name": step["name"],
        "place": _of_all([move.place for _, move in queues]),
        "queues": [
            {"path": path, "place": move.place, "target": move.target, "note": move.note} for path, move in queues
        ],
        "reasons": list(step["reasons"]),
    }
