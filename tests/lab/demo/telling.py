"""What is printed: a line for each chapter when it is over, and at the end what was promised and what happened."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import Console


class BrokenPromise(Exception):
    """What happened instead, and what was said about it, if there is more to read."""

    def __init__(self, happened: str, said: str = "") -> None:
        super().__init__(happened)
        self.said = said


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, in words, and the figures of it."""

    happened: str
    figures: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One promise."""

    promise: str
    kept: bool
    outcome: Outcome
    seconds: float


@dataclass
class Teller:
    """Tells to one console."""

    console: Console
    lines: list[Line] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _note: Callable[[str], None] | None = None

    async def tell(self, doing: str, promise: str, work: Awaitable[Outcome]) -> bool:
        """Say what is done while it is, then what came of it; whether the promise was kept."""
        since = time.monotonic()
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(doing)
            self._note = lambda note: progress.update(task, description=f"{doing}: {note}")
            said = ""
            try:
                outcome, kept = await work, True
            except BrokenPromise as error:
                outcome, kept, said = Outcome(str(error)), False, error.said
            except TimeoutError:
                outcome, kept = Outcome("not within the time that was given"), False
            except Exception as error:  # whatever it is, the promise is broken and the table says so
                outcome, kept = Outcome(f"{type(error).__name__}: {error}"), False
        line = Line(promise, kept, outcome, time.monotonic() - since)
        self.lines.append(line)
        self._say(doing, line)
        if said:
            self.console.print(said, markup=False, style="dim")
        return kept

    def note(self, note: str) -> None:
        """How far it has come with what is done now. Only seen meanwhile, in a terminal."""
        if self._note is not None:
            self._note(note)

    def _say(self, doing: str, line: Line) -> None:
        sign = "[green]✔[/]" if line.kept else "[red]✘[/]"
        figures = f" ({line.outcome.figures})" if line.outcome.figures else ""
        self.console.print(f"{sign} [dim]{line.seconds:5.1f} s[/]  {doing}: ", end="", soft_wrap=True)
        self.console.print(f"{line.outcome.happened}{figures}", markup=False, soft_wrap=True)

    def conclude(self, where: str, expected: int) -> bool:
        """The table; whether as many promises as expected were kept, and none broken."""
        table = Table(title="What was promised, and what happened", title_justify="left", show_lines=True)
        for heading in ("", "promised", "what happened", "figures"):
            table.add_column(heading)
        table.add_column("time", justify="right", no_wrap=True)
        for line in self.lines:
            sign = "[green]kept[/]" if line.kept else "[red]BROKEN[/]"
            table.add_row(sign, line.promise, line.outcome.happened, line.outcome.figures, f"{line.seconds:.1f} s")
        self.console.print()
        self.console.print(table)
        kept = sum(line.kept for line in self.lines)
        untold = f"; {expected - len(self.lines)} were not come to" if len(self.lines) < expected else ""
        seconds = time.monotonic() - self.began
        self.console.print(f"{kept} of {expected} promises were kept{untold}, in {seconds:.0f} s, on {where}.")
        return kept == expected
