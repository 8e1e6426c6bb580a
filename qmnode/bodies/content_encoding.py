"""Bodies of NServiceBus and Rebus that are compressed, or whose text has another encoding, as their headers say."""

import re
import zlib
from collections.abc import Mapping
from typing import Final

from qmnode.bodies.limits import BodyError, BudgetError, Limits
from qmnode.bodies.text_encodings import codec_of

_CONTENT_TYPES: Final = ("rbs2-content-type", "NServiceBus.ContentType")
_CONTENT_ENCODINGS: Final = ("rbs2-content-encoding", "rbs2-encoding")
_CHARSET: Final = re.compile(r";\s{0,20}charset\s{0,20}=\s{0,20}[\"']?([A-Za-z0-9_.:+-]{1,40})", re.IGNORECASE)
_PLAIN: Final = frozenset({"utf-8", "ascii"})
_GZIP: Final = 16 + zlib.MAX_WBITS


def plain_content(body: bytes, headers: Mapping[str, str | None], limits: Limits) -> bytes:
    """The body as it was before it was compressed, and its text in UTF-8. Raises BodyError."""
    for name in _CONTENT_ENCODINGS:
        encoding = (headers.get(name) or "").strip().lower()
        if encoding in ("gzip", "x-gzip"):
            body = _unzipped(body, limits)
        elif encoding and name == _CONTENT_ENCODINGS[0] and encoding != "identity":
            raise BodyError(f"the content encoding {encoding!r:.40} is not read: gzip is")
    for name in _CONTENT_TYPES:
        if found := _CHARSET.search((headers.get(name) or "")[:200]):
            codec = codec_of(found[1])
            if codec in _PLAIN:
                return body
            if codec in ("utf-16", "utf-32") and body[:1] not in (b"\xff", b"\xfe", b"\0"):
                codec += "-le"  # as .NET writes it; without a mark Python would take the machine's order
            if len(body) > limits.octets:
                raise BudgetError(f"more than {limits.octets} bytes: raise the limit bodies.octets to decode it")
            try:
                return body.decode(codec).removeprefix("\ufeff").encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise BodyError(f"it is no text of {found[1]}: {error.reason} at byte {error.start}") from None
    return body


def _unzipped(body: bytes, limits: Limits) -> bytes:
    """All members of a gzip file, at most as long as the limit: a small body must not fill the memory."""
    parts: list[bytes] = []
    left = limits.octets
    while body:
        unpacker = zlib.decompressobj(_GZIP)
        try:
            part = unpacker.decompress(body, left + 1)
        except zlib.error as error:
            raise BodyError(f"it is no gzip, though its headers say so: {error}") from None
        left -= len(part)
        if left < 0:
            raise BudgetError(
                f"more than {limits.octets} bytes when unpacked: raise the limit bodies.octets to decode it"
            )
        if not unpacker.eof:
            raise BodyError("it is a cut gzip file")
        parts.append(part)
        body = unpacker.unused_data.lstrip(b"\0")
        if len(parts) > _MEMBERS:
            raise BodyError(f"it is a gzip file of more than {_MEMBERS} members")
    return b"".join(parts)


_MEMBERS: Final = 100
