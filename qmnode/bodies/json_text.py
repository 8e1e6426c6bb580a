"""Bodies of JSON, which NServiceBus and Rebus write beside their headers."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from qmnode.bodies.byte_reader import utf8
from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.values_as_json import plain

_MARK: Final = b"\xef\xbb\xbf"


def looks_like_json(body: bytes) -> bool:
    """Whether it begins and ends like an object or an array."""
    start, end = body[:64].removeprefix(_MARK).lstrip(), body[-64:].rstrip(b" \t\r\n\0")
    return (start[:1], end[-1:]) in ((b"{", b"}"), (b"[", b"]"))


def members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. Raises BodyError if a name is there twice: one of its values would be lost."""
    if twice := repeated(pairs):
        raise BodyError(f"the name {twice[0]!r:.80} is twice in an object: keep one of them")
    return dict(pairs)


def repeated(pairs: list[tuple[str, Any]]) -> list[str]:
    """The names that are there more than once."""
    seen = Counter(name for name, _ in pairs)
    return [name for name, count in seen.items() if count > 1]


def decode(
    body: bytes, budget: Budget, *, members: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None
) -> Any:
    """Decode a document. Its values and its depth are counted first. ``members`` makes its objects."""
    body = body.removeprefix(_MARK).rstrip(b"\0")
    # Each further value needs a comma, a colon or an opening bracket. Those within texts can only make the count too
    # high.
    budget.spend(0, len(body))
    budget.require(body.count(b",") // 2 + body.count(b"[") + body.count(b"{"))
    try:
        value = json.loads(utf8(body), parse_constant=str, object_pairs_hook=members)
    except RecursionError:
        raise BodyError(f"nested more than {budget.limits.depth} deep") from None
    except ValueError as error:
        raise BodyError(f"it is no JSON: {error}"[:200]) from None
    _check_depth(value, budget)
    return value


def _check_depth(value: Any, budget: Budget) -> None:
    level, depth = [value], 0
    while level:
        budget.check_depth(depth)
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level, depth = [child for held in inner for child in held if isinstance(child, (dict, list))], depth + 1


def encode(value: Any) -> bytes:
    """UTF-8 without a byte-order mark."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8")
