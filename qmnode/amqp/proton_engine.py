"""The parts of Qpid Proton's engine that each message needs, as its C interface has them.

An ``Event`` of the Python interface makes an object for its connection, session, link, delivery and transport, and
``Sender.delivery`` one with two dispositions; a ``Delivery`` keeps a dictionary and two dispositions for the time that
it is under way. That takes longer than the rest of a message's way.
"""

import struct
from collections.abc import Container, Iterator
from typing import Any, Final

from cproton import (
    isnull,
    pn_collector_peek,
    pn_data_clear,
    pn_delivery,
    pn_delivery_link,
    pn_delivery_local,
    pn_delivery_remote,
    pn_delivery_settle,
    pn_delivery_update,
    pn_disposition_annotations,
    pn_disposition_data,
    pn_event_delivery,
    pn_event_type,
    pn_incref,
    pn_link_advance,
    pn_link_recv,
    pn_link_remote_properties,
    pn_link_send,
)
from proton import Collector, Data, Delivery, Disposition, Event, EventType, Link, Receiver, Sender

from qmnode.amqp.codec import Decoder, Described, encode

ATTACH: Final = 0x12
FLOW: Final = 0x13
_HEAD: Final = struct.Struct(">IBBH")
_PROTOCOL: Final = b"AMQP"
_TYPES: Final[dict[int, EventType]] = EventType.TYPES
_ACCEPTED: Final = int(Delivery.ACCEPTED)


def decoded(data: Any) -> Any:
    """The value in ``Data`` of the engine, or None. This package's decoder reads it: that of the engine's Python
    interface takes maps with any number of keys of one hash. Raises CodecError.
    """
    data.rewind()
    return Decoder(bytes(data.encode())).value() if data.next() is not None else None


def remote_properties(link: Link) -> dict[Any, Any]:
    """The properties that the peer gives a link. CodecError if they cannot be read."""
    given = pn_link_remote_properties(link._impl)
    found = decoded(Data(given)) if given else None  # NULL without properties, which the engine would follow
    return found if isinstance(found, dict) else {}


class PlainDelivery(Delivery):  # type: ignore[misc]
    """A delivery whose dispositions are made when they are asked for, and kept by this object alone."""

    def __init__(self, impl: Any) -> None:
        pn_incref(impl)  # the base class gives it back
        self.__dict__["_impl"] = impl

    @property
    def local(self) -> Disposition:
        """The outcome that the node sends with ``update``."""
        own = self.__dict__
        if "_local" not in own:
            own["_local"] = Disposition(pn_delivery_local(self._impl), True)
        return own["_local"]

    @property
    def remote(self) -> Disposition:
        """The outcome that the peer has sent."""
        return Disposition(pn_delivery_remote(self._impl), False)

    def update(self, state: Any) -> None:
        """Set the outcome, with what ``local`` says about it."""
        if "_local" in self.__dict__:
            pn_data_clear(pn_disposition_data(pn_delivery_local(self._impl)))  # of an earlier transaction
            super().update(state)
        else:
            pn_delivery_update(self._impl, state)


def next_event(collector: Collector, wanted: Container[EventType]) -> tuple[EventType, Any] | None:
    """The type of the next event, and the event; of a ``DELIVERY``, the delivery. None if there is none.

    The event is None if its type is not ``wanted``. It stays the next one until it is taken out of the collector.
    """
    event = pn_collector_peek(collector._impl)
    if isnull(event):
        return None
    kind = _TYPES[pn_event_type(event)]
    if kind is Event.DELIVERY:
        return kind, PlainDelivery(pn_event_delivery(event))
    return kind, Event.wrap(event) if kind in wanted else None


def key_of(link: Link) -> Any:
    """The key of a link, as ``link_key`` of its deliveries has it, until the engine frees it."""
    return link._impl


def link_key(delivery: Delivery) -> Any:
    """The key of a delivery's link."""
    return pn_delivery_link(delivery._impl)


def receive(link: Receiver, size: int) -> bytes:
    """Take a whole message of this size off a link, and go on to the next one."""
    impl = link._impl
    _, data = pn_link_recv(impl, size)
    pn_link_advance(impl)
    return bytes(data)


def drop_aborted(link: Receiver, delivery: Delivery) -> bool:
    """Let go of a message if its sender has aborted it, which settles it (2.6.14). The engine reads no byte of it."""
    if not delivery.aborted:
        return False
    link.advance()
    delivery.settle()
    return True


def discard(link: Receiver, delivery: Delivery) -> None:
    """Let go of the bytes of a message that is not taken, as they come."""
    if delivery.readable and not drop_aborted(link, delivery):
        link.recv(delivery.pending)
        if not delivery.partial:
            link.advance()
            delivery.settle()


def accept(delivery: Delivery) -> None:
    """Tell the sender of a message that it is accepted, and settle it."""
    impl = delivery._impl
    pn_delivery_update(impl, _ACCEPTED)
    pn_delivery_settle(impl)


def annotations_of(delivery: Delivery) -> bytes:
    """The annotations of the outcome ``modified`` as AMQP has them; empty if there are none."""
    given = pn_disposition_annotations(pn_delivery_remote(delivery._impl))
    data = Data(given) if given else None
    return bytes(data.encode()) if data is not None and data.encoded_size() else b""


def frames(data: bytes) -> Iterator[tuple[int, Described]]:
    """The channels and performatives of the frames that the engine has written."""
    if data.startswith(_PROTOCOL):
        data = data[len(_PROTOCOL) + 4 :]
    at = 0
    while at < len(data):
        size, offset, _, channel = _HEAD.unpack_from(data, at)
        if size > 4 * offset:
            performative = Decoder(data[at + 4 * offset : at + size]).value()
            if isinstance(performative, Described):
                yield channel, performative
        at += size


def frame(channel: int, performative: Described) -> bytes:
    """A frame with a performative."""
    body = encode(performative)
    return _HEAD.pack(_HEAD.size + len(body), 2, 0, channel) + body


def send(link: Sender, tag: str, data: bytes, *, settled: bool) -> None:
    """Put a whole message on a link, whose tag is new on it."""
    impl = link._impl
    delivery = pn_delivery(impl, tag)
    pn_link_send(impl, data)
    pn_link_advance(impl)
    if settled:
        pn_delivery_settle(delivery)
