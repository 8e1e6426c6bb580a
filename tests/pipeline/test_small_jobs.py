"""Each job by itself, from frames to frames, on so few rows that the answers can be worked out on paper."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from mqenterprise.pipeline.directory import SCHEMAS
from mqenterprise.pipeline.jobs import (
    capacity,
    dead_letters,
    journals,
    keys,
    link_costs,
    message_life,
    paths,
    routes,
    service_levels,
)
from qmnode.export.segment import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SOURCE, QUEUE, BACK = "11111111-0000-0000-0000-000000000000", "DIRECT=OS:C\\private$\\orders", "C\\private$\\orders"
SITES = {"A": "North", "B": "Middle", "C": "South"}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def told(node: str, kind: str, seconds: float, number: int, **facts: object) -> Row:
    """An event about message ``number``, which A sent to C at the second that it is counted by."""
    about = {"source_id": SOURCE, "message_number": number, "destination": QUEUE, "message_class": 0, "size": 100}
    where = {"node": node, "site": SITES[node], "kind": kind, "time": at(seconds), "sent_time": at(number)}
    return where | about | facts


def acknowledged(seconds: float, number: int, reason: int) -> Row:
    about = {"about_source_id": SOURCE, "about_message_number": number, "response_queue": QUEUE}
    own = {"source_id": SOURCE[::-1], "message_number": 900 + number, "destination": "DIRECT=OS:A\\private$\\admin"}
    return told("A", "acknowledgment", seconds, 0, reason=reason, message_class=reason, **about) | own


def journey(number: int) -> list[Row]:
    """Sent by A, passed on by B a second later, in the queue at C another second later."""
    return [
        told("A", "sent", number, number, hop_count=0),
        told("A", "transferred", number + 1, number, hop_count=0, peer="B"),
        told("B", "accepted", number + 1, number, hop_count=1),
        told("B", "transferred", number + 2, number, hop_count=1, peer="C"),
        told("C", "reached", number + 2, number, hop_count=2, queue=BACK),
    ]


EVENTS = [
    *journey(1),
    told("C", "received", 11, 1, queue=BACK),
    *journey(2),
    told("C", "died", 3602, 2, queue=BACK, reason=0xC002),
    told("C", "dead_letter", 3602, 2, offset=1, node_id="c", reason=0xC002, queue="C\\dead$"),
    told("C", "journaled", 11, 1, offset=2, node_id="c", queue=BACK + ";journal"),
    told("C", "journaled", 11, 1, offset=2, node_id="c", queue=BACK + ";journal"),  # read twice
    told("C", "removed", 40, 1, offset=3, node_id="c", queue=BACK + ";journal"),
    told("A", "report", 12, 901, offset=4, node_id="a", message_class=1, about_source_id=SOURCE, state="C")
    | {"about_message_number": 1, "source_id": SOURCE[::-1], "sent_time": at(2)},
    told("A", "sent", 3, 3, hop_count=0),
    told("A", "died", 63, 3, peer="B", reason=0x8002),
    told("A", "sent", 8, 8, hop_count=0),
    told("A", "died", 68, 8, peer="B", reason=0x8002),
    told("A", "sent", 4, 4, hop_count=0),
    acknowledged(9, 4, 0x4000),  # C tells nothing of it but this
    told("A", "sent", 5, 5, hop_count=0),
    acknowledged(7, 5, 0x8004),
    told("A", "sent", 6, 6, hop_count=0),
    told("A", "reached", 1, 900, message_class=0x8002),  # queue managers' own: no message
    *journey(7),
]
STATUSES = {1: "received", 2: "died", 3: "died", 4: "received", 5: "died", 6: "under way", 7: "reached", 8: "died"}
LINKS = [("North", "Middle", 5), ("Middle", "South", 1), ("North", "South", 4)]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [{name: row.get(name) for name in SCHEMA.names} for row in EVENTS]
    schema = from_arrow_schema(SCHEMA)
    for field in schema:
        field.nullable = True
    return spark.createDataFrame(rows, schema)


@pytest.fixture(scope="module")
def lives(events: DataFrame) -> DataFrame:
    return message_life.finished(message_life.lives_of(events)).persist()


def table(spark: SparkSession, name: str, *rows: tuple[Any, ...]) -> DataFrame:
    """One of the directory's."""
    return spark.createDataFrame([*rows], from_arrow_schema(SCHEMAS[name]))


