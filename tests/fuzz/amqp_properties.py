"""What must hold at the AMQP door for any bytes: the negotiation of SASL, messages and requests to the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmnode.amqp.codec import CodecError, Decoder, Described, Symbol, UInt, ULong, encode
from qmnode.amqp.conditions import RefusedError
from qmnode.amqp.mapping import Place, from_amqp
from qmnode.amqp.sasl import AMQP_HEADER, ANONYMOUS, EXTERNAL, PLAIN, SASL_HEADER, SaslServer, SaslState
from qmnode.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, parse, write
from qmnode.amqp.transactions import read_request
from qmnode.errors import MessageQueuingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLACE = Place("HERE", lambda name: False, lambda: 1_000_000.0)
OFFERS = ([PLAIN], [EXTERNAL, PLAIN], [PLAIN, ANONYMOUS], [ANONYMOUS])


def check_sasl(data: bytes) -> None:
    """However the bytes are cut, the negotiation ends alike; only offered mechanisms prove anything."""
    for offered in OFFERS:
        whole, cut = SaslServer(list(offered)), SaslServer(list(offered))
        attempt = whole.feed(data)
        pieces = [cut.feed(data[place : place + 1]) for place in range(len(data))]
        assert whole.state in SaslState
        assert attempt == next((one for one in pieces if one is not None), None)
        assert (whole.state, bytes(whole.out)) == (cut.state, bytes(cut.out))
        if attempt is not None:
            assert attempt.mechanism in offered
            whole.decide(accepted=False)
            assert whole.state is SaslState.FAILED
        answers = bytes(whole.out).removeprefix(SASL_HEADER)
        while answers:
            size = int.from_bytes(answers[:4], "big")
            assert 8 < size <= len(answers)
            assert isinstance(Decoder(answers[8:size]).value(), Described)
            answers = answers[size:]


def check_message(data: bytes) -> None:
    """Bytes are a message or CodecError; what is written of it is the same message again."""
    try:
        message = parse(data)
        written = write(message)
    except CodecError:
        return
    again = parse(written)
    assert (repr(again.body), again.body_kind) == (repr(message.body), message.body_kind)
    try:
        from_amqp(message, PLACE)
    except (CodecError, MessageQueuingError):
        return


def check_request(data: bytes) -> None:
    """A message to the coordinator is a request, or it is refused."""
    try:
        read_request(parse(data))
    except (CodecError, RefusedError):
        return


AMQP_TARGETS: dict[str, Callable[[bytes], None]] = {
    "amqp.sasl": check_sasl,
    "amqp.message": check_message,
    "amqp.request": check_request,
}


def _frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\2\1\0\0" + body


def amqp_seeds() -> Iterator[tuple[str, bytes]]:
    """Targets with inputs for them."""
    for mechanism, response in ((PLAIN, b"\0ops\0secret"), (PLAIN, None), (ANONYMOUS, b"x"), (EXTERNAL, None)):
        init = _frame(encode(Described(ULong(0x41), [Symbol(mechanism), response])))
        answer = _frame(encode(Described(ULong(0x43), [b"\0ops\0secret"])))
        yield "amqp.sasl", SASL_HEADER + init + answer + AMQP_HEADER
    yield "amqp.sasl", AMQP_HEADER
    yield "amqp.message", b"\x00\x45\x45"  # a section whose descriptor is a list
    for kind, body in ((DATA, b"body"), (VALUE, {"a": [1, "b", 2.5, True, None]}), (SEQUENCE, [1, "b"])):
        message = AmqpMessage(
            header={"durable": True, "priority": 4, "ttl": 1500},
            annotations={Symbol("x-opt-jms-msg-type"): 2, Symbol("x-opt-msmq-app-specific"): UInt(7)},
            properties={"message_id": "1", "reply_to": "answers", "absolute_expiry_time": 1_000_010_000},
            application_properties={"tenant": "blue", "count": 5},
            body_kind=kind,
            body=body,
        )
        yield "amqp.message", write(message)
    for number, fields in ((0x31, [None]), (0x32, [b"\0\1", False])):
        yield "amqp.request", write(AmqpMessage(body_kind=VALUE, body=Described(ULong(number), fields)))
