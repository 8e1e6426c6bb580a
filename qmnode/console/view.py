"""One person's view of all nodes: asked again when it is old, and shown with its age where a node does not answer."""

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, repeat
from typing import Any, Final

from qmnode.console.port import Answer, Credential, Enterprise, Machine, Node, Outline, RefusedError, UnavailableError
from qmnode.model.api import QueueType

FRESH: Final = 2.0
"""Seconds for which what a node said is taken for true."""
PATIENCE: Final = 1.0
"""Seconds that a request waits for nodes that are asked again. Their answers count when they come."""
_UNAUTHORIZED: Final = 401
_NO_RIGHT: Final = (401, 403)
_MOST_QUEUES: Final = 200_000
"""Queues of one node that are shown."""
_MOST_BRIDGES: Final = 200
_LATEST: Final = 1 << 33
"""Seconds since 1970 that a time is taken for one."""

Columns = dict[str, list[Any]]
_COLUMNS: Final[dict[str, tuple[type, ...]]] = {
    "pathname": (str,),
    "queue_type": (str,),
    "label": (str,),
    "transactional": (bool,),
    "message_count": (int,),
    "total_bytes": (int,),
    "oldest_arrival": (float, type(None)),
    "arrived": (int,),
    "left": (int,),
    "state": (str, type(None)),
}
_ADDED: Final = frozenset({"oldest_arrival"})
"""Columns that earlier releases of the node do not have."""
_KEPT: Final = ("pathname", "queue_type", "label", "transactional")
_NAMES: Final = re.compile(r"[0-9A-Za-z]{1,64}")

_A_WHILE: Final = 60.0
"""Seconds after which it is trouble that messages wait."""
_WANTED: Final = frozenset({"paused", "delayed"})
"""Reasons for waiting that somebody wanted."""
_MOST_REASONS: Final = 20

_SILENT: Final = "it has not answered yet"

JOURNAL: Final = "journal"
DEAD_LETTERS: Final = "dead letters"
"""Kinds of queues beside those of the model: administrators look for them, and other system queues are nobody's."""
_SYSTEM_KINDS: Final = {
    "system$;journal": JOURNAL,
    "system$;deadletter": DEAD_LETTERS,
    "system$;deadxact": DEAD_LETTERS,
}


class LyingError(Exception):
    """An answer that no node gives. The text says what is wrong with it."""


