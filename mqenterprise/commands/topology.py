"""``mqenterprise validate``, ``plan``, ``apply``, ``rollback``, ``drift``, ``export`` and ``show``.

Exit codes: 0 done, or nothing to do; 1 it failed; 2 there is something to do (plan, drift), or wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mqenterprise.commands.chosen_nodes import NodesFile, failing_with_sentence, report_errors
from mqenterprise.commands.directory_option import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    directory_settings,
    opened,
    print_document,
)
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.machine_documents import AtNode, bring_documents, present_documents
from mqenterprise.operations.nodes import chosen_nodes
from mqenterprise.operations.settings import ENVIRONMENT, OperationsSettings, load_settings
from mqenterprise.topology import drawing
from mqenterprise.topology.apply import (
    WORKERS,
    Agree,
    Applied,
    ApplyError,
    agreed,
    apply_declared,
    apply_plan,
    latest_record,
    plan_declared,
    save,
    state_directory,
    written,
)
from mqenterprise.topology.check import Checked, load
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.export import export as exported
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.names import fold
from mqenterprise.topology.plan import (
    FixedError,
    Note,
    Plan,
    PlanFileError,
    TargetError,
    check_metrics_file,
    done_summary,
    from_json,
    plan_lines,
    summary,
    write_metrics,
)
from mqenterprise.topology.problems import DeclarationError, NoDirectoryError, Problem
from qmnode.commands.apply import step_lines
from qmnode.commands.error_line import complain
from qmnode.commands.node_options import WideOption, YesOption, at_a_terminal
from qmnode.commands.output import counted
from qmnode.commands.table_writer import print_table
from qmnode.directory.port import DirectoryOperationError
from qmnode.structures.text import nearest, printable, printable_json, printable_lines

app = typer.Typer(no_args_is_help=True, add_completion=False)

Declared = Annotated[Path, typer.Argument(help="The declaration: a YAML file, or a directory of them.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete objects that apply created and that are no longer declared.")
]
Wait = Annotated[float, typer.Option(help="Seconds to wait for another apply to end.", min=0)]
Workers = Annotated[int, typer.Option(help="Steps under way at a time.", min=1, max=64)]
Full = Annotated[bool, typer.Option("--full", help="Show every value, even if there are very many new objects.")]


def console() -> Console:
    """The console for results, on standard output."""
    return Console(highlight=False, soft_wrap=True)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn expected errors into sentences and exit code 1."""
    try:
        yield
    except DeclarationError as error:
        for warning in error.warnings:
            typer.echo(f"warning: {warning}", err=True)
        for problem in error.problems:
            complain(str(problem))
        count = len(error.problems)
        if not isinstance(error, NoDirectoryError):
            complain(f"{count} problem{'s' if count != 1 else ''} in the declaration")
    except (ApplyError, FixedError, PlanFileError, TargetError, DirectoryOperationError, OSError) as error:
        complain(str(error))
    else:
        return
    raise typer.Exit(FAILED)


@contextmanager
def _target(file: Path | None, *, access: bool = True) -> Iterator[LdapTarget]:
    with _explained(), EnterpriseDirectory(directory_settings(file)) as directory:
        target = LdapTarget(directory, access=access)
        yield target
        for sentence in target.unread:
            complain(f"left out: {sentence}")


def _print_lines(lines: Iterable[Text]) -> None:
    """Print lines in colour on a terminal, and plain elsewhere, because there may be very many."""
    out = console()
    if not out.is_terminal:
        sys.stdout.writelines(f"{line.plain}\n" for line in lines)
        return
    for line in lines:
        out.print(line)


def _nodes(nodes_file: Path | None) -> OperationsSettings | None:
    """Return how nodes are asked; none if neither the option nor the environment says so."""
    if nodes_file is None and not os.environ.get(ENVIRONMENT):
        return None
    with failing_with_sentence():
        return load_settings(nodes_file)


def _tell_private_queues(checked: Checked) -> None:
    """Say that the directory is not all that is declared."""
    counts = {
        "private queue": sum(queue.private for queue in checked.declaration.queues),
        "bridge": len(checked.declaration.bridges),
    }
    if any(counts.values()):
        named = " and ".join(counted(count, what) for what, count in counts.items() if count)
        typer.echo(
            f"note: {named} not in the directory: --nodes asks the nodes; rollout.yml, or "
            "'mqenterprise document', brings each to its machine",
            err=True,
        )


def _at_nodes(
    settings: OperationsSettings | None,
    checked: Checked | None,
    directory: Path | None,
    *,
    prune: bool = False,
    with_messages: bool = False,
    dry_run: bool = True,
) -> list[AtNode]:
    """Ask the nodes for the changes by their documents, or make them; nothing without settings."""
    if settings is None or checked is None:
        return []
    with failing_with_sentence():
        return bring_documents(
            settings,
            lambda: opened(directory),
            checked.declaration,
            prune=prune,
            with_messages=with_messages,
            dry_run=dry_run,
        )


