"""Headers of NServiceBus: in Extension, as the XML of a list of header infos (NServiceBus.Transport.Msmq).

The body is in the format of the endpoint's serializer, usually XML or JSON; ``NServiceBus.ContentType`` names it.
"""

import re
from typing import Final
from xml.sax.saxutils import escape

from qmnode.bodies.limits import BodyError, Budget, BudgetError
from qmnode.bodies.xml_text import parse, text_of
from qmnode.bodies.xml_tree import Element, is_nil

NAME: Final = "nservicebus"
_ROOT: Final = "ArrayOfHeaderInfo"
_END: Final = b"</ArrayOfHeaderInfo>"
_START: Final = (
    '<?xml version="1.0" encoding="utf-8"?><ArrayOfHeaderInfo'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema">'
)


_ROOT_BEGUN: Final = re.compile(rb"<[A-Za-z][^\s/>]*")


def recognise(extension: bytes) -> bool:
    """Whether it is such a list, complete or truncated."""
    start = extension[:512].replace(b"\0", b"")  # it may be UTF-16
    if b"<ArrayOfHeaderInfo" in start:
        return True
    if len(extension) >= 512 or b"<?xml" not in start[:8]:
        return False
    root = _ROOT_BEGUN.search(start)
    return root is None or (root.end() == len(start) and b"<ArrayOfHeaderInfo".startswith(root[0]))


def decode(extension: bytes, budget: Budget) -> tuple[dict[str, str | None], str]:
    """Headers by name; those without a value are None. Of damaged ones, those that can be read; and what is damaged,
    else no reason.

    Data after the list, such as the NUL characters of old senders, are ignored.
    """
    end = extension.rfind(_END)
    content = extension[: end + len(_END)] if end >= 0 else extension
    try:
        found, twice = _headers(parse(content, budget))
        return found, "; ".join(
            f"the header {name!r:.80} is there more than once, and its last value is shown" for name in twice[:_MOST]
        )
    except BudgetError:
        raise
    except BodyError as error:
        found, damaged = _read_part(content, budget)
        places = [str(error), *damaged]
        if found and not damaged:
            places[0] += f", after the header {next(reversed(found))!r:.80}"
        return found, "; ".join(places)


def _headers(root: Element) -> tuple[dict[str, str | None], list[str]]:
    """The headers, and the names of those that are there more than once."""
    if root.name != _ROOT:
        raise BodyError(f"the headers are <{root.name:.80}>, and NServiceBus writes <{_ROOT}>")
    found: dict[str, str | None] = {}
    twice: dict[str, None] = {}
    for info in root.children:
        key, value = info.child("Key"), info.child("Value")
        if key is not None:
            if key.text in found:
                twice[key.text] = None
            found[key.text] = None if value is None or is_nil(value) else value.text
    return found, list(twice)


_INFO: Final = re.compile("<HeaderInfo>.*?</HeaderInfo>", re.DOTALL)
_KEY: Final = re.compile("<Key>([^<]{1,80})")
_MOST: Final = 5
"""Damaged headers that are named."""


def _read_part(content: bytes, budget: Budget) -> tuple[dict[str, str | None], list[str]]:
    """The headers of a damaged list that can be read each by itself, and which of them cannot."""
    found: dict[str, str | None] = {}
    damaged: list[str] = []
    for number, info in enumerate(_INFO.findall(text_of(content, "replace")), 1):
        if "\ufffd" not in info:
            try:
                found |= _headers(parse(f"{_START}{info}{_END.decode()}".encode("utf-8", "surrogatepass"), budget))[0]
                continue
            except BudgetError:
                raise
            except BodyError:
                pass
        key = _KEY.search(info)
        damaged.append(f"the header {number}{f', {key[1]!r},' if key else ''} cannot be read")
        if len(damaged) == _MOST:
            break
    return found, damaged


def encode(headers: dict[str, str | None]) -> bytes:
    """The list in the form that NServiceBus reads."""
    infos = "".join(
        f"<HeaderInfo><Key>{_escaped(key)}</Key>"
        + ("" if value is None else f"<Value>{_escaped(value)}</Value>")
        + "</HeaderInfo>"
        for key, value in headers.items()
    )
    return f"{_START}{infos}{_END.decode()}".encode("utf-8", "surrogatepass")


def _escaped(text: str) -> str:
    # NServiceBus reads and writes control characters as references, against XML's rules.
    return "".join(
        f"&#x{ord(letter):X};" if letter < " " and letter not in "\t\n" else letter for letter in escape(text)
    )