def document_of(answer: Answer) -> dict[str, Any]:
    """The document of a successful answer. LyingError, or RefusedError with the sentence of the node."""
    try:
        document = json.loads(answer.content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise LyingError(f"its answer (HTTP status {answer.status}) is no document of a management API")
    if answer.status == _UNAUTHORIZED:
        raise RefusedError("it does not know your token: add its digest to its management.tokens", answer.status)
    if not 200 <= answer.status < 300:
        sentence = str(document.get("detail", f"it answered with HTTP status {answer.status}"))[:500]
        raise RefusedError(sentence, answer.status)
    return document


@dataclass(slots=True)
class Seen:
    """The last answers of one node."""

    machine: Machine
    node: Node
    destination: Callable[[str], str] = str
    """Where the messages of an outgoing queue go, by names."""
    document: dict[str, Any] = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    rates: tuple[list[float], list[float]] = ([], [])
    """Messages a second that arrived at and left each queue, in the order of the columns."""
    as_of: float | None = None
    """When that was, in seconds since 1970."""
    reason: str = ""
    """Why it did not answer the last time; empty if it did."""
    refuses: bool = False
    """Whether it did answer, and refused the person."""
    is_another: bool = False
    """Whether a queue manager answered that is not the one of the directory."""
    asked: float = 0.0
    late: bool = False
    """Whether it was waited for in vain since it was asked."""
    _names: str = ""
    """The state of the names of its queues: they are sent again when they have another."""
    _kept: Columns = field(default_factory=dict)
    """The columns that a node does not send again as long as they are the same."""
    _texts: tuple[list[str], list[str], list[str], list[str]] | None = None
    _shown: tuple[list[str], list[str], list[str]] | None = None
    task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None] | None:
        """Ask again if what is known is old, unless an answer is awaited already."""
        if (self.task is None or self.task.done()) and time.monotonic() - self.asked >= FRESH:
            self.asked = time.monotonic()
            self.task = asyncio.create_task(self._ask())
        return None if self.task is None or self.task.done() else self.task

    async def answers(self) -> bool:
        """Whether the node answers: asked again if what is known is old, and waited for as long as a request waits."""
        if (task := self.begin()) is not None:
            await asyncio.wait([task], timeout=PATIENCE)
            self.late = not task.done()
        return not self.fault

    @property
    def fault(self) -> str:
        """Why what is known of the node may be old; empty if it is not."""
        if self.reason or not self.late:
            return self.reason
        return f"it has not answered for {max(1, round(time.monotonic() - self.asked))} s"

    async def _ask(self) -> None:
        try:
            await self._learn()
        finally:
            self.late = False

    async def _learn(self) -> None:
        try:
            summary = document_of(await self.node.ask("GET", "/v1/queue-summary", f"node=true&known={self._names}"))
            names = summary.get("names")
            if not isinstance(names, str) or not _NAMES.fullmatch(names):
                raise LyingError("its list of queues has no state of their names: is it another release?")
            if self._names == names:
                summary |= self._kept
            named = _columns(summary)
            columns = _with_journals(named, summary.get("journals"))
            document = summary.get("node")
            if not isinstance(document, dict | None):
                raise LyingError("it describes itself in no document: is it another release?")
            self._identify(summary, document or {})
        except (UnavailableError, LyingError) as error:
            self.reason, self.refuses = str(error), isinstance(error, RefusedError)
            if isinstance(error, RefusedError) and error.status in _NO_RIGHT:
                self.forget()
            return
        self.is_another = self.refuses = False
        self._kept = {name: named[name] for name in _KEPT}
        now = time.time()
        self.rates = _rates(self.columns, columns, now - (self.as_of or now))
        self.document, self.columns, self.as_of, self.reason = document or {}, columns, now, ""
        self._names = names

    def _identify(self, summary: dict[str, Any], document: dict[str, Any]) -> None:
        """Raise LyingError if the queue manager that answers is not the one of the directory."""
        found = summary.get("identifier") or document.get("identifier")
        self.is_another = bool(self.machine.identifier) and found != self.machine.identifier
        if self.is_another:
            name = _text(document.get("computer_name")) or "another queue manager"
            self.forget()
            raise LyingError(
                f"{name} ({_text(found)}) answers at its address, and the directory has {self.machine.identifier}: "
                "correct its address in the file of --nodes, or admit the node again"
            )

    def forget(self) -> None:
        """Forget what the node has shown."""
        self._names, self._kept, self.columns, self.document = "", {}, {}, {}
        self.rates, self.as_of = ([], []), None

    async def identified(self) -> None:
        """Wait until the node has shown which one it is. LyingError for another one, UnavailableError for none."""
        if not self.machine.identifier:
            return
        if (task := self.begin()) is not None:
            await asyncio.wait([task], timeout=PATIENCE)
        if self.is_another:
            raise LyingError(self.reason)
        if self.as_of is None:
            raise (RefusedError(self.reason, 403) if self.refuses else UnavailableError(self.fault or _SILENT))

    def state(self) -> dict[str, Any]:
        """The document of the node in the overview."""
        document = self.document
        warnings = [text for text in _texts(document.get("warnings")) if text]
        if failure := document.get("storage_failure"):
            warnings.insert(0, str(failure))
        warnings += _kept_waiting(document.get("waiting"))
        health = "up"
        if self.refuses:
            health = "unknown"
        elif self.reason:
            health = "down"
        elif self.late or self.as_of is None:
            health = "unknown"
        elif warnings or document.get("online") is False:
            health = "trouble"
        arrived, left = self.rates
        return {
            "machine": self.machine.name,
            "identifier": _text(document.get("identifier")),
            "site": self.machine.site,
            "gate": self.machine.gate,
            "routing_server": self.machine.routing_server,
            "state": health,
            "reason": self.fault or next(iter(warnings), ""),
            "as_of": timestamp(self.as_of),
            "version": _text(document.get("version")),
            "message_count": _number(document.get("message_count")),
            "queue_count": _number(document.get("queue_count")),
            "dead_letter_count": _number(document.get("dead_letter_count")),
            "arrived_rate": round(sum(arrived), 1) if arrived else None,
            "left_rate": round(sum(left), 1) if left else None,
            "warnings": warnings,
            "bridges": _bridges(document.get("bridges")),
        }

    def stale(self) -> dict[str, Any] | None:
        """The entry of a list for a node whose part is old or missing."""
        if not self.fault and self.as_of is not None:
            return None
        return {
            "machine": self.machine.name,
            "reason": self.fault or _SILENT,
            "as_of": timestamp(self.as_of),
            "refused": self.refuses,
        }

    @property
    def destinations(self) -> list[str]:
        """Where the messages of each outgoing queue go, by names; empty for other queues."""
        outgoing = QueueType.OUTGOING.value
        kinds, names = self.columns["queue_type"], self.columns["pathname"]
        if outgoing not in kinds:
            return []
        return [self.destination(name) if kind == outgoing else "" for kind, name in zip(kinds, names, strict=True)]

    @property
    def searched(self) -> list[str]:
        """The text of each queue that a search looks at. It is kept as long as names and labels are the same."""
        names, labels, ends = self.columns["pathname"], self.columns["label"], self.destinations
        if self._texts is None or (names, labels, ends) != self._texts[:3]:
            machine = self.machine.name
            rows = zip(names, labels, self.columns["queue_type"], ends or repeat(""), strict=False)
            self._texts = names, labels, ends, ["\n".join((*row, machine)).casefold() for row in rows]
        return self._texts[3]

    @property
    def shown_names(self) -> list[str]:
        """The name of each queue as lists show it, folded: without what all queues of its machine have in common."""
        names, ends = self.columns["pathname"], self.destinations
        if self._shown is None or self._shown[:2] != (names, ends):
            start = f"{self.machine.name}\\".casefold()
            folded = [name.casefold().removeprefix(start).removeprefix("private$\\") for name in names]
            rows = zip(folded, ends or repeat(""), strict=False)
            self._shown = names, ends, [f"\u2192 {end.casefold()}" if end else name for name, end in rows]
        return self._shown[2]

    def column(self, name: str) -> list[Any]:
        """A column to sort by. Rates that are not known yet count as nothing."""
        if name in ("arrived_rate", "left_rate"):
            rates = self.rates[name == "left_rate"]
            return rates or [0.0] * len(self.columns["pathname"])
        if name == "age":
            return [-math.inf if at is None else -at for at in self.columns["oldest_arrival"]]
        if name == "label":
            return [label.casefold() for label in self.columns["label"]]
        return self.columns[name] if name in _COLUMNS and name != "pathname" else self.shown_names

    def row(self, number: int) -> dict[str, Any]:
        """A queue of the node."""
        arrived, left = self.rates
        row = {name: self.columns[name][number] for name in _COLUMNS if name not in ("arrived", "left")}
        row["oldest_arrival"] = timestamp(row["oldest_arrival"])
        row["machine"], row["site"], row["as_of"] = self.machine.name, self.machine.site, timestamp(self.as_of)
        row["arrived_rate"] = arrived[number] if arrived else None
        row["left_rate"] = left[number] if left else None
        if row["queue_type"] == JOURNAL:  # the node counts what it holds, and not what passes
            row["arrived_rate"] = row["left_rate"] = None
        is_outgoing = row["queue_type"] == QueueType.OUTGOING.value
        row["destination"] = self.destination(row["pathname"]) if is_outgoing else ""
        return row