def rows_of(frame: DataFrame) -> list[Row]:
    """With times in UTC."""
    return frame.toArrow().to_pylist()


@pytest.fixture(scope="module")
def links(spark: SparkSession) -> DataFrame:
    return table(spark, "links", *((*link, False, False) for link in LINKS))


def test_a_life_is_what_all_nodes_tell_of_a_message(lives: DataFrame) -> None:
    found = {row["message_number"]: row for row in rows_of(lives)}

    assert {number: row["status"] for number, row in found.items()} == STATUSES
    assert {(row["date"], row["site"], row["origin"]) for row in found.values()} == {("2026-01-05", "North", "A")}
    one = found[1]
    assert (one["sent"], one["reached"], one["received"], one["queue"]) == (at(1), at(3), at(11), BACK)
    assert [(hop["kind"], hop["node"]) for hop in one["hops"]] == [
        ("sent", "A"), ("accepted", "B"), ("transferred", "A"), ("reached", "C"), ("transferred", "B"),
    ]  # fmt: skip
    deaths = {number: row["death"] for number, row in found.items() if row["death"] is not None}
    assert (deaths[2]["time"], deaths[2]["node"], deaths[2]["reason"]) == (at(3602), "C", 0xC002)
    assert (deaths[3]["time"], deaths[3]["peer"]) == (at(63), "B")
    assert (deaths[5]["node"], deaths[5]["reason"]) == (None, 0x8004)
    assert (found[4]["received"], found[4]["queue"]) == (at(9), None)


def test_lives_that_are_joined_from_parts_are_those_of_everything(events: DataFrame, lives: DataFrame) -> None:
    parts = [message_life.lives_of(events.where(f"second(time) % 3 = {part}")) for part in range(3)]
    joined = message_life.join_lives(parts[0].unionByName(parts[1]).unionByName(parts[2]))

    key = "message_number"
    assert rows_of(message_life.finished(joined).orderBy(key)) == rows_of(lives.orderBy(key))


def test_a_route_is_compared_with_the_cheapest(lives: DataFrame, links: DataFrame) -> None:
    one, *_ = rows_of(routes.routes(lives, links).where("message_number = 1"))

    assert (one["path"], one["sites"], one["hops"], one["hop_us"]) == (
        ["A", "B", "C"], ["North", "Middle", "South"], 2, [1_000_000, 1_000_000],
    )  # fmt: skip
    assert (one["cost"], one["least_cost"], one["expected"], one["detour"]) == (6, 4, ["North", "South"], True)


def test_a_path_has_each_hop_with_its_times(lives: DataFrame) -> None:
    found = rows_of(paths.message_path(lives).orderBy("message_number", "hop"))

    def hop(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("hop", "from_node", "to_node", "came", "left", "arrived", "wait_us"))

    assert [hop(row) for row in found if row["message_number"] == 1] == [
        (1, "A", "B", at(1), at(2), at(2), 1_000_000),
        (2, "B", "C", at(2), at(3), at(3), 1_000_000),
    ]
    assert {row["message_number"] for row in found} == {1, 2, 7}, "the others left no machine"
    assert {(row["from_site"], row["to_site"]) for row in found} == {("North", "Middle"), ("Middle", "South")}


def test_a_message_that_comes_by_twice_has_the_times_of_each_visit(spark: SparkSession, events: DataFrame) -> None:
    seen = [
        told("A", "sent", 1, 1, hop_count=0),
        told("A", "transferred", 2, 1, hop_count=0, peer="B"),
        told("B", "accepted", 2, 1, hop_count=1),
        told("B", "transferred", 3, 1, hop_count=1, peer="A"),
        told("A", "accepted", 3, 1, hop_count=2),
        told("A", "transferred", 9, 1, hop_count=2, peer="C"),
    ]
    around = spark.createDataFrame([{name: row.get(name) for name in SCHEMA.names} for row in seen], events.schema)
    found = rows_of(paths.message_path(message_life.finished(message_life.lives_of(around))).orderBy("hop"))

    assert [(row["from_node"], row["to_node"], row["left"], row["arrived"]) for row in found] == [
        ("A", "B", at(2), at(2)),
        ("B", "A", at(3), at(3)),
        ("A", "C", at(9), None),
    ]


