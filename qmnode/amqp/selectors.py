"""Selectors: the conditions of JMS (Jakarta Messaging 3.1, section 3.8) in the registry's filter of AMQP 1.0.

A condition is true, false or unknown, as in SQL: ``None`` stands for unknown. A message is selected if it is true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, VisitError

from qmnode.amqp.codec import Described
from qmnode.amqp.error_conditions import INVALID_FIELD, NOT_IMPLEMENTED, RefusedError

if TYPE_CHECKING:
    from qmnode.amqp.sections import AmqpMessage

_CODE: Final = 0x0000_468C_0000_0004
"""The number of the filter in the registry of Apache, beside its names."""
_NAMES: Final = (_CODE, "apache.org:selector-filter:string", "apache.org:jms-selector-filter:string", "jms-selector")
_LONGEST: Final = 2048
"""Characters of a condition."""
_DEEPEST: Final = 50
"""Parentheses and signs within one another."""
_LONGEST_TEXT: Final = 16 * 1024
"""Characters of a text for LIKE: nothing else runs meanwhile. Whether a longer one matches is unknown."""

_GRAMMAR: Final = r"""
    ?start: any
    ?any: all (_OR all)*                    -> any
    ?all: negated (_AND negated)*           -> all
    ?negated: _NO negated                  -> negation
        | compared
    ?compared: sum
        | sum COMPARISON sum                  -> comparison
        | sum [NOT] _BETWEEN sum _AND sum -> between
        | sum [NOT] _IN "(" STRING ("," STRING)* ")" -> within
        | sum [NOT] _LIKE STRING [_ESCAPE STRING]  -> like
        | sum _IS [NOT] _NULL            -> is_null
    ?sum: product (SUM product)*              -> calculation
    ?product: signed (PRODUCT signed)*        -> calculation
    ?signed: SIGN signed                      -> signed
        | value
    ?value: name
        | STRING                              -> string
        | NUMBER                              -> number
        | _TRUE                             -> true
        | _FALSE                            -> false
        | "(" any ")"                         -> nested
    name: NAME | QUOTED
    COMPARISON: "<>" | "<=" | ">=" | "=" | "<" | ">"
    SUM: "+" | "-"
    SIGN: "+" | "-"
    PRODUCT: "*" | "/"
    _OR: /OR\b/i
    _AND: /AND\b/i
    _BETWEEN: /BETWEEN\b/i
    _IN: /IN\b/i
    _LIKE: /LIKE\b/i
    _ESCAPE: /ESCAPE\b/i
    _IS: /IS\b/i
    _NULL: /NULL\b/i
    _TRUE: /TRUE\b/i
    _FALSE: /FALSE\b/i
    NOT.1: /NOT\b/i
    _NO: /NOT\b/i
    STRING: /'(?:[^']|'')*'/
    QUOTED: /"(?:[^"]|"")*"/
    NUMBER: /(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfFlL]?/
    NAME: /(?!(?:NOT|AND|OR|BETWEEN|IN|LIKE|ESCAPE|IS|NULL|TRUE|FALSE)\b)[^\W\d][\w.$]*/i
    %ignore /\s+/
