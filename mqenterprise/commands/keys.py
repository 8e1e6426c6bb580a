"""``mqenterprise keys status|rotate|retire|rollback``: the encryption keys of one node, a site or all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mqenterprise.commands.directory_option import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    complete_computer,
    opened,
    show,
)
from mqenterprise.keys.fleet import Fleet, KeyRunOutcome
from mqenterprise.keys.life_cycle import Waiting
from mqenterprise.keys.publication import Node, Publication
from mqenterprise.keys.report import COLUMNS, brief, rows_of
from mqenterprise.keys.settings import COMPUTER, KeyRotationError, load_key_settings
from qmnode.commands.error_line import complain
from qmnode.commands.node_options import WideOption, YesOption, at_a_terminal
from qmnode.commands.table_writer import print_table
from qmnode.security.key_stores import KeyPurpose, KeyState
from qmnode.security.private_files import forbid_core_dumps

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Encryption keys of the nodes, and their rotation.")

Computers = Annotated[
    list[str] | None,
    typer.Argument(help="Computers. Default: all.", metavar="COMPUTER", autocompletion=complete_computer),
]
Site = Annotated[str | None, typer.Option(help="Only the queue managers of this site.")]
KeysFile = Annotated[
    Path | None, typer.Option("--keys", help="YAML file that says where the keys are and how long old ones are kept.")
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the nodes have read their new keys, then publish them.")
]


@app.command()
def status(
    computers: Computers = None,
    site: Site = None,
    directory_file: DirectoryFile = None,
    keys_file: KeysFile = None,
    destroyed: Annotated[bool, typer.Option("--destroyed", help="Also show the records of destroyed keys.")] = False,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """List the keys, the senders that may still use each, and what is due. Exit code 2: something is due."""
    with _chosen(computers, site, directory_file, keys_file) as chosen:
        _report(asyncio.run(chosen.fleet().status()), chosen.waiting, as_json=as_json, destroyed=destroyed, wide=wide)


@app.command()
def rotate(
    computers: Computers = None,
    site: Site = None,
    directory_file: DirectoryFile = None,
    keys_file: KeysFile = None,
    wait: Wait = True,
    begun: Annotated[
        str | None, typer.Option(metavar="TIME", help="Continue an interrupted rotation that began at this time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make new keys and publish them. The old ones can still decrypt until 'retire' destroys them."""
    since = time.time() if begun is None else _time(begun)
    with _chosen(computers, site, directory_file, keys_file) as chosen:
        started = datetime.fromtimestamp(since).astimezone().isoformat()
        _say(f"if this is cut, go on with: --begun {started}")
        _run(chosen, lambda fleet: fleet.rotate(since, wait=wait), as_json=as_json)


@app.command()
def rollback(
    computers: Computers = None,
    site: Site = None,
    directory_file: DirectoryFile = None,
    keys_file: KeysFile = None,
    wait: Wait = True,
    yes: YesOption = False,
    as_json: AsJson = False,
) -> None:
    """Publish the keys before the present ones again, as long as they are not destroyed.

    At a terminal it shows which keys these are and asks first; in a pipe, with --json or --yes it does not.
    """
    with _chosen(computers, site, directory_file, keys_file) as chosen:
        if at_a_terminal() and not yes and not as_json:
            _ask_to_roll_back(chosen)
        _run(chosen, lambda fleet: fleet.roll_back(wait=wait), as_json=as_json)


@app.command()
def retire(
    computers: Computers = None,
    site: Site = None,
    directory_file: DirectoryFile = None,
    keys_file: KeysFile = None,
    as_json: AsJson = False,
) -> None:
    """Retire keys to which nobody encrypts any longer, and destroy keys that have been retired for long enough."""
    with _chosen(computers, site, directory_file, keys_file) as chosen:
        _run(chosen, lambda fleet: fleet.retire(), as_json=as_json)


def _ask_to_roll_back(chosen: _Chosen) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for keys in asyncio.run(chosen.fleet().status()).done:
        pairs = [pair for pair in keys.pairs if pair.purpose is KeyPurpose.ENCRYPTION]
        for current in (pair for pair in pairs if pair.state is KeyState.CURRENT):
            before = [each for each in pairs if each.provider == current.provider and each.state is KeyState.PREVIOUS]
            again = max(before, key=lambda each: each.created_time).fingerprint if before else "none is left"
            rows.append((keys.node.computer_name, current.provider, current.fingerprint, again))
    columns = ("node", "provider", "- published now", "+ published again")
    print_table(columns, rows, whole=columns[2:])
    typer.confirm("Publish these keys again?", abort=True, err=True)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The nodes that the command line names, with access to their keys and the times to wait."""

    nodes: list[Node]
    publication: Publication
    waiting: Waiting

    def fleet(self, step: Callable[[], None] = lambda: None) -> Fleet:
        return Fleet(self.nodes, self.publication, self.waiting, step=step)


@contextmanager
def _chosen(
    computers: list[str] | None, site: str | None, directory_file: Path | None, keys_file: Path | None
) -> Iterator[_Chosen]:
    forbid_core_dumps()
    try:
        settings = load_key_settings(keys_file)
        with opened(directory_file) as directory:
            publication = Publication(directory)
            nodes = publication.nodes(site=site, computers=computers or ())
            if len(nodes) > 1 and settings.has_one_store:
                raise KeyRotationError(
                    f"the keys of {len(nodes)} nodes cannot all be in {settings.directory}: write 'directory' with "
                    f"{COMPUTER} in keys.yaml (--keys), name the one computer whose keys are there, "
                    "or run playbooks/rotate_keys.yml"
                )
            longest = settings.longest_time_to_reach_queue
            if longest is None:  # the limits of our nodes, which keep their setting, and of other queue managers
                own = float(settings.security.longest_time_to_reach_queue)
                longest = max(own, publication.longest_time_to_reach_queue())
            waiting = Waiting(settings, longest)
            yield _Chosen(nodes, publication, waiting)
    except KeyRotationError as error:
        complain(error.sentence)
        raise typer.Exit(FAILED) from None


def _run(chosen: _Chosen, work: Callable[[Fleet], Coroutine[Any, Any, KeyRunOutcome]], *, as_json: bool) -> None:
    """Run with a progress bar on standard error, then print the state of the keys."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("nodes", total=len(chosen.nodes))
        outcome = asyncio.run(work(chosen.fleet(lambda: bar.advance(task))))
    _report(outcome, chosen.waiting, as_json=as_json, destroyed=False)


def _report(outcome: KeyRunOutcome, waiting: Waiting, *, as_json: bool, destroyed: bool, wide: bool = False) -> None:
    now = time.time()
    rows = [row for keys in outcome.done for row in rows_of(keys, waiting, now, destroyed=destroyed)]
    if rows or as_json or not outcome.failed:
        show(
            rows if as_json else [brief(row) for row in rows],
            COLUMNS,
            as_json=as_json,
            empty="no queue managers",
            whole=("node", "fingerprint"),
            drop=("age", "may send", "key"),
            wide=wide,
        )
    for name, sentence in sorted(outcome.failed.items()):
        complain(f"{name}: {sentence}")
    if outcome.failed:
        raise typer.Exit(FAILED)
    if outcome.waiting or any(row["is_due"] for row in rows):
        raise typer.Exit(SOMETHING_TO_DO)


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time such as 2026-01-31T08:00:00+00:00", param_hint="--begun"
        ) from None


def _say(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(sentence, markup=False)
