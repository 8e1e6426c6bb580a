"""The parts of Qpid Proton's engine that each message needs, as its C interface has them.

An ``Event`` of the Python interface makes an object for its connection, session, link, delivery and transport, and
``Sender.delivery`` one with two dispositions. That takes longer than the rest of a message's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cproton import (
    isnull,
    pn_collector_peek,
    pn_delivery,
    pn_delivery_settle,
    pn_event_delivery,
    pn_event_type,
    pn_link_advance,
    pn_link_send,
)
from proton import Delivery, Event, EventType

if TYPE_CHECKING:
    from proton import Collector, Sender

_TYPES: Final[dict[int, EventType]] = EventType.TYPES


def next_event(collector: Collector) -> tuple[EventType, Any] | None:
    """The type of the next event, and the event; of a ``DELIVERY``, the delivery. None if there is none.

    The event stays the next one until it is taken out of the collector.
    """
    event = pn_collector_peek(collector._impl)
    if isnull(event):
        return None
    kind = _TYPES[pn_event_type(event)]
    return kind, Delivery.wrap(pn_event_delivery(event)) if kind is Event.DELIVERY else Event.wrap(event)


def send(link: Sender, tag: str, data: bytes, *, settled: bool) -> None:
    """Put a whole message on a link, whose tag is new on it."""
    impl = link._impl
    delivery = pn_delivery(impl, tag)
    pn_link_send(impl, data)
    pn_link_advance(impl)
    if settled:
        pn_delivery_settle(delivery)
