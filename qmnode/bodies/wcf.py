"""netMsmqBinding: SOAP in the .NET framing (MC-NMF, MS-NMFMB), of .NET binary XML or of text.

A body is a preamble (version, mode, address, encoding), followed by envelopes. In mode Singleton-Sized, a message by
itself, one envelope takes the rest. In mode Simplex, messages that a transaction sent in a session, there are sized
envelopes and an end record. msmqIntegrationBinding has no framing: its bodies are XML, ActiveX or binary ones of their
own formats.
"""

from typing import Any, Final, NamedTuple

from qmnode.bodies import nbfx
from qmnode.bodies.byte_reader import Reader, counted_text, multi_byte_integer
from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.xml_text import parse
from qmnode.bodies.xml_tree import Element, content, element_of

ADDRESSING: Final = "http://www.w3.org/2005/08/addressing"
_OLD_ADDRESSING: Final = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
SOAP_12: Final = "http://www.w3.org/2003/05/soap-envelope"
SOAP_11: Final = "http://schemas.xmlsoap.org/soap/envelope/"

_VERSION, _MODE, _VIA, _KNOWN_ENCODING, _ENCODING, _SIZED, _END, _PREAMBLE_END = 0, 1, 2, 3, 4, 6, 7, 12
_MODES: Final = {1: "singleton-unsized", 2: "duplex", 3: "simplex", 4: "singleton-sized"}
_BINARY: Final = 7
_BINARY_SESSION: Final = 8
_ENCODINGS: Final = {
    0: "text/xml; charset=utf-8",
    1: "text/xml; charset=utf-16",
    2: "text/xml; charset=unicodeFFFE",
    3: "application/soap+xml; charset=utf-8",
    4: "application/soap+xml; charset=utf-16",
    5: "application/soap+xml; charset=unicodeFFFE",
    6: "multipart/related",
    _BINARY: "application/soap+msbin1",
    _BINARY_SESSION: "application/soap+msbinsession1",
}
_HEADER_NAMES: Final = ("Action", "To", "MessageID", "RelatesTo", "ReplyTo", "FaultTo", "From")


class Preamble(NamedTuple):
    """The preamble before the envelopes (MC-NMF 2.2.6)."""

    mode: int
    via: str
    encoding: str


def recognise(body: bytes) -> bool:
    """Whether it begins with a version record 1.0 and a mode record."""
    return len(body) > 5 and body[:4] == b"\0\1\0\1" and body[4] in _MODES and body[5] == _VIA


def decode(body: bytes, budget: Budget) -> dict[str, Any]:
    """``action``, ``to`` and other addressing headers, ``headers`` (the rest), ``body``; of a session, ``messages``."""
    budget.spend(1, len(body))
    reader = Reader(body)
    preamble = _read_preamble(reader)
    found: dict[str, Any] = {
        "via": preamble.via,
        "mode": _MODES[preamble.mode],
        "encoding": preamble.encoding,
    }
    dictionary = nbfx.Dictionary(budget)
    if preamble.mode != 3:
        return found | _message(_envelope(Reader(body, reader.place), preamble.encoding, dictionary, budget))
    found["messages"] = messages = []
    while (kind := reader.byte()) == _SIZED:
        size = reader.multi_byte_integer()
        start = reader.place
        reader.take(size)
        messages.append(_message(_envelope(Reader(body, start, start + size), preamble.encoding, dictionary, budget)))
    if kind not in (_END, _PREAMBLE_END):
        raise BodyError(f"record {kind:#04x} is no envelope and no end of a session")
    return found


def _read_preamble(reader: Reader) -> Preamble:
    if not recognise(reader.data):
        raise BodyError("it does not begin with the preamble of the .NET framing, version 1.0")
    reader.take(3)
    reader.take(1)
    mode = reader.byte()
    reader.take(1)
    via = reader.text()
    kind = reader.byte()
    if kind == _KNOWN_ENCODING:
        number = reader.byte()
        if number not in _ENCODINGS:
            raise BodyError(f"the encoding {number} is none of MC-NMF 2.2.3.4.1")
        encoding = _ENCODINGS[number]
    elif kind == _ENCODING:
        encoding = reader.text()
    else:
        raise BodyError(f"record {kind:#04x} stands where the encoding is expected")
    if mode == 3 and reader.left and reader.data[reader.place] == _PREAMBLE_END:
        reader.byte()
    return Preamble(mode, via, encoding)