class View:
    """The nodes of an enterprise, as one person may see them."""

    def __init__(self, enterprise: Enterprise, credential: Credential) -> None:
        self.enterprise = enterprise
        self.credential = credential
        """The proof of the person; another one counts from the next request on."""
        self._seen: dict[str, Seen] = {}
        self.outline = Outline(())

    async def refresh(self, patience: float = PATIENCE) -> list[Seen]:
        """Ask the nodes whose state is old; wait no longer than ``patience`` for their answers."""
        nodes = await self.nodes()
        if asked := {task: one for one in nodes if (task := one.begin()) is not None}:
            _, waiting = await asyncio.wait(asked, timeout=patience)
            for task in waiting:
                asked[task].late = True
        return nodes

    async def nodes(self) -> list[Seen]:
        """All nodes, with what is known of them."""
        self.outline = await self.enterprise.outline()
        known = {machine.name: machine for machine in self.outline.machines}
        for name in self._seen.keys() - known.keys():
            await self._forget(self._seen.pop(name))
        for name, machine in known.items():
            if (seen := self._seen.get(name)) is None:
                node = self.enterprise.node(name, lambda machine: self.credential(machine))
                self._seen[name] = Seen(machine, node, self.enterprise.destination)
            else:
                seen.machine = machine
        return [self._seen[name] for name in sorted(known, key=str.casefold)]

    async def chosen(self, machines: Sequence[str]) -> list[Seen]:
        """The nodes with these names, or with none all. Case does not count, and unknown names are left out."""
        wanted = {name.casefold() for name in machines}
        return [one for one in await self.nodes() if not wanted or one.machine.name.casefold() in wanted]

    def forget(self) -> None:
        """Forget what nodes have shown: the person may have less rights now."""
        for seen in self._seen.values():
            seen.forget()

    async def close(self) -> None:
        """Forget all nodes and close their connections."""
        for seen in self._seen.values():
            await self._forget(seen)
        self._seen.clear()

    async def _forget(self, seen: Seen) -> None:
        if seen.task is not None:
            seen.task.cancel()
        await seen.node.close()


