"""Switch a public queue from Windows to a node, as a plan of steps that can be stopped, resumed and taken back.

The queue keeps its ``PUBLIC=`` name: the node takes it over with its identifier, sets places aside for the carried
messages, and only then the directory names the node. So new messages wait behind carried ones.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from mqenterprise.directory.errors import DirectoryError
from mqenterprise.operations.carrying import Carrier, CarryOptions
from mqenterprise.operations.errors import NodeError, OperationsError
from mqenterprise.operations.jobs import watch
from mqenterprise.topology.names import fold
from qmnode.structures.guid import guid_from_text, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.operations.node_client import NodeClient
    from qmnode.commands.remote import RemoteTarget
    from qmnode.directory.port import Queue

FORWARD: Final = {
    "check": "readers have stopped, the account may receive, clocks are right, and the node has room",
    "prepare": "the node takes the queue over and sets places aside for the carried messages",
    "carry": "the messages are carried; senders go on",
    "redirect": "the directory names the node: new messages go there, behind the carried ones",
    "follow": "what still comes to the old machine is carried, until nothing has come for a while",
}
BACK: Final = {
    "return": "the messages of the node are sent to the old machine",
    "redirect back": "the directory names the old machine",
    "return the rest": "what still came to the node is sent to the old machine, until nothing comes",
}
_LOOK: Final = 0.5


@dataclass(slots=True)
class Plan:
    """The steps of one queue, and which are done. Its file is written after each step."""

    path: Path
    queue: str
    """Path name in the directory before the switch."""
    identifier: str
    source: str
    """HOST or HOST:PORT of the old machine."""
    target: str
    """Computer name of the node."""
    transactional: bool = False
    done: list[str] = field(default_factory=list)
    taken_back: bool = False

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan that was begun. Raises OperationsError."""
        try:
            values = json.loads(path.read_text("utf-8"))
            plan = cls(path=path, **values)
            for name, value in values.items():
                wanted = {"transactional": bool, "taken_back": bool, "done": list}.get(name, str)
                if not isinstance(value, wanted):
                    raise TypeError(f"{name} is {value!r}")
            if not all(isinstance(step, str) for step in plan.done):
                raise TypeError(f"done is {plan.done!r}")
            return plan
        except (OSError, ValueError, TypeError) as error:
            raise OperationsError(f"{path} is no plan of a switch: {error}") from None

    def write(self) -> None:
        """Write the plan, as a whole and to the disk."""
        values = {name: value for name, value in asdict(self).items() if name != "path"}
        fresh = self.path.with_name(f"{self.path.name}.fresh")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as file:
                file.write(json.dumps(values, indent=1))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except OSError as error:
            raise OperationsError(f"{self.path} cannot be written: {error.strerror or error}") from None

    def steps(self) -> Iterator[tuple[str, str, bool]]:
        """Each step with its sentence, and whether it is done."""
        for name, sentence in (FORWARD | (BACK if self.taken_back else {})).items():
            yield name, sentence, name in self.done

    @property
    def has_begun(self) -> bool:
        """Whether a step has changed something."""
        return "prepare" in self.done

    @property
    def name(self) -> str:
        """The name of the queue without its computer."""
        return self.queue.partition("\\")[2]


