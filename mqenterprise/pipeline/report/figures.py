"""The contents of the report, from the tables: numbers and small frames, before any drawing or page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from mqenterprise.pipeline.tables import StoredTable, Tables

if TYPE_CHECKING:
    from mqenterprise.pipeline.directory import DirectoryTables
    from mqenterprise.pipeline.sources.quarantine import Record

READ: Final[Mapping[str, tuple[str, ...]]] = {
    "service_levels": (
        "date",
        "site",
        "destination_site",
        "queue",
        "hour",
        "messages",
        "bytes",
        "reached",
        "received",
        "died",
        "latency_us_sum",
        "latency_us_max",
        "last_received",
        "oldest_waiting",
    ),
    "latencies": ("date", "site", "destination_site", "queue", "latency_us", "messages"),
    "backlog": ("date", "queue", "hour", "growth"),
    "dead_letters": (
        "date",
        "site",
        "cause",
        "queue",
        "sender",
        "origin",
        "hour",
        "messages",
        "first",
        "last",
        "sample",
        "kept",
        "kept_at",
        "kept_in",
    ),
    "routes": ("date", "detour", "hops"),
    "hops": ("date", "from_node", "to_node", "messages", "wait_us_sum", "wait_us_max", "slowest"),
    "link_use": ("date", "from_site", "to_site", "crossings", "lost", "bytes", "delay_us_sum"),
}
"""The tables that are read for a window in time, with the needed columns. All others are read whole."""
LIFE: Final = (
    "source_id",
    "message_number",
    "destination",
    "queue",
    "origin",
    "sender",
    "size",
    "sent",
    "sent_time",
    "hops",
    "received",
    "death",
)
"""The columns that show the life of an example."""
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95}
MOST_EXAMPLES: Final = 300
WHOLE: Final = ("link_costs", "keys", "certificates", "capacity", "waiting", "probes")
MOST_REASONS: Final = 9
OTHERS: Final = "other reasons"
STOPPED_AFTER: Final = pd.Timedelta(hours=1)
"""A consumer has stopped when messages wait in its queue for this long, and nobody received one."""
MOST_HOURS: Final = 24 * 14
"""The hours before the last event for which the report has reasons for waiting."""


@dataclass(frozen=True)
class Figures:
    """The parts of the tables that the report needs, in memory. A missing table is an empty frame.

    ``lives`` (``date``, ``status``, ``messages``) replaces the service levels if those were not requested.
    """

    frames: Mapping[str, pd.DataFrame]
    as_of: datetime
    """The moment that the report describes: the time of the last event."""
    since: str | None = None
    aside: Sequence[Record] = ()
    sites: Mapping[str, bool] = field(default_factory=dict)
    """The sites of the directory, with whether each is foreign."""
    lives: pd.DataFrame | None = None
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The rows of ``message_life`` for the samples of dead letters."""
    written: datetime | None = None
    """When the report was made."""

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.frames[name]

    def has(self, name: str) -> bool:
        """Return whether a table exists and has rows."""
        return len(self[name]) > 0

    def _lives(self, *status: str) -> int:
        assert self.lives is not None
        return _sum(self.lives[self.lives["status"].isin(status)] if status else self.lives, "messages")

    @property
    def messages(self) -> int:
        return _sum(self["service_levels"], "messages") if self.lives is None else self._lives()

    @property
    def received(self) -> int:
        return _sum(self["service_levels"], "received") if self.lives is None else self._lives("received")

    @property
    def died(self) -> int:
        return _sum(self["service_levels"], "died") if self.lives is None else self._lives("died")

    @property
    def waiting(self) -> int:
        """The number of messages in their queues that were not received."""
        return _sum(self["backlog"], "growth") if self.lives is None else self._lives("reached")

    @property
    def on_the_way(self) -> int:
        if self.lives is not None:
            return self._lives("under way")
        return self.messages - _sum(self["service_levels"], "reached") - self._died_on_the_way

    @property
    def _died_on_the_way(self) -> int:
        reached = _sum(self["service_levels"], "reached")
        return self.died - (reached - self.received - self.waiting)

    @property
    def mean_latency(self) -> float | None:
        """The mean time to the queue in seconds."""
        rows = self._timed()
        reached = _sum(rows, "reached")
        return _sum(rows, "latency_us_sum") / reached / 1e6 if reached else None

    def percentiles(self) -> tuple[float, ...] | None:
        """The median and the 95th percentile of the time to the queue, in seconds."""
        found = nearest_ranks(self["latencies"])
        return None if found.empty else tuple(float(value) / 1e6 for value in found.iloc[0])

    def _timed(self) -> pd.DataFrame:
        """Return the service levels of messages whose sending was reported: only those have a latency."""
        rows = self["service_levels"]
        return rows[rows["latency_us_sum"].notna() & rows["hour"].notna()]

    @property
    def detours(self) -> int:
        return _sum(self["routes"], "detour")

    def days(self) -> tuple[str, str] | None:
        """The first and the last day that messages were sent."""
        rows = self["service_levels"] if self.lives is None else self.lives
        dates = [date for date in rows["date"].unique() if date[:1].isdigit()]
        return (min(dates), max(dates)) if dates else None

    def by_queue(self) -> pd.DataFrame:
        """Service levels by queue over the whole window, the busiest first."""
        rows = self["service_levels"]
        if rows.empty:
            return rows
        table = rows.groupby("queue", as_index=False).agg(
            messages=("messages", "sum"),
            received=("received", "sum"),
            died=("died", "sum"),
            worst=("latency_us_max", "max"),
        )
        growth = self["backlog"].groupby("queue")["growth"].sum() if len(self["backlog"]) else pd.Series(dtype="int64")
        table["waiting"] = table["queue"].map(growth).fillna(0).astype("int64")
        return self._with_latency(table, ["queue"]).sort_values(["messages", "queue"], ascending=[False, True])

    def by_pair(self) -> pd.DataFrame:
        """Messages and latency by pair of sites, the busiest first."""
        rows = self._timed()
        if rows.empty:
            return rows
        pair = ["site", "destination_site"]
        table = rows.groupby(pair, as_index=False).agg(messages=("reached", "sum"), worst=("latency_us_max", "max"))
        return self._with_latency(table, pair).sort_values(["messages", *pair], ascending=[False, True, True])

    def _with_latency(self, table: pd.DataFrame, key: list[str]) -> pd.DataFrame:
        """Add the mean, the median and the 95th percentile in microseconds; NaN where they are unknown."""
        timed = self._timed().groupby(key, as_index=False)[["latency_us_sum", "reached"]].sum()
        timed["mean"] = timed["latency_us_sum"] / timed["reached"]
        table = table.merge(timed[[*key, "mean"]], on=key, how="left")
        return table.merge(nearest_ranks(self["latencies"], key), on=key, how="left")

    def pair_hours(self, most: int = 24) -> pd.DataFrame:
        """Mean latency in seconds: pairs of sites by hour of the day; the busiest pairs."""
        rows = self._timed()
        if rows.empty:
            return pd.DataFrame()
        rows = rows.assign(pair=rows["site"] + " → " + rows["destination_site"], of_day=rows["hour"].dt.hour)
        busiest = rows.groupby("pair")["messages"].sum().sort_values(ascending=False).index[:most]
        sums = rows[rows["pair"].isin(busiest)].groupby(["pair", "of_day"])[["latency_us_sum", "reached"]].sum()
        means = (sums["latency_us_sum"] / sums["reached"] / 1e6).unstack("of_day")
        return means.reindex(index=busiest, columns=range(24))

    def deaths(self) -> pd.DataFrame:
        """Causes of death by queue, the worst first, with the first message of each as its example."""
        rows = self["dead_letters"]
        if rows.empty:
            return rows
        table = (
            rows.assign(place=rows["kept_in"].where(rows["kept_at"].isna(), rows["kept_at"] + ": " + rows["kept_in"]))
            .sort_values(["first", "sample"])
            .groupby(["cause", "queue"], as_index=False, dropna=False)
            .agg(
                messages=("messages", "sum"),
                origins=("origin", "nunique"),
                first=("first", "min"),
                last=("last", "max"),
                date=("date", "first"),
                sample=("sample", "first"),
                kept=("kept", "sum"),
                places=("place", _places),
            )
        )
        return table.sort_values(["messages", "cause", "queue"], ascending=[False, True, True])

    def deaths_by_hour(self) -> pd.DataFrame:
        """Deaths by hour and cause, hours without any included."""
        rows = self["dead_letters"]
        if rows.empty:
            return pd.DataFrame()
        table = rows.groupby(["hour", "cause"])["messages"].sum().unstack("cause", fill_value=0)
        step = "h" if table.index.max() - table.index.min() < pd.Timedelta(days=14) else "D"
        return table.resample(step).sum()

    def slowest_hops(self) -> pd.DataFrame:
        """Return the hops between two machines with mean and longest time, the slowest mean first."""
        rows = self["hops"]
        if rows.empty:
            return rows
        table = (
            rows.sort_values("wait_us_max", ascending=False)
            .groupby(["from_node", "to_node"], as_index=False, dropna=False)
            .agg(
                messages=("messages", "sum"),
                total=("wait_us_sum", "sum"),
                worst=("wait_us_max", "max"),
                slowest=("slowest", "first"),
            )
        )
        table["mean"] = table["total"] / table["messages"]
        return table.sort_values(["mean", "from_node", "to_node"], ascending=[False, True, True])

    def stopped_consumers(self) -> pd.DataFrame:
        """Return the queues in which messages wait and nobody receives: ``waiting``, ``oldest``, ``received``."""
        rows = self["service_levels"]
        if rows.empty:
            return pd.DataFrame()
        table = rows.groupby("queue", as_index=False).agg(
            oldest=("oldest_waiting", "min"), received=("last_received", "max")
        )
        growth = self["backlog"].groupby("queue")["growth"].sum() if len(self["backlog"]) else pd.Series(dtype="int64")
        table["waiting"] = table["queue"].map(growth).fillna(0).astype("int64")
        table["since"] = table[["oldest", "received"]].apply(pd.to_datetime, utc=True).max(axis=1)
        silent = pd.Timestamp(self.as_of) - table["since"] >= STOPPED_AFTER
        table = table[table["oldest"].notna() & silent]
        return table.sort_values(["since", "queue"])

    def waiting_by_hour(self) -> pd.DataFrame:
        """Return for each hour and reason how many outgoing queues waited, on average over the hour."""
        rows = self["waiting"]
        if rows.empty:
            return pd.DataFrame()
        last = pd.Timestamp(self.as_of)
        begins = rows["begin"].clip(upper=last)
        ends = rows["end"].fillna(last).clip(begins, last)
        first = max(rows["begin"].min(), last - pd.Timedelta(hours=MOST_HOURS))
        edges = pd.date_range(first.floor("h"), last.ceil("h"), freq="h")
        if len(edges) < 2:
            return pd.DataFrame()
        found = {
            reason: np.diff(_waited(some, ends[some.index], edges)) / 3600
            for reason, some in begins.groupby(rows["reason"])
        }
        table = pd.DataFrame(found, index=edges[:-1])
        table = table.loc[:, table.sum() > 0]
        order = table.sum().sort_values(ascending=False).index
        if len(order) > MOST_REASONS:
            table[OTHERS] = table[order[MOST_REASONS - 1 :]].sum(axis=1)
            order = [*order[: MOST_REASONS - 1], OTHERS]
        return table[order]

    def waiting_reasons(self) -> pd.DataFrame:
        """Return the reasons for waiting by queue, the longest wait first."""
        rows = self["waiting"]
        if rows.empty:
            return rows
        table = (
            rows.assign(wait_us=rows["wait_us"].astype("float64"))
            .sort_values("begin")
            .groupby(["reason", "node", "queue"], as_index=False, dropna=False)
            .agg(
                times=("begin", "count"),
                waited=("wait_us", "sum"),
                first=("begin", "min"),
                last=("end", "last"),
                goes_on=("end", lambda ends: bool(ends.isna().any())),
                detail=("detail", "last"),
            )
        )
        return table.sort_values(["waited", "node", "queue"], ascending=[False, True, True])

    def traffic_by_hour(self) -> pd.DataFrame:
        """Messages sent and died by hour."""
        rows = self["service_levels"]
        if rows.empty:
            return pd.DataFrame()
        table = rows.dropna(subset="hour").groupby("hour")[["messages", "died"]].sum()
        if table.empty:
            return table
        step = "h" if table.index.max() - table.index.min() < pd.Timedelta(days=14) else "D"
        return table.resample(step).sum()

    def links(self) -> pd.DataFrame:
        """Return the traffic between sites, both directions together, with costs where the directory has a link."""
        use = self["link_use"]
        costs = self["link_costs"]
        columns = ["site1", "site2", "crossings", "lost", "bytes", "delay"]
        if len(use):
            ends = use[["from_site", "to_site"]]
            use = use.assign(site1=ends.min(axis=1), site2=ends.max(axis=1))
            table = use.groupby(["site1", "site2"], as_index=False)[
                ["crossings", "lost", "bytes", "delay_us_sum"]
            ].sum()
            table["delay"] = table["delay_us_sum"] / table["crossings"].where(table["crossings"] > 0) / 1e6
            table = table[columns]
        else:
            table = pd.DataFrame(columns=columns)
        if len(costs):
            known = costs[["site1", "site2", "cost", "suggested_cost", "pairs", "suggested_pairs"]]
            table = table.merge(known, on=["site1", "site2"], how="outer")
        counts = ["crossings", "lost", "bytes"]
        table[counts] = table[counts].apply(pd.to_numeric).fillna(0)
        table["delay"] = pd.to_numeric(table["delay"])
        return table.sort_values(["crossings", "site1", "site2"], ascending=[False, True, True])


