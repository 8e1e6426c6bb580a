"""Headers of NServiceBus: in Extension, as the XML of a list of header infos (NServiceBus.Transport.Msmq).

The body is in the format of the endpoint's serializer, usually XML or JSON; ``NServiceBus.ContentType`` names it.
"""

from typing import Final
from xml.sax.saxutils import escape

from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.xml_text import parse

NAME: Final = "nservicebus"
_ROOT: Final = "ArrayOfHeaderInfo"
_END: Final = b"</ArrayOfHeaderInfo>"
_START: Final = (
    '<?xml version="1.0" encoding="utf-8"?><ArrayOfHeaderInfo'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema">'
)


def recognise(extension: bytes) -> bool:
    """Whether it is such a list, complete or truncated."""
    return b"<ArrayOfHeaderInfo" in extension[:512].replace(b"\0", b"")  # it may be UTF-16


def decode(extension: bytes, budget: Budget) -> dict[str, str]:
    """Headers by name. Data after the list, such as the NUL characters of old senders, are ignored."""
    end = extension.rfind(_END)
    content = extension[: end + len(_END)] if end >= 0 else extension
    root = parse(content, budget)
    if root.name != _ROOT:
        raise BodyError(f"the headers are <{root.name:.80}>, and NServiceBus writes <{_ROOT}>")
    found: dict[str, str] = {}
    for info in root.children:
        key, value = info.child("Key"), info.child("Value")
        if key is not None:
            found[key.text] = "" if value is None else value.text
    return found


def encode(headers: dict[str, str]) -> bytes:
    """The list in the form that NServiceBus reads."""
    infos = "".join(
        f"<HeaderInfo><Key>{_escaped(key)}</Key><Value>{_escaped(value)}</Value></HeaderInfo>"
        for key, value in headers.items()
    )
    return f"{_START}{infos}{_END.decode()}".encode("utf-8", "surrogatepass")


def _escaped(text: str) -> str:
    # NServiceBus reads and writes control characters as references, against XML's rules.
    return "".join(
        f"&#x{ord(letter):X};" if letter < " " and letter not in "\t\n" else letter for letter in escape(text)
    )