class Switch:
    """Carries a plan out."""

    def __init__(
        self,
        plan: Plan,
        client: NodeClient,
        source: RemoteTarget,
        directory: Callable[[], AbstractContextManager[EnterpriseDirectory]],
        options: CarryOptions,
        report: Callable[[str], None],
    ) -> None:
        """``options.follow`` is the time without a message after which nothing more is expected at the old machine."""
        self._plan = plan
        self._client = client
        self._source = source
        self._directory = directory
        self._options = options
        self._report = report
        self.messages = 0
        """Messages that have been carried, or sent back."""

    async def run(self) -> None:
        """Do the steps that are left. Raises OperationsError; done steps stay done."""
        if self._plan.taken_back:
            raise OperationsError(f"{self._plan.path} was taken back: begin again with a new plan")
        await self._do(
            {
                "check": self._check,
                "prepare": self._prepare,
                "carry": lambda: self._carry(0.0),
                "redirect": lambda: self._redirect(self._plan.target),
                "follow": lambda: self._carry(self._options.follow),
            }
        )

    async def take_back(self) -> None:
        """Undo what was done, with the messages that came meanwhile. Raises OperationsError, also if nothing was."""
        if not self._plan.has_begun:
            raise OperationsError(
                f"{self._plan.queue} was not switched with {self._plan.path.parent}: there is nothing to take back; "
                "correct --plans"
            )
        self._plan.taken_back = True
        self._plan.write()
        await self._do(
            {
                "return": lambda: self._return(0.0),
                "redirect back": lambda: self._redirect(self._plan.queue.partition("\\")[0]),
                "return the rest": lambda: self._return(self._options.follow),
            }
        )

    async def _do(self, steps: dict[str, Callable[[], Awaitable[None]]]) -> None:
        for name, work in steps.items():
            if name in self._plan.done:
                continue
            self._report(f"{self._plan.queue}: {name}: {(FORWARD | BACK)[name]}")
            try:
                await work()
            except DirectoryError as error:
                raise OperationsError(error.sentence) from None
            except NodeError as error:
                raise OperationsError(f"{self._client.machine}: {error.sentence}") from None
            self._plan.done.append(name)
            self._plan.write()
            if name == self._options.until:
                return

    # Steps

    def _carrier(self, follow: float) -> Carrier:
        options = replace(self._options, follow=follow)
        return Carrier(self._client, self._source, f".\\{self._plan.name}", self._public, options)

    @property
    def _public(self) -> str:
        return f"PUBLIC={self._plan.identifier}"

    async def _check(self) -> None:
        if fold(found := (await self._client.node()).computer_name) != fold(self._plan.target):
            raise OperationsError(f"{found} answers at the address of {self._plan.target}: correct the file of --nodes")
        there = f"{self._plan.target}\\{self._plan.name}"
        if await self._in_directory(lambda directory: directory.queues.find(there)) is not None:
            raise OperationsError(f"{there} exists in the directory, as another queue: rename it or unpublish it first")
        await self._carrier(0.0).check(owns=self._public)

    async def _prepare(self) -> None:
        await self._client.begin_carry(self._source.format_name(f".\\{self._plan.name}"), self._public)

    async def _carry(self, follow: float) -> None:
        carrier = self._carrier(follow)
        summary = await carrier.carry()
        self.messages += summary.messages
        if summary.undecided:
            raise OperationsError(
                f"{len(summary.undecided)} messages of {self._plan.queue} are undecided, the first is "
                f"{summary.undecided[0]}: say --sole-reader, or --drop KEY for each that somebody else has received"
            )

    async def _redirect(self, computer: str) -> None:
        await self._in_directory(lambda directory: self._redirected(directory, computer))

    def _redirected(self, directory: EnterpriseDirectory, computer: str) -> Queue:
        found = directory.queues.get(guid_from_text(self._plan.identifier))
        if fold(found.pathname.partition("\\")[0]) == fold(computer):
            return found  # done before the plan could be written
        return directory.queues.move(found, computer)

    async def _in_directory(self, work: Callable[[EnterpriseDirectory], Queue | None]) -> Queue | None:
        def there() -> Queue | None:
            with self._directory() as directory:
                return work(directory)

        return await asyncio.to_thread(there)

    async def _return(self, quiet: float) -> None:
        """Send the messages of the node to the old machine, and then others until none has come for ``quiet`` seconds.
        Senders go on: so without it, those that are there now.
        """
        target = self._source.format_name(f".\\{self._plan.name}")
        waited = 0.0
        while True:
            if (await self._client.queue(self._public)).message_count:
                job = await self._client.start_job(
                    {
                        "kind": "move",
                        "queues": [self._public],
                        "target": target,
                        "transactional": self._plan.transactional,
                    }
                )
                job = await watch(self._client, job, lambda _: None)
                self.messages += job.done
                if job.state != "done" or job.failed:
                    raise OperationsError(
                        f"job {job.job} at {self._client.machine} is {job.state}, {job.failed} messages failed: "
                        f"mqenterprise job show {self._client.machine}/{job.job}"
                    )
                waited = 0.0
                if not quiet:
                    return
            elif waited >= quiet:
                return
            else:
                await asyncio.sleep(_LOOK)
                waited += _LOOK


def plan_of(folder: Path, directory: Callable[[], EnterpriseDirectory], queue: str, source: str, target: str) -> Plan:
    """The plan of a queue in a folder, read or made; a new one is written by its first step. Raises OperationsError."""
    path = folder / f"{queue.replace(chr(92), '+').replace('/', '%2F').casefold()}.switch.json"
    if not path.exists():
        return new_plan(path, directory(), queue, source, target)
    plan = Plan.read(path)
    if (plan.source, fold(plan.target)) != (source, fold(target)):
        raise OperationsError(
            f"{path} switches from {plan.source} to {plan.target}: name these, or another folder of plans"
        )
    return plan


def new_plan(path: Path, directory: EnterpriseDirectory, queue: str, source: str, target: str) -> Plan:
    """A plan for a queue of the directory. Raises OperationsError for a queue or a machine that it lacks."""
    computer, _, name = queue.partition("\\")
    if "=" in computer or name.casefold().startswith("private$\\"):
        raise OperationsError(
            f"{queue} is a private or direct name, which contains its machine and cannot follow: carry its messages "
            "and configure the new name in its senders, or switch the whole machine with --machine"
        )
    if not name:
        raise OperationsError(f"{queue!r} is no public queue: write COMPUTER\\QUEUE, as 'mqenterprise queue list' does")
    found = directory.queues.find(queue)
    if found is None or found.identifier is None:
        raise OperationsError(f"there is no public queue {queue} in the directory: mqenterprise queue list")
    if directory.queue_managers.find(target) is None:
        raise OperationsError(f"there is no queue manager {target} in the directory: declare the machine and apply")
    if fold(computer) == fold(target):
        raise OperationsError(f"{queue} is at {target} already")
    identifier = guid_to_text(found.identifier)
    return Plan(path, found.pathname, identifier, source, target, transactional=bool(found.transactional))