def timestamp(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _columns(document: dict[str, Any]) -> Columns:
    """The columns of a summary. LyingError unless all have values of their types, and the same number of them."""
    columns: Columns = {}
    for name, types in _COLUMNS.items():
        column = document.get(name)
        if column is None and name in _ADDED and isinstance(names := document.get("pathname"), list):
            column = [None] * len(names)
        if not isinstance(column, list) or not set(map(type, column)) <= set(types):
            raise LyingError(f"its list of queues has no column {name}: is it another release?")
        columns[name] = column
    if set(columns["queue_type"]) & {QueueType.SYSTEM.value}:
        columns["queue_type"] = _kinds(columns)
    columns["oldest_arrival"] = [at if at and 0 < at < _LATEST else None for at in columns["oldest_arrival"]]
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or max(lengths) > _MOST_QUEUES:
        raise LyingError("its list of queues has columns of different lengths, or too many queues")
    return columns


def _kinds(columns: Columns) -> list[str]:
    """The kind of each queue: of system queues, which ones administrators look for."""
    return [
        _SYSTEM_KINDS.get(name.partition("\\")[2].casefold(), kind) if kind == QueueType.SYSTEM.value else kind
        for kind, name in zip(columns["queue_type"], columns["pathname"], strict=True)
    ]


def _with_journals(columns: Columns, journals: Any) -> Columns:
    """The columns with the journals of queues at their ends. LyingError for journals of queues that are not there."""
    if not journals:
        return columns
    try:
        rows: list[dict[str, Any]] = [
            {
                "pathname": f"{columns['pathname'][one['queue']]};JOURNAL",
                "label": columns["label"][one["queue"]],
                "transactional": columns["transactional"][one["queue"]],
                "message_count": int(one["message_count"]),
                "total_bytes": int(one["total_bytes"]),
                "oldest_arrival": at if (at := one["oldest_arrival"]) and 0 < at < _LATEST else None,
            }
            for one in journals
        ]
    except (TypeError, KeyError, IndexError, ValueError):
        raise LyingError("its list of journals is not understood: is it another release?") from None
    others: dict[str, Any] = {"queue_type": JOURNAL, "arrived": 0, "left": 0, "state": None}
    return {name: column + [row.get(name, others.get(name)) for row in rows] for name, column in columns.items()}


def _rates(before: Columns, after: Columns, seconds: float) -> tuple[list[float], list[float]]:
    if not before or seconds <= 0:
        return [], []
    names = after["pathname"]
    if before["pathname"] == names:
        past = before
    else:
        places = {name: number for number, name in enumerate(before["pathname"])}
        found = [places.get(name) for name in names]
        past = {kind: [0 if place is None else before[kind][place] for place in found] for kind in ("arrived", "left")}
    # A node that was restarted counts from nothing.
    arrived, left = (
        [
            round((new - old) / seconds, 1) if new > old else 0.0
            for new, old in zip(after[kind], past[kind], strict=True)
        ]
        for kind in ("arrived", "left")
    )
    return arrived, left


def _kept_waiting(value: Any) -> list[str]:
    """Sentences about messages that have waited for a while though nobody wanted that; a few are enough."""
    rows = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    long = time.time() - _A_WHILE
    found = (
        f"{_number(one.get('messages')) or 0} messages wait{f' for {machine}' if machine else ''}: {sentence}"[:500]
        for one in rows
        if (sentence := _text(one.get("sentence")))
        and _text(one.get("reason")) not in _WANTED
        and isinstance(since := one.get("since"), int | float)
        and 0 < since < long
        for machine in (_text(one.get("machine")),)
    )
    return list(islice(found, _MOST_REASONS))


def _texts(value: Any) -> list[str]:
    return [str(one)[:500] for one in value[:20]] if isinstance(value, list) else []


def _bridges(value: Any) -> list[dict[str, Any]]:
    """The bridges of a node, of which only what the console shows."""
    found = [one for one in value[:_MOST_BRIDGES] if isinstance(one, dict)] if isinstance(value, list) else []
    return [
        {name: str(one.get(name, ""))[:500] for name in ("name", "direction", "queue", "peer", "address", "reason")}
        | {"connected": one.get("connected") is True, "since": _seconds(one.get("since"))}
        | {name: _number(one.get(name)) for name in ("carried", "repeated", "rejected", "failures")}
        for one in found
    ]


def _seconds(value: Any) -> str | None:
    return timestamp(value) if isinstance(value, int | float) and 0 < value < _LATEST else None


def _text(value: Any) -> str | None:
    return value[:100] if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


Ends = frozenset[str]


def link_states(
    enterprise: Enterprise, links: Sequence[Mapping[str, Any]], nodes: Sequence[Seen], states: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The links with their states. ``states`` are the documents of the nodes."""
    traffic = _traffic(enterprise, nodes)
    of_machine = {state["machine"]: state for state in states}
    seen = {state["site"] for state in states if state["as_of"] is not None}
    return [
        dict(link)
        | _health([of_machine[gate] for gate in link["gates"] if gate in of_machine], link)
        | _numbers(traffic.get(frozenset((link["first"], link["second"])), (0, 0.0)), seen, link)
        for link in links
    ]


def _traffic(enterprise: Enterprise, nodes: Sequence[Seen]) -> dict[Ends, tuple[int, float]]:
    """Messages that wait to cross each link, and those that crossed it a second, by the ends of the link."""
    found: dict[Ends, tuple[int, float]] = {}
    for seen in nodes:
        kinds = seen.columns.get("queue_type", [])
        if QueueType.OUTGOING.value not in kinds:
            continue
        counts, names, left = seen.columns["message_count"], seen.columns["pathname"], seen.rates[1]
        for number, kind in enumerate(kinds):
            if kind != QueueType.OUTGOING.value:
                continue
            rate = left[number] if left else 0.0
            if not counts[number] and not rate:
                continue
            ends = enterprise.crossing(seen.machine.name, names[number])
            if ends is not None:
                waiting, crossed = found.get(frozenset(ends), (0, 0.0))
                found[frozenset(ends)] = waiting + counts[number], crossed + rate
    return found


def _numbers(traffic: tuple[int, float], seen: set[str], link: Mapping[str, Any]) -> dict[str, Any]:
    """Unknown as long as no node at either end of the link has ever answered."""
    if not seen & {link["first"], link["second"]}:
        return {"rate": None, "waiting": None}
    return {"rate": round(traffic[1], 1), "waiting": traffic[0]}


def _health(gates: Sequence[Mapping[str, Any]], link: Mapping[str, Any]) -> dict[str, Any]:
    """A link works as long as each site that has gates on it has one that is up."""
    down, unknown = [], []
    for site in (link["first"], link["second"]):
        of_site = [gate for gate in gates if gate["site"] == site]
        names = ", ".join(gate["machine"] for gate in of_site)
        states = {gate["state"] for gate in of_site}
        if states == {"down"}:
            down.append(f"no gate of {site} answers: {names}")
        elif states and states <= {"down", "unknown"}:
            unknown.append(f"no gate of {site} has answered lately: {names}")
    if down or unknown:
        return {"state": "down" if down else "unknown", "reason": "; ".join(down or unknown)}
    if any(gate["state"] in ("down", "trouble") for gate in gates):
        return {"state": "trouble", "reason": "a gate of it is down or in trouble"}
    return {"state": "up", "reason": ""}