def _waited(begins: pd.Series, ends: pd.Series, edges: pd.DatetimeIndex) -> Any:
    """Return the seconds of these intervals before each edge, all together."""
    seen = (edges - edges[0]).total_seconds().to_numpy()

    def before(moments: pd.Series) -> Any:
        times = np.sort((moments - edges[0]).dt.total_seconds().to_numpy())
        sums = np.concatenate([[0.0], np.cumsum(times)])
        place = np.searchsorted(times, seen)
        return place * seen - sums[place]

    return before(begins) - before(ends)


def _places(found: pd.Series) -> tuple[str, ...]:
    """Return where copies are kept, a few of the places."""
    return tuple(sorted(found.dropna().unique())[:3])


def nearest_ranks(latencies: pd.DataFrame, key: Sequence[str] = ()) -> pd.DataFrame:
    """Return percentiles of ``latency_us`` by ``key``: the smallest values that at least that share does not exceed."""
    if latencies.empty:
        return pd.DataFrame(columns=[*key, *PERCENTILES])
    rows = latencies.assign(all=0).sort_values("latency_us")
    by = list(key) or ["all"]
    upto = rows.groupby(by)["messages"].cumsum()
    whole = rows.groupby(by)["messages"].transform("sum")
    found = {name: rows[upto >= share * whole].groupby(by)["latency_us"].min() for name, share in PERCENTILES.items()}
    return pd.DataFrame(found).reset_index(drop=not key)