"""
_Values = Callable[[str], Any]
"""The value of a name: of a property of the message, None without one."""
_Calculate = Callable[[_Values], Any]


class _Part(NamedTuple):
    """A part of a condition, and how deep it is."""

    value: _Calculate
    depth: int = 0


def _deeper(value: _Calculate, *parts: _Part, by: int = 1) -> _Part:
    depth = by + max(part.depth for part in parts)
    if depth > _DEEPEST:
        raise RefusedError(INVALID_FIELD, f"a selector with more than {_DEEPEST} parentheses within one another")
    return _Part(value, depth)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if not (_is_number(left) and _is_number(right)):
        if sign not in ("=", "<>"):
            return None
        for kind in (bool, str):
            if isinstance(left, kind) and isinstance(right, kind):
                break
        else:
            return None if sign == "<>" else False
    return _COMPARISONS[sign](left, right)


def _calculate(left: Any, sign: str, right: Any) -> Any:
    """A number; None for what is none. Whole numbers divided are a whole number, rounded towards zero."""
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        match sign:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
        if isinstance(left, int) and isinstance(right, int):
            whole = abs(left) // abs(right)
            return whole if (left < 0) == (right < 0) else -whole
        return left / right
    except ArithmeticError:
        return None


def _all(parts: Sequence[_Calculate], values: _Values) -> bool | None:
    outcome: bool | None = True
    for part in parts:
        match part(values):
            case True:
                pass
            case False:
                return False
            case _:
                outcome = None
    return outcome


def _any(parts: Sequence[_Calculate], values: _Values) -> bool | None:
    outcome: bool | None = False
    for part in parts:
        match part(values):
            case True:
                return True
            case False:
                pass
            case _:
                outcome = None
    return outcome


def _not(value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


class _Pattern:
    """A pattern of LIKE. The time for a text grows with its length times that of the pattern, whatever they are."""

    def __init__(self, pattern: str, escape: str) -> None:
        parts, part = [], ""
        characters = iter(pattern)
        for one in characters:
            if one == escape:
                following = next(characters, None)
                if following is None:
                    raise RefusedError(INVALID_FIELD, "a selector whose pattern ends with its escape character")
                part += re.escape(following)
            elif one == "%":
                parts.append(part)
                part = ""
            else:
                part += "." if one == "_" else re.escape(one)
        self._parts = [re.compile(text, re.DOTALL) for text in [*parts, part]]
        self._last = re.compile(part + r"\Z", re.DOTALL)
        self._last_length = len(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL))

    def matches(self, text: str) -> bool:
        """Whether the whole text is of this pattern."""
        first, *others = self._parts
        if not others:
            return first.fullmatch(text) is not None
        found = first.match(text)
        for part in others[:-1]:
            if found is None:
                return False
            found = part.search(text, found.end())
        start = len(text) - self._last_length
        return found is not None and start >= found.end() and self._last.match(text, start) is not None


def _text(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


@v_args(inline=True)
class _Conditions(Transformer):  # type: ignore[type-arg]
    """The parts of a condition as functions of the message's values."""

    def name(self, name: Token) -> _Part:
        text = str(name)
        if text.startswith('"'):
            text = text[1:-1].replace('""', '"')
        return _Part(lambda values: values(text))

    def string(self, token: Token) -> _Part:
        text = _text(token)
        return _Part(lambda values: text)

    def number(self, token: Token) -> _Part:
        text = str(token).rstrip("dDfFlL")
        value: int | float = int(text) if text.isdigit() and str(token)[-1] not in "dDfF" else float(text)
        return _Part(lambda values: value)

    def true(self) -> _Part:
        return _Part(lambda values: True)

    def false(self) -> _Part:
        return _Part(lambda values: False)

    def nested(self, part: _Part) -> _Part:
        return _deeper(part.value, part)

    def signed(self, sign: Token, part: _Part) -> _Part:
        return _deeper(lambda values: _calculate(0, str(sign), part.value(values)), part)

    def calculation(self, *parts: Any) -> _Part:
        first, *rest = parts
        if not rest:
            return _Part(*first)
        steps = [(str(sign), part.value) for sign, part in zip(rest[::2], rest[1::2], strict=True)]
        return _deeper(
            lambda values: reduce(
                lambda left, step: _calculate(left, step[0], step[1](values)), steps, first.value(values)
            ),
            first, *rest[1::2],
        )  # fmt: skip

    def comparison(self, left: _Part, sign: Token, right: _Part) -> _Part:
        return _deeper(lambda values: _compare(str(sign), left.value(values), right.value(values)), left, right)

    def between(self, part: _Part, no: Token | None, low: _Part, high: _Part) -> _Part:
        def decide(values: _Values) -> bool | None:
            value = part.value(values)
            inside = _all(
                [
                    lambda _: _compare(">=", value, low.value(values)),
                    lambda _: _compare("<=", value, high.value(values)),
                ],
                values,
            )
            return inside if no is None else _not(inside)

        return _deeper(decide, part, low, high)

    def within(self, name: _Part, no: Token | None, *listed: Token) -> _Part:
        texts = frozenset(map(_text, listed))

        def decide(values: _Values) -> bool | None:
            value = name.value(values)
            return (value in texts) == (no is None) if isinstance(value, str) else None

        return _Part(decide)

    def like(self, name: _Part, no: Token | None, pattern: Token, escape: Token | None) -> _Part:
        sign = _text(escape) if escape is not None else ""
        if escape is not None and len(sign) != 1:
            raise RefusedError(INVALID_FIELD, "a selector whose ESCAPE is not one character")
        wanted = _Pattern(_text(pattern), sign)

        def decide(values: _Values) -> bool | None:
            value = name.value(values)
            is_short = isinstance(value, str) and len(value) <= _LONGEST_TEXT
            return wanted.matches(value) == (no is None) if is_short else None

        return _Part(decide)

    def is_null(self, name: _Part, no: Token | None) -> _Part:
        return _Part(lambda values: (name.value(values) is None) == (no is None))

    def negation(self, part: _Part) -> _Part:
        return _deeper(lambda values: _not(part.value(values)), part)

    def all(self, *parts: _Part) -> _Part:
        return parts[0] if len(parts) == 1 else _deeper(partial(_all, [part.value for part in parts]), *parts)

    def any(self, *parts: _Part) -> _Part:
        return parts[0] if len(parts) == 1 else _deeper(partial(_any, [part.value for part in parts]), *parts)