def _print_at_nodes(found: Sequence[AtNode], *, done: bool = False) -> None:
    """Show the changes by documents of machines, and what is left."""
    for one in found:
        if one.changes is None:
            continue
        for step in one.changes.steps:
            typer.echo("\n".join(step_lines(step.model_dump(), printable(one.machine))))
        for name in one.changes.left_over:
            typer.echo(printable(f"  queue {one.machine}\\private$\\{name}: {Note.PRUNABLE}"))
    differences = sum(one.differences for one in found)
    answered = counted(sum(one.changes is not None for one in found), "node")
    if found:
        verb = "made" if done else "to make"
        typer.echo(f"Documents of machines: {counted(differences, 'change')} {verb} at {answered}.")


def _fail_for_silent_nodes(found: Sequence[AtNode]) -> None:
    """Name the nodes that did not answer. Exit code 1 if the document of one is not empty."""
    errors = {one.machine: one.error for one in found if one.error is not None}
    report_errors(errors, len(found))
    if any(one.is_unknown for one in found):
        raise typer.Exit(FAILED)


def _needs_access(checked: Checked) -> bool:
    return checked.declaration.has_access_lists


@app.command()
def validate(declared: Declared, as_json: AsJson = False) -> None:
    """Check a declared enterprise, without a directory."""
    if as_json:
        problems: tuple[Problem, ...] = ()
        notes: tuple[Problem, ...] = ()
        try:
            checked = load(declared)
            warnings, notes = checked.warnings, checked.notes
        except DeclarationError as error:
            problems, warnings = error.problems, error.warnings
        listed = {"problems": problems, "warnings": warnings, "notes": notes}
        print_document({kind: [asdict(problem) for problem in those] for kind, those in listed.items()})
        raise typer.Exit(FAILED if problems else 0)
    with _explained():
        checked = load(declared)
        for warning in checked.warnings:
            typer.echo(f"warning: {warning}", err=True)
        for note in checked.notes:
            typer.echo(f"note: {note}", err=True)
        declaration = checked.declaration
        counts = {
            "site": len(declaration.sites) + len(declaration.foreign_sites),
            "routing link": len(declaration.routing_links),
            "machine": len(declaration.machines),
            "queue": len(declaration.queues),
            "user": len(declaration.users),
        }
        if declaration.is_workgroup:
            counts = {what: count for what, count in counts.items() if count}
        words = [counted(count, what) for what, count in counts.items()]
        if aliases := len(declaration.queue_aliases):
            words.append("1 queue alias" if aliases == 1 else f"{aliases:,} queue aliases")
        if lists := len(declaration.distribution_lists):
            words.append(counted(lists, "distribution list"))
        text = ", ".join(words)
        console().print(f"{declaration.enterprise.name} is valid: {text}.", markup=False)


@app.command()
def plan(
    declared: Declared,
    prune: Prune = False,
    as_json: AsJson = False,
    full: Full = False,
    save_to: Annotated[Path | None, typer.Option("--save", help="Save the plan to a file, for apply.")] = None,
    directory: DirectoryFile = None,
    nodes_file: NodesFile = None,
) -> None:
    """Show the changes that make the directory as declared. Exit code 2: there are some.

    With --nodes also those of private queues, addresses and bridges at nodes; a saved plan does not have them.
    """
    _tell_plan(declared, prune, as_json, full, save_to, directory, nodes_file)


@app.command()
def drift(
    declared: Declared,
    as_json: AsJson = False,
    directory: DirectoryFile = None,
    nodes_file: NodesFile = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="<path>", help="File, ending in .prom, for the numbers of differences as Prometheus reads them."
        ),
    ] = None,
) -> None:
    """Show what has changed in the directory since the last apply. Exit code 2: something has.

    With --nodes also what has changed in private queues, addresses and bridges at nodes.

    The directory was as declared after the last apply, so every difference is such a change. Objects that were never
    declared are reported and left alone; apply undoes the other changes.
    """
    _tell_plan(declared, False, as_json, True, None, directory, nodes_file, metrics)