def figures_of(
    target: str,
    directory: DirectoryTables,
    as_of: datetime,
    *,
    written: datetime | None = None,
    since: str | None = None,
    aside: Sequence[Record] = (),
) -> Figures:
    """Read the figures of the report; with ``since`` (YYYY-MM-DD), of messages that were sent from that day on."""
    tables = Tables(target)
    frames = {}
    for name, columns in READ.items():
        table = tables[name]
        frames[name] = _frame(table.arrow(_dates(table, since), columns), columns)
    for name in WHOLE:
        frames[name] = _frame(tables[name].arrow(), ())
    sites = {row["site"]: bool(row["foreign"]) for row in directory.arrow("sites").to_pylist()}
    lives = None if tables["service_levels"].last() else _lives(tables["message_life"], since)
    figures = Figures(frames, as_of, since, tuple(aside), sites, lives, written=written)
    return replace(figures, examples=_examples(figures.deaths().head(MOST_EXAMPLES), tables["message_life"]))


def _examples(deaths: pd.DataFrame, table: StoredTable) -> dict[str, dict[str, Any]]:
    """Return the lives of the sample messages of the dead letters, by the names that they have there."""
    if deaths.empty or table.last() is None:
        return {}
    wanted = {(row.sample, row.queue) for row in deaths[["sample", "queue"]].itertuples(index=False)}
    parts = [sample.rpartition("\\") for sample, _ in wanted]
    condition = compute.field("source_id").isin(pa.array([source for source, _, _ in parts], pa.string()))
    condition &= compute.field("message_number").isin(pa.array([int(number) for _, _, number in parts], pa.int64()))
    found = {}
    for row in table.matching(condition, set(deaths["date"]), LIFE).to_pylist():
        name = f"{row['source_id']}\\{row['message_number']}"
        if (name, row["queue"] or row["destination"]) in wanted and row["death"] is not None:
            found[name] = row
    return found


def _dates(table: StoredTable, since: str | None) -> set[str]:
    """Return the dates from ``since`` on. Messages without a known send date are excluded."""
    return {date for date in table.dates() if since is None or (date[:1].isdigit() and date >= since)}


def _lives(table: StoredTable, since: str | None) -> pd.DataFrame:
    """Count messages by date and status."""
    rows = table.arrow(_dates(table, since), ("date", "status"))
    if rows is None:
        return pd.DataFrame(columns=["date", "status", "messages"])
    counted = rows.group_by(["date", "status"]).aggregate([([], "count_all")])
    return counted.rename_columns({"count_all": "messages"}).to_pandas()


def _frame(table: object, columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=list(columns)) if table is None else table.to_pandas()  # type: ignore[attr-defined]


def _sum(frame: pd.DataFrame, column: str) -> int:
    return int(frame[column].sum()) if len(frame) else 0
