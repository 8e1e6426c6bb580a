"""Large requests, read in steps: the event loop of the node serves applications meanwhile."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin
from urllib.parse import unquote

from fastapi import HTTPException, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.routing import Match
from starlette.types import Scope

from qmnode.administration.turns import Pace
from qmnode.structures.text import nearest

T = TypeVar("T")
MOST_ITEMS: Final = 100_000
"""Items of a list in a request."""
_LARGE: Final = 256 * 1024
"""Bytes of a request from which it is read in steps."""
_SPACE: Final = " \t\n\r"


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. HTTPException if one is there twice: one of its values would be ignored."""
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        _refuse_twice(next(name for name in names if names.count(name) > 1))
    return members


def _refuse_twice(name: str) -> NoReturn:
    raise HTTPException(400, f"the member {name!r:.80} is twice in an object of the request: give it once")


_ENCODED_SLASH: Final = re.compile(rb"%2f", re.IGNORECASE)
_KEPT_SLASH: Final = "\udc2f"
"""No decoded path contains half a surrogate pair."""
_decoder: Final = json.JSONDecoder(object_pairs_hook=_members_once)


class InSteps(APIRoute):
    """A route whose requests are objects, each member of which is there once. The items of long lists are read in a
    step of their own. An encoded slash is a part of a name.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path as it came: in the decoded one, a slash in a name is like one between names."""
        raw = scope.get("raw_path") or b""
        if not _ENCODED_SLASH.search(raw):
            return super().matches(scope)
        path = _KEPT_SLASH.join(unquote(part.decode("latin-1")) for part in _ENCODED_SLASH.split(raw))
        match, found = super().matches({**scope, "path": path})
        parameters: dict[str, str] = found.get("path_params", {})
        names = {name: value.replace(_KEPT_SLASH, "/") for name, value in parameters.items()}
        return match, {**found, "path_params": names}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI, for a request that reads itself in steps."""
        handle, known = super().get_route_handler(), _query_parameters(self.dependant)
        is_watched = not self.path.startswith("/v1/")  # by watchdogs, with parameters of their own

        async def handle_in_steps(request: Request) -> Response:
            if not is_watched:
                _check_query(request, known)
            return await handle(_Request(request.scope, request.receive))

        return handle_in_steps


def _query_parameters(dependant: Dependant) -> dict[str, bool]:
    """The names of the query parameters that a route takes, and whether one may be there several times."""
    found: dict[str, bool] = {}
    for inner in dependant.dependencies:
        found |= _query_parameters(inner)
    for one in dependant.query_params:
        kind = one.field_info.annotation
        found[one.alias] = any(get_origin(part) is list for part in (kind, *get_args(kind)))
    return found


def _check_query(request: Request, known: Mapping[str, bool]) -> None:
    """Refuse a parameter that would have no effect: an unknown one, or all but the last of several."""
    for name, value in request.query_params.items():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(sorted(known)) or 'none'}"
            _refuse_parameter(name, value, f"is no parameter of this request ({hint})")
        if not known[name] and len(request.query_params.getlist(name)) > 1:
            _refuse_parameter(name, value, "is there more than once: give it once")


def _refuse_parameter(name: str, value: str, sentence: str) -> NoReturn:
    where = ("query", name[:80])
    raise RequestValidationError([{"type": "value_error", "loc": where, "msg": f"it {sentence}", "input": value}])


class _Request(Request):
    async def json(self) -> Any:
        """The document. Raises json.JSONDecodeError."""
        content = await self.body()
        if len(content) < _LARGE:
            return json.loads(content, object_pairs_hook=_members_once)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise json.JSONDecodeError(f"not UTF-8: {error.reason}", "", error.start) from None
        return await _Reader(text).document()


class _Reader:
    """Reads an object whose members may be long lists."""

    def __init__(self, text: str) -> None:
        self._text, self._place, self._pace = text, 0, Pace()

    async def document(self) -> Any:
        """The value of the text."""
        if self._next() != "{":
            value = self._value()
        else:
            value = {}
            async for name in self._members("}"):
                if not isinstance(name, str):
                    self._refuse("a name is a text")
                if name in value:
                    _refuse_twice(name)
                self._take(":")
                value[name] = [item async for item in self._members("]")] if self._next() == "[" else self._value()
        if self._next():
            self._refuse("the document goes on after its end")
        return value

    async def _members(self, end: str) -> AsyncIterator[Any]:
        """The values of a list, or the names of an object, whose values the caller reads."""
        self._place += 1
        if self._next() == end:
            self._place += 1
            return
        for _ in range(MOST_ITEMS):
            yield self._value()
            await self._pace.rest()
            if self._next() == end:
                self._place += 1
                return
            self._take(",")
        raise HTTPException(413, f"a list of more than {MOST_ITEMS} items: send it in parts")

    def _next(self) -> str:
        text, place = self._text, self._place
        while text[place : place + 1] in _SPACE and place < len(text):
            place += 1
        self._place = place
        return text[place : place + 1]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            self._refuse(f"{expected!r} is missing")
        self._place += 1

    def _value(self) -> Any:
        self._next()
        value, self._place = _decoder.raw_decode(self._text, self._place)
        return value

    def _refuse(self, reason: str) -> None:
        raise json.JSONDecodeError(reason, self._text, self._place)


async def each(items: list[Any], read: Callable[[Any], T], where: str) -> list[T]:
    """Read the items of a list, those that may take long in a thread.

    Raises RequestValidationError for those that are not valid.
    """
    found: list[T] = []
    mistakes: list[Any] = []
    pace = Pace()
    for number, item in enumerate(items):
        try:
            found.append(await asyncio.to_thread(read, item) if _is_costly(item) else read(item))
        except ValidationError as error:
            mistakes += [one | {"loc": ("body", where, number, *one["loc"])} for one in error.errors()]
            if len(mistakes) >= 20:
                break
        await pace.rest()
    if mistakes:
        raise RequestValidationError(mistakes)
    return found


def _is_costly(item: Any) -> bool:
    """Whether an item has a value, which is written in a format, or a long text: a thread reads it."""
    return isinstance(item, dict) and any(
        isinstance(value, dict | list) or (isinstance(value, str) and len(value) >= _LARGE) for value in item.values()
    )
