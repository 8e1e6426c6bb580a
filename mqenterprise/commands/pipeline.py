"""``mqenterprise analyze`` and ``mqenterprise simulate``: what the enterprise did, and traffic to try it with.

Exit codes: 0 done; 1 it failed; 2 wrong usage.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mqenterprise.commands.directory_option import FAILED, DirectoryFile
from qmnode.commands.error_line import complain
from qmnode.errors import ConfigurationError
from qmnode.export.events import shown

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from mqenterprise.pipeline.analysis import Analysis, Summed
    from mqenterprise.pipeline.sources.quarantine import Record

app = typer.Typer(no_args_is_help=True, add_completion=False)

REPORT: Final = "report.html"
_RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception): (.+)")
"""The last line of a Python traceback."""
_MEMORY: Final = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos)://.+")


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn expected errors into sentences and exit code 1."""
    try:
        yield
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        complain(sentence)
        raise typer.Exit(FAILED) from None


def _sentence(error: Exception) -> str | None:
    """Return what to say of an expected error, None for others. Their classes are loaded only now."""
    from deltalake.exceptions import CommitFailedError, DeltaError
    from pyspark.errors import PySparkException

    from qmnode.directory.port import DirectoryOperationError

    match error:
        case CommitFailedError():
            return f"another run has written to the same tables; nothing of this one is seen, run it again ({error})"
        case PySparkException():
            return _cause(str(error))
        case ConfigurationError() | DirectoryOperationError() | DeltaError() | OSError():
            return str(error)
    return None


def _cause(said: str) -> str:
    """Return the sentence about the cause from Spark's error, which has the stack frames of two languages."""
    if "JAVA_GATEWAY_EXITED" in said:
        return "Spark did not start; Java says above why. It needs Java 17, and see --master and --memory"
    said = said.partition("JVM stacktrace:")[0]
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    return f"Spark failed: {raised[-1] if raised else lines[0]}"


def _needs(extra: str) -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        complain(f"this needs Spark: pip install 'qmnode[{extra}]', and a Java 17 runtime")
        raise typer.Exit(FAILED) from None