def _envelope(reader: Reader, encoding: str, dictionary: nbfx.Dictionary, budget: Budget) -> Element:
    kind = encoding.partition(";")[0].strip().lower()
    if kind == _ENCODINGS[_BINARY]:
        return nbfx.parse(reader, dictionary, budget)
    if kind == _ENCODINGS[_BINARY_SESSION]:
        dictionary.read_table(reader)
        return nbfx.parse(reader, dictionary, budget)
    if kind in ("text/xml", "application/soap+xml"):
        return parse(reader.take(reader.left), budget)
    raise BodyError(f"the encoding {encoding!r:.100} is not read: binary and text are")


def _message(envelope: Element) -> dict[str, Any]:
    if envelope.name != "Envelope" or envelope.namespace not in (SOAP_12, SOAP_11):
        raise BodyError(f"<{envelope.name:.80}> of {envelope.namespace!r:.80} is no SOAP envelope")
    found: dict[str, Any] = {}
    header, body = envelope.child("Header"), envelope.child("Body")
    others: dict[str, Any] = {}
    for element in header.children if header is not None else ():
        if element.namespace in (ADDRESSING, _OLD_ADDRESSING) and element.name in _HEADER_NAMES:
            address = element.child("Address")
            found[_key(element.name)] = element.text if address is None else address.text
        else:
            others[element.name] = _without_must_understand(content(element))
    if others:
        found["headers"] = others
    if body is None:
        raise BodyError("the SOAP envelope has no body")
    found["body"] = {child.name: content(child) for child in body.children}
    return found


def _key(name: str) -> str:
    """The key of a header: ``reply_to`` for ``ReplyTo``, ``message_id`` for ``MessageID``."""
    return {"MessageID": "message_id", "RelatesTo": "relates_to", "ReplyTo": "reply_to", "FaultTo": "fault_to"}.get(
        name, name.lower()
    )


def _without_must_understand(held: Any) -> Any:
    if isinstance(held, dict) and "@mustUnderstand" in held:
        held = {key: value for key, value in held.items() if key not in ("@mustUnderstand", "@xmlns")}
        return held["#text"] if held.keys() == {"#text"} else held
    return held


def encode(value: Any) -> bytes:
    """One message in binary XML, mode Singleton-Sized.

    ``value`` is a dictionary like the result of :func:`decode`. It has ``action``, ``to``
    (``net.msmq://host/private/queue``) and ``body`` with the operation's element, its ``@xmlns`` and its parameters;
    also ``message_id``, ``reply_to`` and ``relates_to``. ``mode`` and ``encoding`` are ignored: one message is written,
    in binary XML.
    """
    if not isinstance(value, dict) or not {"action", "to", "body"} <= value.keys():
        raise BodyError("a WCF message is a dictionary with action, to and body")
    for key, held in value.items():
        if key not in _WRITTEN:
            raise BodyError(f"{key!r:.80} is not written: a WCF message has {', '.join(_WRITTEN)}")
        if key != "body" and not isinstance(held, str):
            raise BodyError(f"{key} of a WCF message is text, and not {held!r:.80}")
    to: str = value["to"]
    if not to.startswith("net.msmq://"):
        raise BodyError(f"{to!r:.80} is no address of netMsmqBinding, such as net.msmq://host/private/orders")
    via: str = value.get("via", to)
    preamble = bytes([_VERSION, 1, 0, _MODE, 4, _VIA]) + counted_text(via) + bytes([_KNOWN_ENCODING, _BINARY])
    return preamble + _write_envelope(value, to)


_WRITTEN: Final = ("action", "to", "body", "message_id", "relates_to", "reply_to", "via", "mode", "encoding")
_MUST_UNDERSTAND: Final = b"\x1e\x00\x82"
"""The attribute ``s:mustUnderstand="1"`` in binary XML."""


def _write_envelope(value: dict[str, Any], to: str) -> bytes:
    header = b"\x44\x0a" + _MUST_UNDERSTAND + nbfx.write_text(value["action"])
    for key, number in (("message_id", 0x1A), ("relates_to", 0x12)):
        if key in value:
            header += b"\x44" + multi_byte_integer(number) + nbfx.write_text(value[key])
    if "reply_to" in value:
        header += b"\x44\x2c\x44\x2a" + nbfx.write_text(value["reply_to"]) + b"\x01"
    header += b"\x44\x0c" + _MUST_UNDERSTAND + nbfx.write_text(to)
    body = value["body"]
    if not isinstance(body, dict) or len(body) > 1:
        raise BodyError("the body of a WCF message is a dictionary with the operation's element as its one key")
    inner = b"".join(nbfx.write(element_of(name, held)) for name, held in body.items())
    # <s:Envelope xmlns:s xmlns:a><s:Header>...</s:Header><s:Body>...</s:Body></s:Envelope>
    return b"\x56\x02\x0b\x01s\x04\x0b\x01a\x06\x56\x08" + header + b"\x01\x56\x0e" + inner + b"\x01\x01"