def _tell_plan(
    declared: Path,
    prune: bool,
    as_json: bool,
    full: bool,
    save_to: Path | None,
    directory: Path | None,
    nodes_file: Path | None,
    metrics: Path | None = None,
) -> None:
    if metrics is not None:
        try:
            check_metrics_file(metrics)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metrics") from error
    settings = _nodes(nodes_file)
    with _explained():
        checked = load(declared, for_directory=settings is None or save_to is not None)
    if settings is None:
        _tell_private_queues(checked)
    made = Plan("", ())
    if not checked.declaration.is_workgroup:
        with _target(directory, access=_needs_access(checked)) as target:
            made = plan_declared(checked, target, prune=prune)
            if save_to is not None:
                save(made, save_to)
    found = _at_nodes(settings, checked, directory, prune=prune)
    if as_json:
        machines = {} if settings is None else {"machines": [one.document() for one in found]}
        typer.echo(printable_json(written(made, **machines)), nl=False)
    else:
        if not checked.declaration.is_workgroup:
            _print_lines(plan_lines(made, full=full, nodes=bool(found)))
        _print_at_nodes(found)
    _fail_for_silent_nodes(found)
    if metrics is not None:
        with _explained():
            write_metrics(metrics, made, sum(bool(one.differences) for one in found))
    raise typer.Exit(SOMETHING_TO_DO if made.steps or any(one.differences for one in found) else 0)


@app.command(epilog="Example: mqenterprise document contoso.yaml SHOP > machine.yml")
def document(
    declared: Declared,
    machine: Annotated[str, typer.Argument(help="The name of the machine.")],
    as_json: AsJson = False,
) -> None:
    """Print the document of a machine, which its node makes true with 'qmnode apply'."""
    with _explained():
        declaration = load(declared).declaration
    known = {fold(one.name): one.name for one in declaration.machines}
    if fold(machine) not in known:
        near = nearest(machine, known.values())
        complain(f"{machine} is no declared machine" + (f": did you mean {near}?" if near else ""))
        raise typer.Exit(FAILED)
    found = machine_document(declaration, machine)
    if as_json:
        print_document(found)
    else:
        typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120), nl=False)


@app.command()
def apply(
    declared: Annotated[Path, typer.Argument(help="The declaration, or a plan that 'plan --save' wrote.")],
    prune: Prune = False,
    wait: Wait = 30,
    workers: Workers = WORKERS,
    yes: YesOption = False,
    as_json: AsJson = False,
    directory: DirectoryFile = None,
    nodes_file: NodesFile = None,
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="With --prune: also private queues with messages, which are lost.")
    ] = False,
) -> None:
    """Make the directory as declared, or carry out a saved plan. With --nodes then also what nodes alone have.

    At a terminal it shows the plan and asks first; in a pipe, with --json or --yes it does not. Cut at any point, it
    is run again and goes on. The plan for the directory is recorded first; rollback undoes it.
    """
    if with_messages and not prune:
        raise typer.BadParameter("it is about what --prune deletes", param_hint="--with-messages")
    agree, settings = _agreement(yes or as_json), _nodes(nodes_file)
    with _explained():
        saved = _saved_plan(declared)
        checked = load(declared, for_directory=settings is None) if saved is None else None
    if checked is not None and settings is None:
        _tell_private_queues(checked)
    done = Applied(Plan("", ()), 0)
    if checked is None or not checked.declaration.is_workgroup:
        with _target(directory, access=checked is None or _needs_access(checked)) as target, _Shown() as shown:
            if checked is not None:
                done = apply_declared(checked, target, shown, prune=prune, patience=wait, workers=workers, agree=agree)
            else:
                assert saved is not None
                done = apply_plan(saved, target, shown, patience=wait, workers=workers, agree=agree)
        if not as_json:
            _tell_applied(done, as_json, nodes=settings is not None)
    pruning = {"prune": prune, "with_messages": with_messages}
    if agree is not agreed:
        planned = _at_nodes(settings, checked, directory, **pruning)
        _print_at_nodes(planned)
        if any(one.differences for one in planned):
            typer.confirm("Carry this out?", abort=True, err=True)
    found = _at_nodes(settings, checked, directory, **pruning, dry_run=False)
    if as_json:
        _tell_applied(done, as_json, found if settings is not None else None)
    else:
        _print_at_nodes(found, done=True)
    _fail_for_silent_nodes(found)


def _agreement(yes: bool) -> Agree:
    """Return the function that asks for agreement: the person at the terminal, if there is one."""
    if yes or not at_a_terminal():
        return agreed

    def ask(planned: Plan) -> None:
        _print_lines(plan_lines(planned))
        typer.confirm("Carry this out?", abort=True, err=True)

    return ask