def test_what_is_told_of_in_part_goes_through_every_job(
    spark: SparkSession, events: DataFrame, links: DataFrame
) -> None:
    """Segments come late, and not every node exports: an end without a beginning, a death without a place or reason."""
    parts = [
        told("C", "received", 9, 11, queue=BACK),
        told("B", "died", 9, 12, peer="C", reason=0x8002),
        told("C", "refused", 9, 13),
        told("A", "transferred", 9, 14, peer="B"),
        acknowledged(9, 15, 0x4000),
    ]
    told_of = spark.createDataFrame([{name: row.get(name) for name in SCHEMA.names} for row in parts], events.schema)
    lives = message_life.finished(message_life.lives_of(told_of)).persist()
    machines = table(spark, "machines", *((name, name, site, None) for name, site in SITES.items()))
    published = table(spark, "keys", ("C", "old", "p", NOON, None, None))

    assert lives.count() == 5
    assert rows_of(routes.routes(lives, links)) == []
    assert rows_of(link_costs.link_use(lives, machines)) == []
    assert rows_of(keys.key_use(lives, published)) == []
    assert sum(row["messages"] for row in rows_of(service_levels.service_levels(lives))) == 5
    assert [(row["queue"], row["came"]) for row in rows_of(service_levels.backlog(lives))] == [(QUEUE, 1)]
    causes = {row["cause"]: row["messages"] for row in rows_of(dead_letters.dead_letters(lives))}
    assert causes == {"did not reach its queue in time": 1, "unknown": 1}


def test_service_levels_are_counted_by_queue_pair_of_sites_and_hour(lives: DataFrame) -> None:
    found = {(row["destination_site"], row["queue"]): row for row in rows_of(service_levels.service_levels(lives))}

    known = found["South", BACK]
    assert (known["hour"], known["messages"], known["reached"], known["received"], known["died"]) == (NOON, 3, 3, 1, 1)
    assert (known["latency_us_sum"], known["latency_us_p50"], known["latency_us_p99"]) == (6_000_000, *[2_000_000] * 2)
    assert (known["waiting_us_sum"], known["waiting_us_max"], known["bytes"]) == (8_000_000, 8_000_000, 300)
    assert (found["unknown", QUEUE]["messages"], found["unknown", QUEUE]["died"]) == (5, 3)


def test_backlog_is_what_came_and_did_not_leave(lives: DataFrame) -> None:
    found = {row["hour"]: (row["came"], row["left"], row["growth"]) for row in rows_of(service_levels.backlog(lives))
             if row["queue"] == BACK}  # fmt: skip

    assert found == {NOON: (3, 1, 2), at(3600): (0, 1, -1)}


def test_dead_letters_are_ranked_by_their_cause(lives: DataFrame) -> None:
    found = {row["cause"]: row for row in rows_of(dead_letters.dead_letters(lives))}

    assert {cause: (row["messages"], row["rank"]) for cause, row in found.items()} == {
        "did not reach its queue in time": (2, 1), "access denied": (1, 2), "was not received in time": (1, 3),
    }  # fmt: skip
    late = found["did not reach its queue in time"]
    assert (late["first"], late["last"], late["origin"], late["node"]) == (at(63), at(68), "A", "A")
    assert late["sample"] == f"{SOURCE}\\3"
    assert {row["class"]: row["kept"] for row in found.values()} == {
        "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT": 0, "MQMSG_CLASS_NACK_ACCESS_DENIED": 0,
        "MQMSG_CLASS_NACK_RECEIVE_TIMEOUT": 1,
    }  # fmt: skip
    assert {(row["kept_at"], row["kept_in"]) for row in found.values()} == {(None, None), ("C", "C\\dead$")}


def test_copies_and_trace_reports_have_a_row_each(events: DataFrame) -> None:
    found = rows_of(journals.join(journals.journal(events)).orderBy("time"))
    assert [(row["kind"], row["message_number"], row["queue"], row["class"], row["cause"]) for row in found] == [
        ("journaled", 1, BACK + ";journal", None, None),
        ("removed", 1, BACK + ";journal", None, None),
        ("dead_letter", 2, "C\\dead$", "MQMSG_CLASS_NACK_RECEIVE_TIMEOUT", "was not received in time"),
    ]
    assert {row["date"] for row in found} == {"2026-01-05"}
    (report,) = rows_of(journals.join(journals.traces(events)))
    assert (report["source_id"], report["message_number"], report["step"], report["next_hop"]) == (
        SOURCE,
        1,
        "sent",
        "C",
    )
    assert (report["reporter_id"], report["reported"], report["node"]) == (SOURCE[::-1], at(2), "A")


