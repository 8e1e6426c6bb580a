"""``mqenterprise analyze`` and ``mqenterprise simulate``: what the enterprise did, and traffic to try it with.

Exit codes: 0 done; 1 it failed; 2 wrong usage.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mqenterprise.commands.opening import FAILED, DirectoryFile, complain
from qmnode.directory import DirectoryOperationError
from qmnode.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqenterprise.pipeline.analysis import Analysis, Summed

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

REPORT: Final = "report.html"


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


@contextmanager
def _explained() -> Iterator[None]:
    """What can go wrong, told in sentences, with exit code 1."""
    from deltalake.exceptions import CommitFailedError, DeltaError
    from pyspark.errors import PySparkException

    try:
        yield
        return
    except CommitFailedError as error:
        complain(f"another run has written to the same tables; nothing of this one is seen, run it again ({error})")
    except PySparkException as error:
        # The cause first: what follows are the frames of two languages.
        lines = [line for line in str(error).splitlines() if line.strip()]
        complain(f"Spark failed: {lines[0]}" + (f" … {lines[-1]}" if len(lines) > 1 else ""))
    except (ConfigurationError, DirectoryOperationError, DeltaError, OSError) as error:
        complain(str(error))
    raise typer.Exit(FAILED)


def _needs(extra: str) -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        complain(f"this needs Spark: pip install 'qmnode[{extra}]', and a Java 17 runtime")
        raise typer.Exit(FAILED) from None


@app.command()
def analyze(
    job: Annotated[
        str, typer.Argument(help="message-life, routes, service-levels, dead-letters, link-costs, keys, capacity; all.")
    ],
    sources: Annotated[
        list[str], typer.Option("--from", help="Where segments are: directories or s3://bucket/prefix.")
    ],
    target: Annotated[str, typer.Option("--to", help="Where the tables and the report go: a directory or s3://.")],
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The report's first day of sending.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Go on with what comes in, until interrupted.")] = False,
    interval: Annotated[
        float, typer.Option(help="Seconds between looks for new segments, with --stream.", min=0.1)
    ] = 60,
    segments: Annotated[int, typer.Option(help="Segments of one commit at most, with --stream; 0: all.", min=0)] = 0,
    directory_file: DirectoryFile = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; all cores of this machine if not given.")] = None,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    title: Annotated[str, typer.Option(help="The report's title.")] = "Message Queuing",
) -> None:
    """Say where messages went: tables by date and site, and a report.

    Only what is new is read. A run that was cut is run again and goes on; nothing is counted twice. Links, keys and
    certificates are those of --directory, or of _directory in the place of simulated segments.
    """
    _needs("pipeline")
    from mqenterprise.pipeline import directory
    from mqenterprise.pipeline.analysis import Analysis
    from mqenterprise.pipeline.catalogue import JOBS
    from mqenterprise.pipeline.session import open_session
    from qmnode.export.places import Place

    if job != "all" and job not in JOBS:
        raise typer.BadParameter(f"there is no job {job!r}; there are {', '.join(JOBS)}, and all", param_hint="JOB")
    first_day = None if since is None else since.date().isoformat()
    with _explained(), _Steps() as steps:
        steps.say("Starting Spark")
        spark = open_session(master, memory=memory)
        tables = (
            directory.read([Place.open(address) for address in sources])
            if directory_file is None
            else directory.ask(spark, str(directory_file))
        )
        analysis = Analysis(spark, sources, target, tables, say=steps.say, most=segments if stream else 0)
        while True:
            steps.begin(analysis.steps(job))
            summed = analysis.run(job)
            if summed.tables or not stream:
                steps.say("Writing the report")
                _report(analysis, summed, title, first_day)
                _tell(summed, target)
            if not stream:
                return
            if not summed.segments:
                steps.say("Waiting for segments")
                time.sleep(interval)


def _report(analysis: Analysis, summed: Summed, title: str, since: str | None) -> None:
    from mqenterprise.pipeline.report.figures import figures_of
    from mqenterprise.pipeline.report.page import page
    from qmnode.export.places import Place

    figures = figures_of(analysis.target, analysis.directory, datetime.now(UTC), since=since, aside=summed.aside)
    Place.open(analysis.target).put(REPORT, page(figures, title).encode())


def _tell(summed: Summed, target: str) -> None:
    console = _console()
    console.print(
        f"{summed.segments:,} new segments with {summed.events:,} events; "
        f"{len(summed.tables)} tables written to {target}; the report is {target.rstrip('/')}/{REPORT}",
        markup=False,
    )
    for record in summed.aside:
        console.print(f"set aside: {record.path} ({record.reason}): {record.sentence}", markup=False)


@app.command()
def simulate(
    declared: Annotated[Path, typer.Argument(help="The declared enterprise: a YAML file, or a directory of them.")],
    target: Annotated[str, typer.Option("--to", help="Where the segments go: a directory or s3://bucket/prefix.")],
    traffic: Annotated[Path | None, typer.Option(help="YAML: links, loads, receivers; docs/pipeline.md.")] = None,
    messages: Annotated[int | None, typer.Option(help="How many messages; wins over the file.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Of the chances; the same seed gives the same run.")] = None,
) -> None:
    """Simulate a declared enterprise: segments as nodes write them, with the truth of every message.

    The truth is _truth/message_life.parquet, the directory _directory/*.parquet.
    """
    _needs("pipeline")
    from mqenterprise.pipeline.simulation.run import simulate as run
    from mqenterprise.pipeline.simulation.traffic import Traffic
    from mqenterprise.pipeline.simulation.writing import TRUTH, write
    from mqenterprise.topology.check import load
    from mqenterprise.topology.problems import DeclarationError

    with _explained():
        try:
            declaration = load(declared).declaration
        except DeclarationError as error:
            raise ConfigurationError("\n".join(map(str, error.problems))) from None
        chosen = Traffic.read(traffic) if traffic is not None else Traffic()
        wins = {name: value for name, value in (("messages", messages), ("seed", seed)) if value is not None}
        with _Steps() as steps:
            steps.say("Simulating")
            outcome = run(declaration, chosen.model_copy(update=wins))
            steps.say("Writing segments")
            events = write(outcome, target, steps.at)
    _console().print(
        f"{len(outcome.messages.sent):,} messages in {events:,} events are in {target}; "
        f"the truth is {target.rstrip('/')}/{TRUTH}",
        markup=False,
    )


class _Steps:
    """A progress bar on standard error, when that is a terminal."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not Console(stderr=True).is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._done = -1

    def __enter__(self) -> _Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, total: int) -> None:
        """So many steps are to come."""
        self._done = -1
        self._progress.update(self._task, total=total, completed=0)

    def say(self, step: str) -> None:
        """The next step begins."""
        self._done += 1
        self._progress.update(self._task, description=step, completed=self._done)

    def at(self, done: int, total: int) -> None:
        """How far this step is."""
        self._progress.update(self._task, total=total, completed=done)
