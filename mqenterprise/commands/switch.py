"""``mqenterprise switch``: public queues of Windows become those of a node."""

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.commands.carry import AS_USUAL, How, To
from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS, Access, failing_with_sentence
from mqenterprise.commands.directory_option import SOMETHING_TO_DO, opened
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.carrying import CarryOptions
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.switching import BACK, FORWARD, Plan, Switch, plan_of
from qmnode.commands.error_line import complain
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, say
from qmnode.commands.remote import PasswordFileOption, RemoteTarget, UserOption

app = Commands(help="Switch public queues to a node.")
_QUIET = 5.0


@app.command(
    epilog="Example: mqenterprise switch 'winshop\\orders' --from winshop --to ams-shop --plans plans --sole-reader"
)
def switch(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE...", help="Public queues, COMPUTER\\QUEUE, in this order."),
    ] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST[:PORT]", help="The old machine; PORT is its endpoint mapper's.")
    ] = "",
    target: To = "",
    plans: Annotated[Path, typer.Option("--plans", help="Folder of the plans, a file for each queue.")] = Path(),
    machine: Annotated[
        str,
        typer.Option("--machine", metavar="COMPUTER", help="All public queues of this machine, and then its DNS name."),
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Only show the plans, and which steps are done.")] = False,
    until: Annotated[
        str, typer.Option("--until", metavar="STEP", help="Stop after this step; switch again to go on.")
    ] = "",
    back: Annotated[
        bool, typer.Option("--back", help="Take back, with the messages that came meanwhile, which are sent anew.")
    ] = False,
    how: How = AS_USUAL,
    user: UserOption = "",
    password_file: PasswordFileOption = None,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Switch public queues to a node: senders follow their PUBLIC= names. Stop the readers first, and start those at
    the node when it is done. Run it again to go on where it stopped.

    Exit code 2: --machine, and the DNS name of the old machine does not lead to the node yet.
    """
    if bool(queues) == bool(machine) or not source or not target:
        raise typer.BadParameter("name queues or --machine, and --from and --to")
    if until and until not in (steps := BACK if back else FORWARD):
        raise typer.BadParameter(f"the steps are {', '.join(steps)}", param_hint="--until")
    at = RemoteTarget.parse(source, user, password_file)
    options = CarryOptions(
        how.rate,
        how.follow or _QUIET,
        how.patience,
        how.sole_reader,
        frozenset(how.drop or ()),
        until=until,
    )
    with failing_with_sentence():
        found = _plans(queues or [], machine, source, target, plans, access)
        if not found:
            raise OperationsError(f"{machine} has no public queues in the directory: mqenterprise queue list")
        if show:
            for plan in found:
                typer.echo(f"{plan.queue} to {plan.target}{', taken back' if plan.taken_back else ''}")
                for name, sentence, done in plan.steps():
                    typer.echo(f"  {'done' if done else '    '}  {name}: {sentence}")
            return

        async def work(client: NodeClient) -> None:
            begun = [plan for plan in reversed(found) if plan.has_begun] or found
            for plan in begun if back else found:
                one = Switch(plan, client, at, lambda: opened(access.directory_file), options, say)
                await (one.take_back() if back else one.run())
                say(f"{plan.queue}: {counted(one.messages, 'message')}; {'taken back' if back else plan.done[-1]}")

        access.at_one(target, work)
    if machine and not back and _addresses(at.host).isdisjoint(_addresses(_host_of(access, target))):
        complain(
            f"DIRECT= names still lead to {machine}: stop it, let its DNS name {at.host} lead to {target}, give that "
            "node the name among its own, and switch again"
        )
        raise typer.Exit(SOMETHING_TO_DO)


def _plans(queues: list[str], machine: str, source: str, target: str, folder: Path, access: Access) -> "list[Plan]":
    """The plans of queues, read or made. One that is new is written by its first step."""
    found: list[Plan] = []
    with ExitStack() as stack:
        directory: EnterpriseDirectory | None = None
        if machine:
            directory = stack.enter_context(opened(access.directory_file))
            if directory.queue_managers.find(machine) is None:
                raise OperationsError(f"there is no queue manager {machine} in the directory: correct --machine")
            begun = [Plan.read(path).queue for path in sorted(folder.glob("*.switch.json"))]
            mine = [name for name in begun if name.partition("\\")[0].casefold() == machine.casefold()]
            queues = list(dict.fromkeys([*mine, *(one.pathname for one in directory.queues.of(machine))]))

        def opened_once() -> EnterpriseDirectory:
            nonlocal directory
            directory = directory or stack.enter_context(opened(access.directory_file))
            return directory

        found += [plan_of(folder, opened_once, queue, source, target) for queue in queues]
    return found


def _addresses(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _host_of(access: Access, machine: str) -> str:
    async def host(client: NodeClient) -> str:
        await asyncio.sleep(0)
        return client.url.partition("//")[2].rpartition(":")[0]

    return access.at_one(machine, host)