def _day(text: str | None) -> str | None:
    """A day, or the day that a moment is in, in UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day: write it as 2026-01-31") from None
    return (moment.astimezone(UTC) if moment.tzinfo else moment).date().isoformat()


def _master(text: str | None) -> str | None:
    if text is not None and not _MASTER.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no master of Spark's: local[2], spark://host:7077, yarn, k8s://...")
    return text


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no size: write it as 2g or 512m")
    return text


@app.command()
def analyze(
    job: Annotated[
        str,
        typer.Argument(
            help="message-life, routes, service-levels, dead-letters, journals-and-traces, waiting, heartbeats, "
            "link-costs, keys, capacity; all."
        ),
    ],
    sources: Annotated[
        list[str], typer.Option("--from", help="Where segments are: directories or s3://bucket/prefix.")
    ],
    target: Annotated[str, typer.Option("--to", help="Where the tables and the report go: a directory or s3://.")],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            callback=_day,
            help="Only messages that were sent on this day (YYYY-MM-DD, UTC) or later, in tables and report.",
        ),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Continue with new segments until interrupted.")] = False,
    interval: Annotated[
        float, typer.Option(help="Seconds between looks for new segments, with --stream.", min=0.1)
    ] = 60,
    segments: Annotated[int, typer.Option(help="Segments of one commit at most, with --stream; 0: all.", min=0)] = 0,
    directory_file: DirectoryFile = None,
    master: Annotated[
        str | None, typer.Option(callback=_master, help="Spark's master. Default: all cores of this machine.")
    ] = None,
    memory: Annotated[str, typer.Option(callback=_memory, help="Memory of Spark's driver.")] = "2g",
    title: Annotated[str, typer.Option(help="The report's title.")] = "Message Queuing",
) -> None:
    """Analyse exported events: tables by date and site, and a report.

    Only what is new is read. A run that was cut is run again and goes on; nothing is counted twice. Links, keys and
    certificates are those of --directory, or of _directory in the place of simulated segments.
    """
    _needs("pipeline")
    if job != "all":
        from mqenterprise.pipeline.catalogue import JOBS

        if job not in JOBS:
            raise typer.BadParameter(f"there is no job {job!r}; there are {', '.join(JOBS)}, and all", param_hint="JOB")
    with _explained(), _Steps() as steps:
        from mqenterprise.pipeline import java
        from mqenterprise.pipeline.session import open_session
        from mqenterprise.pipeline.sources.segments import check_bucket, check_places, events_of, find_segments
        from mqenterprise.pipeline.tables import Tables
        from qmnode.export.places import Place

        if not stream:
            check_places(sources)
        check_bucket(target)
        Tables(target)  # refuses a folder in which there can be no tables, also before Spark starts
        formats: list[type[DataSource]] = []
        if directory_file is not None:
            from mqenterprise.directory.chosen_directory import load_settings
            from mqenterprise.pipeline.sources.directory_source import DirectorySource

            load_settings(directory_file)  # its errors are reported before Spark starts
            formats.append(DirectorySource)
        events = None if stream else events_of(find_segments(sources)[0])
        steps.say("Starting Spark")
        Thread(target=_load, name="modules", daemon=True).start()  # meanwhile this process has nothing to do
        spark = open_session(master, memory=memory, events=events, sources=formats)
        from mqenterprise.pipeline import directory
        from mqenterprise.pipeline.analysis import Analysis

        told: list[Record] = []
        while True:
            # Read anew each time: a stream runs for weeks.
            tables = (
                directory.read([Place.open(address) for address in sources])
                if directory_file is None
                else directory.ask(spark, str(directory_file))
            )
            most = segments if stream else 0
            analysis = Analysis(spark, sources, target, tables, say=steps.say, since=since, most=most)
            steps.begin(analysis.steps(job))
            summed = analysis.run(job)
            if summed.tables or summed.aside != told or not stream:
                steps.say("Writing the report")
                _report(analysis, summed, title)
                _tell(summed, target)
                told = summed.aside
            if not stream:
                java.keep_classes()
                return
            if not summed.segments:
                steps.say("Waiting for segments")
                time.sleep(interval)


def _load() -> None:
    """Load what is needed when Java has started."""
    import_module("mqenterprise.pipeline.analysis")
    import_module("mqenterprise.pipeline.report.page")


def _report(analysis: Analysis, summed: Summed, title: str) -> None:
    from mqenterprise.pipeline.report.figures import figures_of
    from mqenterprise.pipeline.report.page import page
    from qmnode.export.places import Place

    figures = figures_of(
        analysis.target,
        analysis.directory,
        summed.as_of,
        written=analysis.now,
        since=analysis.since,
        aside=summed.aside,
    )
    Place.open(analysis.target).put(REPORT, page(figures, title).encode())


def _tell(summed: Summed, target: str) -> None:
    from qmnode.export.places import below

    console = _console()
    unread = f"{summed.unreadable:,} could not be read, see below; " if summed.unreadable else ""
    console.print(
        f"{summed.segments:,} new segments with {summed.events:,} events; {unread}"
        f"{len(summed.tables)} tables written to {shown(target)}; the report is {shown(below(target, REPORT))}",
        markup=False,
    )
    for record in summed.aside:
        console.print(f"set aside: {record.path} ({record.reason}): {record.sentence}", markup=False)


@app.command()
def simulate(
    declared: Annotated[Path, typer.Argument(help="The declared enterprise: a YAML file, or a directory of them.")],
    target: Annotated[str, typer.Option("--to", help="Where the segments go: a directory or s3://bucket/prefix.")],
    traffic: Annotated[Path | None, typer.Option(help="YAML: links, loads, receivers; docs/pipeline.md.")] = None,
    messages: Annotated[int | None, typer.Option(help="Number of messages; overrides the file.", min=1)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random numbers; the same seed gives the same run.")
    ] = None,
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
    from qmnode.export.places import below

    with _explained():
        try:
            declaration = load(declared, for_directory=True).declaration
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
        f"{len(outcome.messages.sent):,} messages in {events:,} events are in {shown(target)}; "
        f"the truth is {shown(below(target, TRUTH))}",
        markup=False,
    )


class _Steps:
    """Progress on standard error: a progress bar at a terminal, otherwise one line for each stage."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._done, self._total = -1, 0
        self._last = ""

    def __enter__(self) -> _Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, total: int) -> None:
        """Start with this number of steps."""
        self._done, self._total = -1, total
        self._progress.update(self._task, total=total, completed=0)

    def say(self, step: str) -> None:
        """Show that the next step begins."""
        self._done = min(self._done + 1, max(self._total - 1, 0))
        self._progress.update(self._task, description=step, completed=self._done)
        # A waiting stream reports that once.
        if self._progress.disable and step != self._last:
            self._console.print(step, markup=False)
        self._last = step

    def at(self, done: int, total: int) -> None:
        """Show the progress of this step."""
        self._progress.update(self._task, total=total, completed=done)
