"""Bodies that are made to exhaust, mislead or reach outside of the decoders. ``attacks(size)`` gives them by name."""

from __future__ import annotations

import struct
from functools import cache

from qmnode.bodies.byte_reader import counted_text as ct
from qmnode.bodies.byte_reader import multi_byte_integer as mb

_WCF = b"\0\1\0\1\4\2\x01x\3\7"
"""A preamble, for binary XML."""


def _nrbf(rest: bytes) -> bytes:
    return b"\0\1\0\0\0\xff\xff\xff\xff\1\0\0\0\0\0\0\0" + rest


@cache
def attacks(size: int) -> dict[str, tuple[bytes, int]]:
    """Body and body type of each attack, of about that size where size matters."""

    def fill(unit: bytes, head: bytes = b"", tail: bytes = b"") -> bytes:
        return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail

    share = size // 16
    bodies = {
        "xml billion laughs": b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
        + b"".join(b'<!ENTITY a%d "%s">' % (i, (b"&a%d;" % (i - 1) if i else b"&a;") * 10) for i in range(10))
        + b"]><a>&a9;</a>"
        + b" " * (size - 2000),
        "xml external": b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x" [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        "xml deep": fill(b"<a>"),
        "xml wide": fill(b"<a/>", b"<r>", b"</r>"),
        "xml attributes": b"<r " + b" ".join(b'a%d=""' % i for i in range(share)) + b"/>",
        "xml one attr": fill(b"x", b"<r a='", b"'/>"),
        "xml namespaces": b"<r " + b" ".join(b'xmlns:a%d="u"' % i for i in range(share)) + b"/>",
        "xml text lines": fill(b"\n", b"<r>", b"</r>"),
        "xml text refs": fill(b"&#65;", b"<r>", b"</r>"),
        "xml text": fill(b"x", b"<r>", b"</r>"),
        "xml cdata": fill(b"<![CDATA[x]]>", b"<r>", b"</r>"),
        "xml comments": fill(b"<!---->", b"<r>", b"</r>"),
        "xml pis": fill(b"<?a ?>", b"<r>", b"</r>"),
        "xml utf16": fill("<a>".encode("utf-16-le"), b"\xff\xfe"),
        "xml long name": fill(b"x", b"<", b"/>"),
        "xml unterminated": fill(b"x", b"<r a='"),
        "xml mixed text": fill(b"a<b/>", b"<r>", b"</r>"),
        "json deep": fill(b"[", b"", b"]"),
        "json wide": fill(b"1,", b"[", b"1]"),
        "json strings": fill(b'"\\u0041"', b"[", b"]"),
        "json digits": fill(b"1", b"[", b"]"),
        "json obj": fill(b'{"a":', b"", b"}"),
        "json escapes": fill(b"\\u0041", b'["', b'"]'),
        "json exp": b"[" + b"1e999999999," * share + b"1]",
        "nrbf nulls": _nrbf(
            b"\x10" + struct.pack("<ii", 1, 0x7FFFFFFF) + b"\x0e" + struct.pack("<i", 0x7FFFFFFF) + b"\x0b"
        ),
        "nrbf array len": _nrbf(b"\x0f" + struct.pack("<ii", 1, 0x7FFFFFFF) + b"\x08"),
        "nrbf rect": _nrbf(
            b"\x07"
            + struct.pack("<i", 1)
            + b"\x02"
            + struct.pack("<i", 32)
            + struct.pack("<i", 0x7FFFFFFF) * 32
            + b"\0\x08"
        ),
        "nrbf rect zero": _nrbf(
            b"\x07"
            + struct.pack("<i", 1)
            + b"\x02"
            + struct.pack("<i", 2)
            + struct.pack("<ii", 0x7FFFFFFF, 0)
            + b"\0\x08\x0b"
        ),
        "nrbf rect zero2": _nrbf(
            b"\x07"
            + struct.pack("<i", 1)
            + b"\x02"
            + struct.pack("<i", 3)
            + struct.pack("<iii", 0, 0x7FFFFFFF, 0x7FFFFFFF)
            + b"\0\x08\x0b"
        ),
        "nrbf ints": fill(b"\1\0\0\0", _nrbf(b"\x0f" + struct.pack("<ii", 1, (size - 40) // 4) + b"\x08"), b"\x0b"),
        "nrbf strings": _nrbf(
            b"\x10"
            + struct.pack("<ii", 1, share)
            + b"".join(b"\x06" + struct.pack("<i", i + 2) + b"\0" for i in range(share))
        ),
        "nrbf libs": fill(b"\x0c\1\0\0\0\0", _nrbf(b"")),
        "nrbf deep": _nrbf(b"") + b"".join(b"\x10" + struct.pack("<ii", i + 1, 1) for i in range(share)),
        "nrbf laughs": _nrbf(
            b"".join(
                b"\x10" + struct.pack("<ii", i + 1, 10) + (b"\x09" + struct.pack("<i", i + 2)) * 10 for i in range(60)
            )
            + b"\x06"
            + struct.pack("<i", 61)
            + ct("x" * 1000)
            + b"\x0b"
        ),
        "nrbf string refs": _nrbf(
            b"\x06"
            + struct.pack("<i", 2)
            + ct("x" * share)
            + b"\x10"
            + struct.pack("<ii", 1, share)
            + (b"\x09" + struct.pack("<i", 2)) * share
            + b"\x0b"
        ),
        "nrbf members": _nrbf(b"\x04" + struct.pack("<i", 1) + ct("C") + struct.pack("<i", 0x7FFFFFFF)),
        "nrbf members4096": _nrbf(b"\x02" + struct.pack("<i", 1) + ct("C") + struct.pack("<i", 4096) + b"\1x" * 4096),
        "nrbf truncated": _nrbf(b""),
        "nrbf cycle": _nrbf(b"\x10" + struct.pack("<ii", 1, 1) + b"\x09\1\0\0\0\x0b"),
        "nrbf bool big": fill(b"\1", _nrbf(b"\x0f" + struct.pack("<ii", 1, size - 60) + b"\x01")),
        "nrbf chars": fill(b"a", _nrbf(b"\x0f" + struct.pack("<ii", 1, size - 60) + b"\x03")),
        "nrbf classes": _nrbf(b"\x04" + struct.pack("<i", 1) + ct("C") + struct.pack("<i", 0))
        + b"".join(b"\x01" + struct.pack("<ii", i, 1) for i in range(2, share)),
        "nbfx dictionary": _WCF[:-1]
        + b"\x08"
        + (lambda t: mb(len(t)) + t)(ct("y" * share))
        + fill(b"\xaa\x01", b"\x40\x01a"),
        "nbfx static": fill(b"\xaa\x04", _WCF + b"\x40\x01a"),
        "nbfx deep": fill(b"\x40\x01a", _WCF),
        "nbfx array": _WCF + b"\x40\x01r\x03\x40\x01a\x01\xb5" + mb(size // 2) + bytes(size // 2) + b"\x01",
        "nbfx arrays": fill(b"\x03\x40\x01a\x01\xb5\x01\x00", _WCF + b"\x40\x01r", b"\x01"),
        "nbfx comments": fill(b"\x02\x00", _WCF + b"\x40\x01r"),
        "nbfx xmlns": _WCF + b"\x40\x01r" + b"".join(b"\x09" + ct(f"p{i}") + b"\x01u" for i in range(share)),
        "nbfx lists": fill(b"\x80", _WCF + b"\x40\x01r\xa4"),
        "nbfx listnest": fill(b"\xa4", _WCF + b"\x40\x01r"),
        "nbfx wide": fill(b"\x40\x01a\x01", _WCF + b"\x40\x01r"),
        "nbfx array outside": _WCF + b"\x03\x40\x01a\x01\xb5" + mb(5) + bytes(5),
        "nbfx table": _WCF[:-1] + b"\x08" + mb(size // 2) + b"\0" * (size // 2),
        "nbfx empty strings attr": fill(b"\x04\0\xa8", _WCF + b"\x40\x01r"),
        "nbfx sessions": fill(b"\6\0", b"\0\1\0\1\3\2\x01x\3\7"),
        "wcf text": b"\0\1\0\1\4\2\x01x\3\3" + fill(b"<a>"),
        "raw": bytes(range(256)) * (size // 256),
        "text": fill(b"hello "),
        "ctrl": fill(b"\1"),
        "text nonascii": ("é" * (size // 2)).encode(),
    }
    found = {name: (body, 0) for name, body in bodies.items()}
    found["bstr of half a character"] = (b"x" * (size - 1), 8)
    found["vector of more texts than bytes"] = (b"\xff\xff\xff\x7f", 0x101F)
    found["vector of text with a huge size"] = (b"\1\0\0\0\xff\xff\xff\x7fab", 0x101F)
    found["vector of many numbers"] = (fill(b"\1\0"), 0x1002)
    found["date beyond the year 9999"] = (struct.pack("<d", 1e300), 7)
    found["date that is not a number"] = (struct.pack("<d", float("nan")), 7)
    found["utf-16 of one surrogate"] = (b"\x00\xd8", 8)
    found["lpstr that the code page has not"] = (b"\x81\x8d", 30)
    found["a body type of no format"] = (b"abc", 0x4003)
    return found
