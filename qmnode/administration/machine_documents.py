"""The document of a machine: what the directory does not hold, as it is wanted, and how the node makes it true.

A document has the private queues of one machine, its addresses and its bridges
(:mod:`qmnode.administration.local_settings`). Properties that it omits have their defaults; ``access`` and ``owner``
are left alone when they are omitted. Queues that a document made carry a mark (``declared``); no others are deleted.
Applying a document again changes nothing, so it may be stopped and run again at any point.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from qmnode.administration.access_control import TRUSTEES, check_denied, owner_of, trustee
from qmnode.administration.document_faults import LONGEST_SHOWN, DocumentFault, DocumentPath, check_key, in_short
from qmnode.administration.local_settings import SECTIONS, LocalSettings, read_local
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.model.queue_collection import NAMES_OF_NODES
from qmnode.objects.rows import QUOTA, Changes, Property, is_none
from qmnode.objects.table import DECLARED, PRIVATE_QUEUE, QUEUE
from qmnode.settings.node import NodeSettings
from qmnode.settings.sizes import quota_value
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.names import LOCAL_COMPUTER, NO_QUEUE, PathName, QueueNameError
from qmnode.structures.security_descriptor import (
    QUEUE_RIGHTS,
    UNIX_USERS,
    AccessEntry,
    AceType,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
    names_of_rights,
)
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from qmnode.administration.asker import Asker
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

MOST_QUEUES: Final = 20_000
MOST_ENTRIES: Final = 800
"""Entries of one access list, and rights in one entry."""
_KEYS: Final = ("name", *PRIVATE_QUEUE, "access", "owner")
_ENTRY_KEYS: Final = ("to", "allow", "deny")
_NAMELESS: Final = re.compile(r"0x[0-9a-f]{1,8}", re.IGNORECASE | re.ASCII)
"""Rights without a name, as the document of a node shows them."""
_LISTS_KEPT: Final = 1_024
"""Security descriptors whose access lists are remembered: many queues have the same."""
Access = tuple[tuple["Sid", bool, int], ...]
"""The entries of an access list: whose, whether they deny, and the rights. Denials come first."""


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """A private queue as a document wants it."""

    name: str
    properties: Mapping[str, Any]
    """Values of the model, of every property."""
    access: Access | None
    owner: Sid | None


def read_document(plain: object) -> list[WantedQueue]:
    """The queues of a document. Raises :class:`DocumentFault` for the first mistake, also in other sections."""
    queues = list(read_queues(plain))
    read_local(plain)
    return queues


def read_queues(plain: object) -> Iterator[WantedQueue]:
    """The queues of a document one by one, as :func:`read_document`: a node serves others between them."""
    if not isinstance(plain, Mapping):
        raise DocumentFault((), "expected names with values, such as queues: [{name: orders}]")
    for key in plain:
        if key not in SECTIONS and (setting := _setting(key)):
            raise DocumentFault((key,), f"documents do not have it: set {setting} in node.yaml")
        check_key((), key, ("queues", *SECTIONS))
    listed = plain.get("queues") or ()
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise DocumentFault(("queues",), "expected a list of queues")
    if len(listed) > MOST_QUEUES:
        raise DocumentFault(("queues",), f"at most {MOST_QUEUES}, and these are {len(listed)}")
    found: dict[str, int] = {}
    for number, one in enumerate(listed):
        queue = _queue(("queues", number), one)
        first = found.setdefault(queue.name.upper(), number)
        if first != number:
            raise DocumentFault(("queues", number, "name"), f"{queue.name!r} is there already, as queues[{first}]")
        yield queue


def _setting(key: object) -> str:
    """The setting of ``node.yaml`` with this name, empty if there is none."""
    if key == "remote_copy":
        return "storage.remote_copy (or declare remote_copy of the machine for rollout.yml)"
    return key if isinstance(key, str) and key in NodeSettings.model_fields else ""


def _queue(place: DocumentPath, plain: object) -> WantedQueue:
    if not isinstance(plain, Mapping):
        raise DocumentFault(place, "expected a queue, such as {name: orders}")
    for key in plain:
        row = QUEUE.called(key) if isinstance(key, str) else None
        if row is not None and row.public:
            raise DocumentFault((*place, str(key)), "only public queues have it, and the directory holds these")
        if row is not None and row.name in PRIVATE_QUEUE and key != row.name:
            raise DocumentFault((*place, str(key)), f"its name is {row.name}")
        check_key(place, key, _KEYS)
    if "name" not in plain:
        raise DocumentFault(place, "a queue needs its name")
    access, owner = plain.get("access"), plain.get("owner")
    return WantedQueue(
        name=_name((*place, "name"), plain["name"]),
        properties={
            name: _value((*place, name), row, plain[name]) if name in plain else row.default
            for name, row in PRIVATE_QUEUE.items()
        },
        access=None if access is None else _access((*place, "access"), access),
        owner=None if owner is None else _account((*place, "owner"), owner, owner=True),
    )


def _name(place: DocumentPath, name: object) -> str:
    if not isinstance(name, str):
        raise DocumentFault(place, f"{in_short(name)} is no text")
    if name.lower().startswith(("private$\\", ".\\private$\\")):
        raise DocumentFault(place, f"all are private queues: write {in_short(name.rpartition(chr(92))[2])}")
    if ";" in name:
        raise DocumentFault(
            place, f"{in_short(name)} has a subqueue, which comes with its first message: name the queue alone"
        )
    try:
        path = PathName.parse(f".\\private$\\{name}")
    except QueueNameError as error:
        raise DocumentFault(place, error.sentence) from None
    if path.queue != name:
        raise DocumentFault(place, f"{in_short(name)} is no name of a queue")
    if name == LOCAL_COMPUTER:
        raise DocumentFault(place, NO_QUEUE)
    if name.upper() in NAMES_OF_NODES:
        raise DocumentFault(place, f"{name} is a queue that every node has for itself: take another name")
    return name


def _value(place: DocumentPath, row: Property, written: object) -> Any:
    form = row.form
    try:
        if form.nullable and is_none(written):
            written = None
        elif form is QUOTA:
            written = quota_value(written)
        expected = (form.type,) if not form.nullable else (form.type, type(None))
        is_strange = isinstance(written, int) and form.type is int and (isinstance(written, bool) or written > 2**64)
        if not isinstance(written, expected) or is_strange:
            raise ValueError(f"expected {_words(row)}")
        if form.choices and written not in form.choices:
            near = nearest(str(written)[:LONGEST_SHOWN], form.choices)
            raise ValueError(f"did you mean {near}?" if near else f"expected one of {', '.join(form.choices)}")
        value = form.read(written)
    except (ValueError, KeyError) as error:
        sentence, shown = str(error), in_short(written)
        raise DocumentFault(place, sentence if shown in sentence else f"{shown}: {sentence}") from None
    fault = row.fault(value, public=False)
    if fault:
        raise DocumentFault(place, fault.partition("=")[2])
    return value


def _words(row: Property) -> str:
    return f"one of {', '.join(row.form.choices)}" if row.form.choices else row.form.words


def _account(place: DocumentPath, who: object, *, owner: bool = False) -> Sid:
    if not isinstance(who, str) or not who:
        raise DocumentFault(
            place, f"{in_short(who)} names nobody: write user:alice, group:ops, everyone or S-1-5-21-..."
        )
    try:
        return owner_of(who) if owner else trustee(who)
    except MessageQueuingError as error:
        raise DocumentFault(place, error.sentence) from None


def _access(place: DocumentPath, entries: object) -> Access:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise DocumentFault(place, "expected a list of entries, such as {to: everyone, allow: [send]}")
    if len(entries) > MOST_ENTRIES:
        raise DocumentFault(place, f"at most {MOST_ENTRIES} entries, and these are {len(entries)}")
    masks: dict[tuple[Sid, bool], int] = {}
    for number, entry in enumerate(entries):
        where = (*place, number)
        if not isinstance(entry, Mapping):
            raise DocumentFault(where, "expected an entry, such as {to: everyone, allow: [send]}")
        for key in entry:
            check_key(where, key, _ENTRY_KEYS)
        who = _account((*where, "to"), entry.get("to"))
        if "allow" not in entry and "deny" not in entry:
            raise DocumentFault(where, "neither allows nor denies anything: give allow or deny")
        for verb in ("allow", "deny"):
            rights = entry.get(verb) or ()
            if isinstance(rights, str) or not isinstance(rights, Sequence):
                raise DocumentFault((*where, verb), "expected a list of rights")
            if len(rights) > MOST_ENTRIES:
                raise DocumentFault((*where, verb), f"at most {MOST_ENTRIES} rights, and these are {len(rights)}")
            for right in rights:
                key = who, verb == "deny"
                masks[key] = masks.get(key, 0) | _right((*where, verb), right)
    return _ordered((who, denied, mask) for (who, denied), mask in masks.items())


def _right(place: DocumentPath, right: object) -> int:
    if isinstance(right, str) and _NAMELESS.fullmatch(right):
        return int(right, 16)
    check_key(place, right, QUEUE_RIGHTS)
    return int(QUEUE_RIGHTS[str(right)])


def _ordered(entries: Iterable[tuple[Sid, bool, int]]) -> Access:
    return tuple(sorted(entries, key=lambda entry: (not entry[1], str(entry[0]))))


# Queues as they are


@lru_cache(_LISTS_KEPT)
def _present_access(security: bytes) -> Access | None:
    """The list of a descriptor; None where there is none, or one that has entries of other kinds."""
    try:
        descriptor = SecurityDescriptor.parse(security)
    except PacketError:
        return None
    if descriptor.dacl is None:
        return None
    masks: dict[tuple[Sid, bool], int] = {}
    for ace in descriptor.dacl.aces:
        plain = ace.ace_type in (AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED) and not ace.ace_flags
        if not plain or not isinstance(ace.entry, AccessEntry) or ace.entry.application_data:
            return None
        key = ace.entry.sid, ace.ace_type == AceType.ACCESS_DENIED
        masks[key] = masks.get(key, 0) | ace.entry.mask
    return _ordered((who, denied, mask) for (who, denied), mask in masks.items())


def _shown_access(access: Access | None, names: Mapping[str, str | None]) -> list[dict[str, Any]] | None:
    if access is None:
        return None
    entries: dict[Sid, dict[str, Any]] = {}
    for who, denied, mask in access:
        entry = entries.setdefault(who, {"to": _shown_account(who, names)})
        entry["deny" if denied else "allow"] = list(names_of_rights(mask))
    return list(entries.values())


def _shown_account(who: Sid, names: Mapping[str, str | None]) -> str:
    """A name that a document may have for it: those of a directory are known nowhere else."""
    everywhere = {sid: name for name, sid in TRUSTEES.items()}
    name = names.get(str(who)) or ""
    return everywhere.get(who) or (name if name.startswith(("user:", "group:")) else str(who))


def _security(queue: WantedQueue, present: bytes) -> bytes:
    """The descriptor of a queue with the wanted list and owner; the rest stays as it is."""
    descriptor = SecurityDescriptor.parse(present) if present else SecurityDescriptor()
    if queue.owner is not None:
        descriptor = SecurityDescriptor(
            owner=queue.owner, group=descriptor.group or queue.owner, dacl=descriptor.dacl, sacl=descriptor.sacl
        )
    if queue.access is None:
        return descriptor.write()
    return descriptor.with_dacl(*(deny(who, m) if denied else allow(who, m) for who, denied, m in queue.access)).write()


# Steps to what is wanted


@dataclass(frozen=True, slots=True)
class _Step:
    action: str
    """``create``, ``change``, ``delete``, or ``keep`` for what would be deleted and is not."""
    name: str
    changes: Mapping[str, tuple[Any, Any]]
    """By name of the property, the written values before and after."""
    settings: Mapping[str, Any]
    """The values of the model that are set at the queue."""
    reason: str = ""
    """Why a queue is kept."""
    messages: int = 0
    wanted: WantedQueue | None = None
    queue: Queue | None = field(default=None, repr=False)
    """The queue that is changed or deleted: another of its name, made since, is not."""

    def plain(self) -> dict[str, Any]:
        changes = {name: {"from": before, "to": after} for name, (before, after) in self.changes.items()}
        return {
            "action": self.action,
            "queue": self.name,
            "bridge": "",
            "changes": changes,
            "messages": self.messages,
            "reason": self.reason or None,
        }


class MachineDocuments:
    """Documents of one queue manager."""

    def __init__(self, manager: QueueManager, local_settings: LocalSettings) -> None:
        self._manager = manager
        self._local = local_settings
        self._lock = asyncio.Lock()

    async def apply(
        self, plain: object, *, prune: bool, with_messages: bool, dry_run: bool, declares: bool, asker: Asker
    ) -> dict[str, Any]:
        """Make a document true, or say what that would change. Nothing is begun if something in it is wrong."""
        pace, wanted = Pace(), []
        for one in read_queues(plain):
            wanted.append(one)
            await pace.rest()
        local = read_local(plain)
        if prune and (not isinstance(plain, Mapping) or plain.get("queues") is None):
            raise DocumentFault((), "it has no queues, and prune would delete all: write queues: [] if that is meant")
        async with self._lock:
            names: dict[str, str | None] = {}
            steps, left_over = await self._plan(
                wanted, names, prune=prune, with_messages=with_messages, declares=declares
            )
            unchanged = len(wanted) - sum(step.wanted is not None for step in steps)
            local_steps = self._local.steps(local)
            conflicts: list[str] = []
            if dry_run:
                await self._local.tell_refusals(local_steps, local, asker)
            else:
                await self._local.check(local, asker)
                steps, conflicts = await self._do_all(steps, names, asker.principal, with_messages=with_messages)
                await self._local.apply(local)
        _complain_of(conflicts)
        shown = list(local_steps)
        for step in steps:
            shown.append(step.plain())
            await pace.rest()
        return {"steps": shown, "unchanged": unchanged, "left_over": left_over, "dry_run": dry_run}

    async def show(self, *, everything: bool) -> dict[str, Any]:
        """Return the document of all private queues, addresses and bridges, or of those that documents made."""
        pace, queues = Pace(), []
        present = await self._private_queues()
        chosen = [queue for _, queue in sorted(present.items()) if everything or queue.declared]
        names = await self._names([], chosen)
        for queue in chosen:
            queues.append(self._shown(queue, names))
            await pace.rest()
        return self._local.show(everything=everything) | {"queues": queues}

    def _shown(self, queue: Queue, names: Mapping[str, str | None]) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": _own_name(queue)}
        for name, row in PRIVATE_QUEUE.items():
            value = getattr(queue, name)
            if value != row.default:
                shown[name] = row.form.write(value)
        access = _shown_access(_present_access(queue.security), names)
        return shown if access is None else shown | {"access": access}

    async def _names(self, wanted: Sequence[WantedQueue], present: Sequence[Queue]) -> dict[str, str | None]:
        """The names of the accounts of this machine in access lists: no others have a name that a document may use."""
        accounts: set[Sid] = set()
        pace = Pace()
        for one in wanted:
            accounts.update(who for who, _, _ in one.access or ())
            if one.owner is not None:
                accounts.add(one.owner)
            await pace.rest()
        for queue in present:
            accounts.update(who for who, _, _ in _present_access(queue.security) or ())
            await pace.rest()
        own = sorted(str(who) for who in accounts if who.authority == UNIX_USERS.authority)
        return await self._manager.account_names(own) if own else {}

    async def _private_queues(self) -> dict[str, Queue]:
        """The private queues by their names in upper case."""
        found: dict[str, Queue] = {}
        pace = Pace()
        for queue in list(self._manager.queue_collection.values()):
            if queue.queue_type is QueueType.PRIVATE and queue.parent is None and not queue.is_temporary:
                found[_own_name(queue).upper()] = queue
            await pace.rest()
        return found

    async def _plan(
        self,
        wanted: list[WantedQueue],
        names: dict[str, str | None],
        *,
        prune: bool,
        with_messages: bool,
        declares: bool,
    ) -> tuple[list[_Step], list[str]]:
        """Return the steps, and the names of queues that only ``prune`` would delete."""
        present = await self._private_queues()
        named = [queue for one in wanted if (queue := present.get(one.name.upper())) is not None]
        names |= await self._names(wanted, named)
        steps: list[_Step] = []
        denied: set[Sid] = set()
        pace = Pace()
        for one in wanted:
            for who in {who for who, denies, _ in one.access or () if denies} - denied:
                await check_denied(self._manager, str(who), who)
                denied.add(who)
            queue = present.pop(one.name.upper(), None)
            step = self._created(one, names, declares) if queue is None else self._changed(one, queue, names)
            if step is not None:
                steps.append(step)
            await pace.rest()
        left_over: list[str] = []
        for _, queue in sorted(present.items()):
            if queue.declared and prune:
                steps.append(_deletion(queue, with_messages=with_messages))
            elif queue.declared:
                left_over.append(_own_name(queue))
            await pace.rest()
        return steps, left_over

    def _created(self, one: WantedQueue, names: Mapping[str, str | None], declares: bool) -> _Step:
        changes = {
            name: (None, row.form.write(one.properties[name]))
            for name, row in PRIVATE_QUEUE.items()
            if one.properties[name] != row.default
        }
        settings: dict[str, Any] = {**one.properties, DECLARED: declares}
        if one.access is not None or one.owner is not None:
            settings["security"] = _security(one, b"")
        if one.access is not None:
            changes["access"] = (None, _shown_access(one.access, names))
        if one.owner is not None:
            changes["owner"] = (None, _shown_account(one.owner, names))
        return _Step("create", one.name, changes, settings, wanted=one)

    def _changed(self, one: WantedQueue, queue: Queue, names: Mapping[str, str | None]) -> _Step | None:
        changes: dict[str, tuple[Any, Any]] = {}
        settings: dict[str, Any] = {}
        for name, row in PRIVATE_QUEUE.items():
            before, after = getattr(queue, name), one.properties[name]
            if before == after:
                continue
            if row.changes is Changes.ONCE:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED,
                    f"{one.name}: {name} is {in_short(row.form.write(before))} and cannot change: take another name, "
                    "or delete the queue first. Nothing was changed",
                )
            changes[name] = row.form.write(before), row.form.write(after)
            settings[name] = after
        security = queue.security
        access = _present_access(security)
        owner = SecurityDescriptor.parse(security).owner if security else None
        if one.access is not None and one.access != access:
            changes["access"] = _shown_access(access, names), _shown_access(one.access, names)
        if one.owner is not None and one.owner != owner:
            changes["owner"] = None if owner is None else str(owner), _shown_account(one.owner, names)
        if "access" in changes or "owner" in changes:
            settings["security"] = _security(one, security)
        return _Step("change", one.name, changes, settings, wanted=one, queue=queue) if changes else None

    async def _do_all(
        self, steps: list[_Step], names: Mapping[str, str | None], caller: object, *, with_messages: bool
    ) -> tuple[list[_Step], list[str]]:
        """Take the steps, and return what was done, and the queues with which others interfered."""
        pace, done, conflicts = Pace(), [], []
        for step in steps:
            try:
                if (taken := await self._do(step, names, caller, with_messages=with_messages)) is not None:
                    done.append(taken)
            except _Conflict:
                conflicts.append(step.name)
            await pace.rest()
        return done, conflicts

    async def _do(
        self, step: _Step, names: Mapping[str, str | None], caller: object, *, with_messages: bool
    ) -> _Step | None:
        """Take a step as the queue is now, and return what was done; None for nothing. Raises _Conflict."""
        name = f".\\private$\\{step.name}"
        queue, wanted = step.queue, step.wanted
        if queue is None:
            try:
                await self._manager.create_queue(name, caller=caller, **step.settings)
            except MessageQueuingError as error:
                if error.code != ErrorCode.MQ_ERROR_QUEUE_EXISTS:
                    raise
                raise _Conflict from None
            return step
        if wanted is None:
            if queue.deleted or not queue.declared:
                return None
            step = _deletion(queue, with_messages=with_messages)
            if step.action == "delete":
                await self._manager.delete_queue(name)
            return step
        if queue.deleted:
            raise _Conflict
        changed = self._changed(wanted, queue, names)
        if changed is not None:
            await self._manager.set_queue(name, **changed.settings)
        return changed


class _Conflict(Exception):
    """A queue was made or deleted by somebody else after the plan."""


def _complain_of(conflicts: list[str]) -> None:
    """Raise MQ_ERROR_QUEUE_EXISTS if there are any."""
    if conflicts:
        more = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_QUEUE_EXISTS,
            f"somebody made or deleted {conflicts[0]!r}{more} meanwhile, so it was left alone, and all else was "
            "done: apply again",
        )


def _deletion(queue: Queue, *, with_messages: bool) -> _Step:
    """The step for a queue that is wanted no more."""
    journal = queue.journal_queue
    held = queue.message_count + (0 if journal is None else journal.message_count)
    held += sum(one.message_count for one in queue.subqueues.values())
    if not held or with_messages:
        return _Step("delete", _own_name(queue), {}, {}, messages=held, queue=queue)
    reason = f"it holds {held} messages" if held != 1 else "it holds 1 message"
    return _Step("keep", _own_name(queue), {}, {}, reason, held, queue=queue)


def _own_name(queue: Queue) -> str:
    return queue.pathname.rpartition("\\")[2]