def test_links_cost_what_they_take(spark: SparkSession, lives: DataFrame, links: DataFrame) -> None:
    machines = table(spark, "machines", *((name, name, site, None) for name, site in SITES.items()))
    found = {
        (row["site1"], row["site2"]): row for row in rows_of(link_costs.link_costs(
            link_costs.link_use(lives, machines), links))
    }  # fmt: skip

    seen = found["Middle", "North"]
    assert (seen["crossings"], seen["lost"], seen["delay_us"], seen["loss"]) == (3, 2, 1_000_000.0, 0.4)
    # Two of five are lost, so a message is tried 5/3 times.
    assert (seen["cost"], seen["suggested_cost"]) == (5, 1667)
    assert (found["Middle", "South"]["suggested_cost"], found["North", "South"]["crossings"]) == (1000, 0)


def test_who_encrypts_to_a_key_that_was_retired_is_told(spark: SparkSession, events: DataFrame) -> None:
    used = [told("C", "key_used", 1, 1, key_fingerprint="old"), told("C", "key_used", 2, 2, key_fingerprint="new")]
    more = spark.createDataFrame([{name: row.get(name) for name in SCHEMA.names} for row in used], events.schema)
    encrypted = message_life.finished(message_life.lives_of(events.unionByName(more)))
    published = table(
        spark,
        "keys",
        ("C", "old", "p", NOON - timedelta(days=9), NOON, None),
        ("C", "new", "p", NOON, None, NOON + timedelta(days=2)),
    )
    found = {
        row["key_fingerprint"]: row
        for row in rows_of(keys.keys(keys.key_use(encrypted, published), published, at(3600)))
    }

    assert (found["old"]["state"], found["old"]["late"], found["old"]["late_senders"]) == ("retired", 1, ["A"])
    assert (found["old"]["age_days"], found["new"]["days_left"]) == (9, 1)
    assert (found["new"]["state"], found["new"]["messages"], found["new"]["late"]) == ("current", 1, 0)


def samples(spark: SparkSession, queue: str, sizes: list[int], quota: int | None) -> DataFrame:
    rows = [(at(3600 * hour), "sample", "C", "South", queue, size, 10 * size, quota) for hour, size in enumerate(sizes)]
    types = "time timestamp, kind string, node string, site string, queue string, count long, bytes long, quota long"
    return spark.createDataFrame(rows, types)


def test_the_day_is_told_when_a_queue_will_be_full(spark: SparkSession) -> None:
    growing = samples(spark, "growing", [100, 101, 102, 103], 2_000)
    full = samples(spark, "full", [200, 200, 200], 2_000)
    endless, closed = samples(spark, "endless", [7, 8], None), samples(spark, "closed", [0, 0], 0)
    sizes = capacity.sizes_of(growing.unionByName(full).unionByName(endless).unionByName(closed))
    found = {row["queue"]: row for row in rows_of(capacity.capacity(sizes))}

    one = found["growing"]
    assert (one["messages"], one["bytes"], one["growth_bytes_a_day"], one["hours"]) == (103, 1_030, 240.0, 4)
    assert one["full_on"] == date(2026, 1, 10), "970 bytes are left: in a little more than four days"
    assert (found["full"]["used"], found["full"]["full_on"]) == (1.0, date(2026, 1, 5)), "it does not grow any more"
    assert found["endless"]["full_on"] is None
    assert (found["closed"]["used"], found["closed"]["full_on"]) == (None, date(2026, 1, 5)), "it takes nothing"


def test_growth_is_the_same_in_whatever_order_it_is_added_up(spark: SparkSession) -> None:
    sizes = capacity.sizes_of(samples(spark, "large", [10**11 + 7**hour for hour in range(11)], 10**15))
    found = [
        rows_of(capacity.capacity(sizes.repartition(parts, "hour")))[0]["growth_bytes_a_day"] for parts in (1, 3, 7)
    ]

    assert len(set(found)) == 1
