"""What the tables have to say, worked out from the simulation's truth by other means than the jobs'."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np
import pandas as pd

from mqenterprise.pipeline.jobs.dead_letters import CAUSES

if TYPE_CHECKING:
    from mqenterprise.pipeline.directory import DirectoryTables
    from mqenterprise.pipeline.tables import Tables

KEY = ["source_id", "message_number", "destination"]


def check_everything(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    """Every table against the truth, exactly."""
    check_message_life(tables, truth, directory)
    check_routes(tables, truth, directory)
    check_paths(tables, truth)
    check_service_levels(tables, truth, directory)
    check_latencies(tables, truth)
    check_backlog(tables, truth)
    check_dead_letters(tables, truth, directory)
    check_links(tables, truth, directory)
    check_keys(tables, truth, directory)
    check_capacity(tables, truth, directory)


def frame(tables: Tables, name: str) -> pd.DataFrame:
    """A table in memory."""
    found = tables[name].arrow()
    assert found is not None, f"{name} was not written"
    return found.to_pandas()


def check_message_life(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    life = frame(tables, "message_life")
    assert len(life) == len(truth), "a row a message"
    assert not life.duplicated(KEY).any()
    both = life.merge(truth, on=KEY, suffixes=("", "_true"))
    assert len(both) == len(truth), "the same messages"
    for name in ("sent", "reached", "received", "status", "origin", "site", "size", "key_fingerprint"):
        same(both[name], both[f"{name}_true"], name)
    same(both["date"], both["sent_true"].dt.strftime("%Y-%m-%d"), "date")
    dead = both[both["status_true"] == "died"]
    same(dead["death"].map(lambda death: death["time"]), dead["died"], "time of death")
    same(dead["death"].map(lambda death: death["reason"]), dead["reason"], "reason")
    same(dead["death"].map(lambda death: death["node"]), dead["died_at"], "where it died")
    same(dead["death"].map(lambda death: death["peer"]), dead["died_before"], "what it waited for")
    published = both[both["queue_true"].isin([row["queue"] for row in directory.arrow("queues").to_pylist()])]
    same(published["queue"], published["queue_true"], "queue")
    assert both.drop(published.index)["queue"].isna().all(), "no name for a queue that nobody knows"


def check_routes(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    graph = graph_of(directory)
    site_of = sites_of(directory)
    both = frame(tables, "routes").merge(truth, on=KEY, suffixes=("", "_true"))
    assert len(both) == len(truth)
    same(both["path"].map(list), both["path_true"].map(list), "path")
    same(both["hops"], both["path_true"].map(len) - 1, "hops")
    same(both["hop_us"].map(list), both["times"].map(lambda times: np.diff(micros(times)).tolist()), "time per hop")
    journeys = both["path_true"].map(lambda path: list(dict.fromkeys(site_of[node] for node in path)))
    costs = journeys.map(lambda sites: sum(graph.edges[step]["cost"] for step in pairwise(sites)))
    least = journeys.map(lambda sites: networkx.dijkstra_path_length(graph, sites[0], sites[-1], weight="cost"))
    same(both["cost"], costs, "cost")
    same(both["least_cost"], least, "least cost")
    same(both["detour"], costs > least, "detour")
    assert both["detour"].any(), "the traffic has detours"


def check_paths(tables: Tables, truth: pd.DataFrame) -> None:
    """Each hop of each message with its times, and the hops of all messages together."""
    wanted: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in truth.itertuples():
        times = micros(row.times)
        for place in range(1, len(row.path)):
            key = (*(getattr(row, name) for name in KEY), row.path[place - 1], row.path[place])
            wanted[key] = (times[place - 1], times[place])
    told = frame(tables, "message_path")
    done = told[told["arrived"].notna()]
    ends = zip(micro(done["came"]), micro(done["arrived"]), strict=True)
    names = done[[*KEY, "from_node", "to_node"]].itertuples(index=False, name=None)
    found = dict(zip(names, ends, strict=True))
    assert len(found) == len(done), "no hop twice"
    assert found == wanted
    by_pair: dict[tuple[str, str], list[int]] = {}
    for key, (came, arrived) in wanted.items():
        by_pair.setdefault(key[3:], []).append(arrived - came)
    sums = frame(tables, "hops").groupby(["from_node", "to_node"])
    found_sums = {
        pair: (int(some["messages"].sum()), int(some["wait_us_sum"].sum()), int(some["wait_us_max"].max()))
        for pair, some in sums
    }
    assert found_sums == {pair: (len(some), sum(some), max(some)) for pair, some in by_pair.items()}


def check_service_levels(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    rows = known_queue(truth, directory)
    rows["date"], rows["hour"] = rows["sent"].dt.strftime("%Y-%m-%d"), rows["sent"].dt.floor("h")
    rows["latency"] = (micro(rows["reached"]) - micro(rows["sent"])).where(rows["reached"].notna())
    rows["waiting"] = (micro(rows["received"]) - micro(rows["reached"])).where(rows["received"].notna())
    check_consumers(tables, rows)
    key = ["date", "site", "destination_site", "queue", "hour"]
    wanted = {group: level(some) for group, some in rows.groupby(key)}
    told = frame(tables, "service_levels")
    assert len(told) == len(wanted)
    for row in told.to_dict("records"):
        expected = wanted[tuple(row[name] for name in key)]
        found = {name: None if pd.isna(row[name]) else int(row[name]) for name in expected}
        assert found == expected, row


def check_consumers(tables: Tables, rows: pd.DataFrame) -> None:
    told = frame(tables, "service_levels").groupby("queue")
    assert told["last_received"].max().dropna().to_dict() == rows.groupby("queue")["received"].max().dropna().to_dict()
    left = rows[rows["status"] == "reached"].groupby("queue")["reached"].min()
    assert told["oldest_waiting"].min().dropna().to_dict() == left.to_dict()
    assert len(left), "the traffic has a queue from which nobody receives"


def check_latencies(tables: Tables, truth: pd.DataFrame) -> None:
    """Percentiles of any window from the counts: within half a per cent of the nearest rank of all values."""
    truth = truth[truth["reached"].notna()]
    told = frame(tables, "latencies")
    assert told["messages"].sum() == len(truth)
    for queue, rows in truth.assign(latency=micro(truth["reached"]) - micro(truth["sent"])).groupby("queue"):
        values = sorted(rows["latency"])
        mine = told[told["queue"] == queue].sort_values("latency_us")
        for share in (0.5, 0.95):
            place = math.ceil(share * len(values)) - 1
            found = mine["latency_us"][mine["messages"].cumsum() > place].iloc[0]
            assert math.isclose(found, values[place], rel_tol=0.005), (queue, share)


def level(rows: pd.DataFrame) -> dict[str, int | None]:
    found: dict[str, int | None] = {
        "messages": len(rows),
        "bytes": int(rows["size"].sum()),
        "reached": int(rows["reached"].notna().sum()),
        "received": int(rows["received"].notna().sum()),
        "died": int((rows["status"] == "died").sum()),
    }
    for name in ("latency", "waiting"):
        values = sorted(rows[name].dropna().astype(int))
        found[f"{name}_us_sum"] = sum(values) if values else None
        found[f"{name}_us_max"] = values[-1] if values else None
        for title, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            # In whole numbers: 0.9 * 10 must be 9.
            place = -(-round(share * 100) * len(values) // 100) - 1
            found[f"{name}_us_{title}"] = values[place] if values else None
    return found


def check_backlog(tables: Tables, truth: pd.DataFrame) -> None:
    rows = truth[truth["reached"].notna()]
    left = rows["received"].fillna(rows["died"])
    wanted = (
        pd.concat(
            [
                pd.DataFrame({"queue": rows["queue"], "hour": rows["reached"].dt.floor("h"), "growth": 1}),
                pd.DataFrame({"queue": rows["queue"], "hour": left.dt.floor("h"), "growth": -1}).dropna(),
            ]
        )
        .groupby(["queue", "hour"])["growth"]
        .sum()
    )
    told = frame(tables, "backlog").groupby(["queue", "hour"])["growth"].sum()
    assert told.to_dict() == wanted.to_dict()


def check_dead_letters(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    dead = known_queue(truth[truth["status"] == "died"], directory)
    dead["cause"] = dead["reason"].map(lambda reason: CAUSES[int(reason)])
    key = ["cause", "queue", "origin"]
    wanted = dead.groupby(key)["died"].agg(["count", "min", "max"])
    told = frame(tables, "dead_letters")
    found = told.groupby(key).agg(count=("messages", "sum"), min=("first", "min"), max=("last", "max"))
    assert found.to_dict("index") == wanted.to_dict("index")
    assert len({*dead["reason"]}) >= 5, "the traffic has many causes"
    samples = dead["source_id"] + "\\" + dead["message_number"].astype(str)
    assert set(told["sample"]) <= set(samples)
    by_date = dead.assign(date=dead["sent"].dt.strftime("%Y-%m-%d")).groupby(["date", "cause"]).size()
    for date, ranked in told.drop_duplicates(["date", "cause"]).groupby("date"):
        order = sorted(by_date[date].items(), key=lambda one: (-one[1], one[0]))
        assert ranked.sort_values("rank")["cause"].to_list() == [cause for cause, _ in order]


def check_links(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    site_of = sites_of(directory)
    wanted: dict[tuple[str, str], list[int]] = {}
    for row in truth.itertuples():
        times = micros(row.times)
        for place in range(1, len(row.path)):
            ends = site_of[row.path[place - 1]], site_of[row.path[place]]
            if ends[0] != ends[1]:
                one = wanted.setdefault(ends, [0, 0, 0, 0])
                one[0] += 1
                one[1] += times[place] - times[place - 1]
                one[2] += row.size
        if row.status == "died" and isinstance(row.died_before, str):
            ends = site_of[row.died_at], site_of[row.died_before]
            if ends[0] != ends[1]:
                wanted.setdefault(ends, [0, 0, 0, 0])[3] += 1
    use = frame(tables, "link_use").groupby(["from_site", "to_site"])
    sums = use[["crossings", "delay_us_sum", "bytes", "lost"]].sum()
    assert {key: [int(value) for value in row] for key, row in zip(sums.index, sums.to_numpy(), strict=True)} == wanted
    assert sum(row[3] for row in wanted.values()) > 0, "the traffic has losses"
    check_costs(frame(tables, "link_costs"), wanted, directory)


def check_costs(told: pd.DataFrame, seen: dict[tuple[str, str], list[int]], directory: DirectoryTables) -> None:
    links = directory.arrow("links").to_pylist()
    assert len(told) == len(links)
    now = graph_of(directory)
    then = networkx.Graph()
    for row in told.to_dict("records"):
        ends = row["site1"], row["site2"]
        both = [seen.get(pair, [0, 0, 0, 0]) for pair in (ends, ends[::-1])]
        crossings, delay, size, lost = (sum(values) for values in zip(*both, strict=True))
        assert (row["crossings"], row["bytes"], row["lost"]) == (crossings, size, lost)
        assert row["delay_us"] == delay / crossings
        assert row["loss"] == lost / (crossings + lost)
        assert row["suggested_cost"] == math.ceil(delay / crossings / (1 - row["loss"]) / 1_000)
        then.add_edge(*ends, cost=row["suggested_cost"])
    for graph, column in ((now, "pairs"), (then, "suggested_pairs")):
        used: dict[tuple[str, str], int] = {}
        for paths in dict(networkx.all_pairs_dijkstra_path(graph, weight="cost")).values():
            for path in paths.values():
                for step in pairwise(path):
                    used[min(step), max(step)] = used.get((min(step), max(step)), 0) + 1
        for row in told.to_dict("records"):
            assert row[column] == used.get((row["site1"], row["site2"]), 0)


def check_keys(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    used = truth[truth["key_fingerprint"].notna()]
    retired = {row["key_fingerprint"]: row["retired"] for row in directory.arrow("keys").to_pylist()}
    told = {row["key_fingerprint"]: row for row in frame(tables, "keys").to_dict("records")}
    assert set(told) == set(retired)
    offenders = 0
    for fingerprint, end in retired.items():
        mine = used[used["key_fingerprint"] == fingerprint]
        late = mine[mine["sent"] >= end] if end is not None else mine.iloc[:0]
        row = told[fingerprint]
        assert (row["messages"], row["late"]) == (len(mine), len(late))
        senders = row["late_senders"]
        assert sorted(late["origin"].unique()) == ([] if senders is None else list(senders))
        assert row["state"] == ("current" if end is None else "retired")
        offenders += len(late)
    assert offenders > 0, "the traffic has senders that do not notice a rotation"
    assert len(frame(tables, "certificates")) == directory.arrow("certificates").num_rows


def check_capacity(tables: Tables, truth: pd.DataFrame, directory: DirectoryTables) -> None:
    quotas = {row["queue"]: row["quota"] for row in directory.arrow("queues").to_pylist()}
    sizes = frame(tables, "queue_sizes")
    left = truth["received"].fillna(truth["died"])
    checked = 0
    for row in frame(tables, "capacity").to_dict("records"):
        here = (truth["queue"] == row["queue"]) & truth["reached"].notna()

        def filled(moment: Any, here: Any = here) -> int:
            inside = here & (truth["reached"] <= moment) & ~(left <= moment)
            return int(truth["size"][inside].sum())

        assert row["bytes"] == filled(row["as_of"])
        hours = sizes[sizes["queue"] == row["queue"]].sort_values("hour")
        moments = hours["last"].map(lambda last: last["time"])
        values = [filled(moment) for moment in moments]
        assert [last["bytes"] for last in hours["last"]] == values
        days = np.array([moment.timestamp() / 86_400 for moment in moments])
        slope = np.polyfit(days - days[0], values, 1)[0]
        assert math.isclose(row["growth_bytes_a_day"], slope, rel_tol=1e-6, abs_tol=1e-3)
        quota = quotas.get(row["queue"])
        assert (None if pd.isna(row["quota"]) else row["quota"]) == quota
        if quota is not None and slope > 0:
            ahead = (pd.Timestamp(row["full_on"]) - row["as_of"].tz_localize(None).normalize()).days
            assert ahead == math.ceil((quota - row["bytes"]) / row["growth_bytes_a_day"])
            checked += 1
    assert checked, "the traffic has a queue that fills up"


def same(found: pd.Series, wanted: pd.Series, what: str) -> None:
    """Equal, where nulls are equal too."""
    for one, other in zip(found.to_list(), wanted.to_list(), strict=True):
        if _missing(one) and _missing(other):
            continue
        assert one == other, f"{what}: {one!r} is told, {other!r} is so"


def _missing(value: Any) -> bool:
    return value is None or (not isinstance(value, list) and bool(pd.isna(value)))


def known_queue(truth: pd.DataFrame, directory: DirectoryTables) -> pd.DataFrame:
    """Where a message never came, its site is not known, and its queue only by its destination if none is published."""
    rows = truth.copy()
    nowhere = rows["reached"].isna()
    published = {row["queue"] for row in directory.arrow("queues").to_pylist()}
    assert nowhere.any(), "the traffic has messages that never arrive"
    rows.loc[~rows["queue"].isin(published), "queue"] = rows["destination"]
    rows.loc[nowhere, "destination_site"] = "unknown"
    return rows


def sites_of(directory: DirectoryTables) -> dict[str, str]:
    return {row["node"]: row["site"] for row in directory.arrow("machines").to_pylist()}


def graph_of(directory: DirectoryTables) -> networkx.Graph:
    graph = networkx.Graph()
    for link in directory.arrow("links").to_pylist():
        graph.add_edge(link["site1"], link["site2"], cost=link["cost"])
    return graph


def micro(times: pd.Series) -> pd.Series:
    return times.dt.tz_localize(None).astype("datetime64[us]").astype("int64")


def micros(times: Any) -> list[int]:
    return np.asarray(times, dtype="datetime64[us]").astype("int64").tolist()