def _saved_plan(path: Path) -> Plan | None:
    """Read a plan from a file. Return None when the file is not JSON, and so is a declaration."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        begins = file.read(64).lstrip()
    return from_json(path.read_text("utf-8")) if begins.startswith(b"{") else None


def _tell_applied(
    done: Applied, as_json: bool, at_nodes: Sequence[AtNode] | None = None, *, nodes: bool = False
) -> None:
    if as_json:
        kept = str(done.record) if done.record else None
        machines = {} if at_nodes is None else {"machines": [one.document() for one in at_nodes]}
        print_document({"done": done.done, "done_before": done.before, "record": kept} | machines)
        return
    if not done.plan.steps:
        console().print(summary(done.plan, nodes=nodes))
        return
    before = f" {done.before} were done before." if done.before else ""
    console().print(f"Done: {done_summary(done.plan)}{before}")


@app.command()
def rollback(
    record: Annotated[
        Path | None, typer.Argument(help="A recorded plan. Default: the last one that was applied.")
    ] = None,
    wait: Wait = 30,
    workers: Workers = WORKERS,
    yes: YesOption = False,
    as_json: AsJson = False,
    directory: DirectoryFile = None,
) -> None:
    """Undo a plan that was applied, whole or in part; again, the one before it.

    It asks as apply does. Objects that are made again get new GUIDs. Refused when what the plan did was changed since.
    """
    with _target(directory) as target, _Shown() as shown:
        path = record
        if path is None:
            kept = state_directory()
            path = latest_record(kept.glob("*.json") if kept.is_dir() else (), target.directory)
            if path is None:
                raise ApplyError(f"{kept} holds no plan that was applied to {target.directory}", 0)
        undoing = from_json(path.read_text("utf-8")).inverse()
        agree = _agreement(yes or as_json)
        done = apply_plan(undoing, target, shown, patience=wait, workers=workers, keep_record=False, agree=agree)
        if record is None:
            path.rename(path.with_suffix(".undone"))
    _tell_applied(done, as_json)


@app.command("export")
def export_command(
    name: Annotated[str, typer.Option(help="The enterprise's name, which the directory does not hold.")] = "Enterprise",
    output: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None,
    directory: DirectoryFile = None,
    nodes_file: NodesFile = None,
) -> None:
    """Write the contents of a directory as a declaration; with --nodes also what its nodes alone have."""
    settings = _nodes(nodes_file)
    documents: dict[str, dict[str, Any]] = {}
    errors: dict[str, NodeError] = {}
    with _target(directory) as target:
        table = target.snapshot().table
    if settings is not None:
        with failing_with_sentence():
            nodes = chosen_nodes(settings, lambda: opened(directory), machines=(), site=None)
            for client, answer in present_documents(settings, nodes):
                if isinstance(answer, NodeError):
                    errors[client.machine] = answer
                else:
                    documents[client.machine] = answer.model_dump(mode="json")
    with _explained():
        text = exported(table, name, documents, [f"{machine}: {error.sentence}" for machine, error in errors.items()])
        if output is not None:
            output.write_text(text, "utf-8")
    if output is None:
        typer.echo(printable_lines(text) if sys.stdout.isatty() else text, nl=False)
    if report_errors(errors, len(errors) + len(documents)):
        raise typer.Exit(FAILED)


@app.command()
def show(
    declared: Annotated[Path | None, typer.Argument(help="Declaration to draw. Default: the directory.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw into an SVG file instead of the terminal.")] = None,
    directory: DirectoryFile = None,
    wide: WideOption = False,
) -> None:
    """Draw the sites and routing links, in the terminal or as SVG."""
    if declared is not None:
        with _explained():
            checked = load(declared, for_directory=True)
            table, title = declared_table(checked, lambda trustee: trustee), checked.declaration.enterprise.name
    else:
        with _target(directory, access=False) as target:
            snapshot = target.snapshot()
            table, title = snapshot.table, snapshot.directory
    graph = drawing.graph_of(table)
    with _explained():
        if svg is not None:
            svg.write_text(drawing.svg(graph, title), "utf-8")
            return
    _print_rows(drawing.site_rows(graph), whole=("site",), drop=("queues", "machines"), wide=wide)
    print()
    _print_rows(
        drawing.link_rows(graph),
        whole=("routing link between", "and"),
        drop=("description", "site gates"),
        wide=wide,
    )


def _print_rows(rows: list[dict[str, object]], *, whole: Sequence[str], drop: Sequence[str], wide: bool) -> None:
    if rows:
        numbers = [name for name, value in rows[0].items() if isinstance(value, int)]
        cells = [list(row.values()) for row in rows]
        print_table(list(rows[0]), cells, right=numbers, whole=whole, drop=drop, wide=wide)


class _Shown:
    """Progress on standard error: a bar at a terminal, otherwise only the holder of a lease that is waited for."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not Console(stderr=True).is_terminal,
        )
        self._task = self._progress.add_task("Applying", total=None)

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def waiting(self, holder: str) -> None:
        complain(f"waiting for {holder}, who is applying a plan")

    def begin(self, total: int) -> None:
        self._progress.start()
        self._progress.update(self._task, total=total)

    def step(self) -> None:
        self._progress.advance(self._task)
