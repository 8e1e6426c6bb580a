"""Converts typed text to a value for a body format."""

import json
from typing import Any, Final

from qmnode.bodies import activex
from qmnode.bodies.choice import HEADER_FORMATS, named_type
from qmnode.bodies.json_text import members_once
from qmnode.bodies.limits import BodyError, Budget, Limits
from qmnode.bodies.xml_tree import DEEPEST

_OWN: Final = Limits(nodes=1 << 22, depth=DEEPEST, octets=8 << 20)
"""Limits for the sender's own document: more than a message can hold."""


def value_of_text(text: str, format: str) -> Any:
    """The value of a typed text. Raises BodyError if the format cannot represent it.

    For a body type such as VT_I4 the text is read as that type, and as base64 for one of bytes. ``xml`` takes a
    document as it is; ``xml`` and ``activex`` take JSON as its value, and any other text as text. ``json`` and ``wcf``
    require JSON.
    """
    if (body_type := named_type(format)) is not None:
        return activex.value_of_text(text, body_type)
    if format == "text" or format in HEADER_FORMATS:
        return text
    if format == "VT_DATE_OLE":
        return activex.value_of_text(text, activex.Vt.VT_DATE)
    if format == "xml" and text.lstrip("\ufeff \t\r\n").startswith("<"):
        from qmnode.bodies import xml_text

        return xml_text.parse(text.encode("utf-8", "surrogatepass"), Budget(_OWN))
    try:
        return json.loads(text, object_pairs_hook=members_once)
    except BodyError:
        raise
    except (ValueError, RecursionError) as error:
        if format in ("json", "wcf"):
            raise BodyError(f"the body is no JSON: {error}"[:200]) from None
    return text


def value_of_json(value: Any, format: str) -> Any:
    """The value of a JSON document with dates, bytes and identifiers as text. Raises BodyError if the format cannot
    represent it.

    It accepts the texts that :func:`qmnode.bodies.values_as_json.plain` makes from values of body types.
    """
    body_type = named_type(format)
    if isinstance(value, str) and (body_type is not None or format == "VT_DATE_OLE"):
        return value_of_text(value, format)
    if isinstance(value, list) and body_type is not None and body_type & activex.VECTOR:
        element = body_type & ~activex.VECTOR
        return [activex.value_of_text(one, element) if isinstance(one, str) else one for one in value]
    return value