_PARSER: Final = Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True, transformer=_Conditions())


def _value_in(message: AmqpMessage, name: str) -> Any:
    """The value of a name: a header of JMS, or a property of the application."""
    match name:
        case "JMSDeliveryMode":
            return "PERSISTENT" if message.header.get("durable") else "NON_PERSISTENT"
        case "JMSPriority":
            return message.header.get("priority")
        case "JMSMessageID":
            return message.properties.get("message_id")
        case "JMSCorrelationID":
            return message.properties.get("correlation_id")
        case "JMSTimestamp":
            return message.properties.get("creation_time")
        case "JMSType":
            return message.properties.get("subject")
        case "JMSXGroupID":
            return message.properties.get("group_id")
        case "JMSXGroupSeq":
            return message.properties.get("group_sequence")
        case "JMSXDeliveryCount":
            return message.header.get("delivery_count", 0) + 1
    return message.application_properties.get(name)


class Selector:
    """A condition that messages meet or not."""

    def __init__(self, text: str) -> None:
        """RefusedError if it is no condition."""
        if len(text) > _LONGEST:
            raise RefusedError(INVALID_FIELD, f"a selector of {len(text)} characters: at most {_LONGEST} are taken")
        self.names_headers = "JMS" in text
        """Whether it may need more of a message than the properties of its application."""
        try:
            self._decide: _Calculate = _PARSER.parse(text).value  # type: ignore[attr-defined]
        except VisitError as error:
            raise error.orig_exc from None
        except LarkError as error:
            at = getattr(error, "column", 0)
            place = f" at character {at}" if isinstance(at, int) and at > 0 else ""
            raise RefusedError(INVALID_FIELD, f"a selector that cannot be read{place}: {text[:100]}") from None

    def selects(self, message: AmqpMessage) -> bool:
        """Whether the condition is true for a message."""
        return self._decide(partial(_value_in, message)) is True


def selector_of(filters: Any) -> Selector | None:
    """The selector among the filters of a source; None if there are none. RefusedError for other filters."""
    if not filters:
        return None
    if isinstance(filters, dict) and len(filters) == 1:
        (given,) = filters.values()
        if isinstance(given, Described) and given.descriptor in _NAMES and isinstance(given.value, str):
            return Selector(given.value) if given.value.strip() else None
    raise RefusedError(NOT_IMPLEMENTED, "of all filters, there is apache.org:selector-filter:string only, once")
