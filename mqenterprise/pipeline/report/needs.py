"""The beginning of the report: one sentence for each thing that needs an operator, with a link to its section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pandas as pd

from mqenterprise.markup import Element, element
from mqenterprise.pipeline.report.cells import seconds
from mqenterprise.pipeline.report.shell import section

if TYPE_CHECKING:
    from mqenterprise.pipeline.report.figures import Figures

SOON: Final = 30
"""Days: somebody is needed now for what ends or is full within them."""
_RUNS: Final = pd.Timedelta(days=1)
"""A probe without a heartbeat for this long, the longest period, does not run any more."""
_NAMED: Final = 3
"""The number of things that a sentence names; it counts the others."""


def needs(figures: Figures) -> list[Element]:
    """Return the section; without anything to do it says so."""
    found = [(name, sentence) for name, sentences in _NEEDS for sentence in sentences(figures)]
    if not found:
        return section("needs", "What needs you", "Nothing does.")
    links = [element("li", element("a", sentence, href=f"#{name}")) for name, sentence in found]
    explanation = f"As of {figures.as_of:%Y-%m-%d}, the most urgent first. Each leads to its section."
    return section("needs", "What needs you", explanation, element("ul", *links, class_="needs"))


def _probes(figures: Figures) -> Iterator[str]:
    known = figures["probes"]
    if known.empty:
        return
    running = pd.Timestamp(figures.as_of) - pd.to_datetime(known["last"], utc=True) < _RUNS
    late = known[known["missing_since"].notna() & running].sort_values("missing_since")
    if len(late):
        names = _list(
            f"{row.probe} of {row.node} since {row.missing_since:%Y-%m-%d %H:%M}" for row in late.itertuples()
        )
        yield f"{_many(len(late), 'probe misses its deadline', 'probes miss their deadlines')}: {names}."


def _certificates(figures: Figures) -> Iterator[str]:
    known = figures["certificates"]
    if known.empty:
        return
    known = known.dropna(subset="days_left").sort_values("not_after")
    expired, soon = known[known["days_left"] < 0], known[known["days_left"].between(0, SOON)]
    if len(expired):
        yield f"{_many(len(expired), 'certificate has', 'certificates have')} expired: {_list(expired['user'])}."
    if len(soon):
        names = _list(f"{row.user} on {row.not_after:%Y-%m-%d}" for row in soon.itertuples())
        yield f"{_many(len(soon), 'certificate expires', 'certificates expire')} within {SOON} days: {names}."


def _full(figures: Figures) -> Iterator[str]:
    known = figures["capacity"]
    if known.empty:
        return
    names = known["queue"].where(known["queue"].astype(bool) & known["queue"].notna(), known["node"] + " (all queues)")
    known = known.assign(name=names, soon=pd.to_datetime(known["full_on"]))
    until = pd.Timestamp(figures.as_of).tz_localize(None) + pd.Timedelta(days=SOON)
    full = known[known["used"] >= 1].sort_values("used", ascending=False)
    soon = known[(known["soon"] <= until) & ~(known["used"] >= 1)].sort_values("soon")
    if len(full):
        yield f"{_many(len(full), 'queue is', 'queues are')} full: {_list(full['name'])}."
    if len(soon):
        dated = _list(f"{row.name} on {row.soon:%Y-%m-%d}" for row in soon[["name", "soon"]].itertuples(index=False))
        yield f"{_many(len(soon), 'queue will be', 'queues will be')} full within {SOON} days: {dated}."


def _deaths(figures: Figures) -> Iterator[str]:
    deaths = figures.deaths()
    if deaths.empty:
        return
    causes = deaths.assign(cause=deaths["cause"].fillna("unknown cause")).groupby("cause", sort=True)
    for cause, rows in sorted(causes, key=lambda one: -int(one[1]["messages"].sum())):
        queues = _list(rows["queue"].fillna("unknown queues"))
        yield f"{_many(int(rows['messages'].sum()), 'message', 'messages')} died, {cause}: {queues}."


def _silent(figures: Figures) -> Iterator[str]:
    links = figures.links()
    if not figures.messages or "pairs" not in links.columns:
        return
    silent = links[(links["crossings"] == 0) & (links["pairs"] > 0)]
    if len(silent):
        names = _list(f"{row.site1} – {row.site2}" for row in silent.itertuples())
        yield f"No message crossed {_many(len(silent), 'link', 'links')} that routes lead over: {names}."


def _slowest(figures: Figures) -> Iterator[str]:
    queues = figures.by_queue()
    if queues.empty:
        return
    slowest = queues.dropna(subset="p95").sort_values(["p95", "queue"], ascending=[False, True]).head(_NAMED)
    if len(slowest):
        times = _list(f"{row.queue} ({seconds(row.p95 / 1e6)})" for row in slowest.itertuples())
        yield f"The worst service levels, by the time within which 95% of the messages were in the queue: {times}."


_NEEDS: Final[tuple[tuple[str, Callable[[Figures], Iterator[str]]], ...]] = (
    ("probes", _probes),
    ("keys", _certificates),
    ("capacity", _full),
    ("dead-letters", _deaths),
    ("sites", _silent),
    ("queues", _slowest),
)
"""The sections with what they find, the most urgent first."""


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _list(names: Iterator[str] | pd.Series) -> str:
    """Return the first names, and how many more there are."""
    found = list(dict.fromkeys(map(str, names)))
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
