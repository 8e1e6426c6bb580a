"""The lives of the sample messages of dead letters: the stops of each with their times, and its end."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from mqenterprise.markup import Element, element
from mqenterprise.pipeline.jobs.dead_letters import CAUSES
from mqenterprise.pipeline.report.cells import Cell, Column, number, seconds, sized, table, text
from qmnode.export.events import EventKind

_HAPPENED: Final[Mapping[str, str]] = {
    EventKind.SENT: "sent",
    EventKind.ACCEPTED: "accepted, to be forwarded",
    EventKind.TRANSFERRED: "forwarded",
    EventKind.REACHED: "arrived in its queue",
}
"""The hops of a life in an operator's words."""
_COLUMNS: Final = (Column("Time (UTC)"), Column("After"), Column("What"), Column("Machine"), Column("Site"))


def link(sample: str, examples: Mapping[str, Mapping[str, Any]]) -> Cell:
    """Return a link to the life of a message, if the page has it."""
    if sample not in examples:
        return text(sample)
    return Cell((element("a", sample, href=f"#{_anchor(sample)}"),))


def lives(examples: Mapping[str, Mapping[str, Any]]) -> list[Element]:
    """Return the lives of all samples. Each shows when its link is followed."""
    return [_life(sample, examples[sample]) for sample in sorted(examples)]


def _anchor(sample: str) -> str:
    return f"life-{sample}".replace("\\", "-")


def _life(sample: str, life: Mapping[str, Any]) -> Element:
    steps = sorted(_steps(life), key=lambda step: step[0])
    begin: datetime = life["sent"] or life["sent_time"] or steps[0][0]
    rows = [
        [
            text(f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"),
            number((moment - begin).total_seconds(), seconds((moment - begin).total_seconds())),
            text(what, "alarm" if what.startswith("died") else ""),
            text(node),
            text(site),
        ]
        for moment, what, node, site in steps
    ]
    facts = {
        "Queue": life["queue"],
        "Destination": life["destination"],
        "Sent by": " on ".join(part for part in (life["sender"], life["origin"]) if part),
        "Size": None if life["size"] is None else sized(float(life["size"])),
    }
    listed = [part for name, fact in facts.items() if fact for part in (element("dt", name), element("dd", str(fact)))]
    return element(
        "article",
        element("h2", f"Message {sample}"),
        element("dl", *listed),
        *table(_COLUMNS, rows, "steps of a message"),
        element("p", element("a", "Back to the dead letters", href="#dead-letters")),
        class_="life",
        id=_anchor(sample),
    )


def _steps(life: Mapping[str, Any]) -> Iterator[tuple[datetime, str, str | None, str | None]]:
    """Return rows with time, event, machine and site."""
    sites = {}
    for hop in life["hops"] or ():
        sites[hop["node"]] = hop["site"]
        to = f" to {hop['peer']}" if hop["kind"] == EventKind.TRANSFERRED and hop["peer"] else ""
        yield hop["time"], _HAPPENED[hop["kind"]] + to, hop["node"], hop["site"]
    if life["received"] is not None:
        yield life["received"], "received", None, None
    death = life["death"]
    if death is not None:
        cause = CAUSES.get(death["reason"], f"class {death['reason']:#06x}" if death["reason"] else "cause unknown")
        waiting = f" (waited for {death['peer']})" if death["peer"] else ""
        yield death["time"], f"died: {cause}{waiting}", death["node"], sites.get(death["node"])
