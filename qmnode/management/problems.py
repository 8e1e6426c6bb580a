"""Errors as ``application/problem+json`` (RFC 9457), with the MQ_ERROR code, its name, and a sentence."""

import json
import re
from http import HTTPStatus
from typing import Any, Final, get_args, get_origin

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.text import nearest

log = structlog.get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final = {
    ErrorCode.MQ_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.MQ_ERROR_ACCESS_DENIED: HTTPStatus.FORBIDDEN,
    ErrorCode.MQ_ERROR_QUEUE_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.MQ_ERROR_SHARING_VIOLATION: HTTPStatus.CONFLICT,
    ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE: HTTPStatus.CONFLICT,
    ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE: HTTPStatus.CONFLICT,
    ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED: HTTPStatus.CONFLICT,
    # A quota is a rule that the request breaks, not a failure of the node.
    ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: HTTPStatus.CONFLICT,
    ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP statuses of MQ_ERROR codes; 400 for all others."""

_CODES: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorCode.MQ_ERROR_ACCESS_DENIED,
    HTTPStatus.FORBIDDEN: ErrorCode.MQ_ERROR_ACCESS_DENIED,
    HTTPStatus.METHOD_NOT_ALLOWED: ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
    HTTPStatus.SERVICE_UNAVAILABLE: ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
}
"""MQ_ERROR codes for refusals by HTTP itself; MQ_ERROR_INVALID_PARAMETER for all others."""


_SHOWN: Final = 200
"""The most characters of a misspelt name that are compared with others, which takes time."""


class Mistake(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="Path to the value", examples=["body.messages.0.priority"])
    sentence: str


class Problem(BaseModel):
    """The document of every error."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "MQ_ERROR_QUEUE_NOT_FOUND",
                "status": 404,
                "detail": "there is no queue .\\private$\\orders on ALPHA",
                "code": "0xC00E0003",
                "name": "MQ_ERROR_QUEUE_NOT_FOUND",
                "mistakes": [],
            }
        }
    )

    type: str = "about:blank"
    title: str = Field(description="The same as name")
    status: int
    detail: str = Field(description="A sentence that says what to do")
    code: str = Field(description="MQ_ERROR code (MS-MQMQ 2.4), hexadecimal")
    name: str = Field(description="Name of the code")
    mistakes: list[Mistake] = Field(default=[], description="Of a request that is not valid: each thing that is wrong")


def status_of(code: ErrorCode) -> int:
    """The HTTP status of an MQ_ERROR code."""
    return _STATUS.get(code, HTTPStatus.BAD_REQUEST)


class _Answer(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()  # in ASCII: names in requests may have halves of surrogate pairs


def problem(status: int, code: ErrorCode, sentence: str, mistakes: list[Mistake] | None = None) -> JSONResponse:
    """An error as an answer."""
    content = Problem(
        title=code.name,
        status=status,
        detail=sentence,
        code=f"0x{code:08X}",
        name=code.name,
        mistakes=mistakes or [],
    )
    return _Answer(content.model_dump(), status, media_type=MEDIA_TYPE)


def http_problem(status: int, sentence: str) -> JSONResponse:
    """Report a refusal by HTTP itself, with the code that fits best."""
    return problem(status, _CODES.get(HTTPStatus(status), ErrorCode.MQ_ERROR_INVALID_PARAMETER), sentence)


async def failed(request: Request, error: Exception) -> JSONResponse:
    """An operation of the queue manager failed."""
    assert isinstance(error, MessageQueuingError)
    request.state.problem = error.name
    return problem(status_of(error.code), error.code, error.sentence)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentence = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path}: see /openapi.json",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.url.path} does not take {request.method}",
    }.get(HTTPStatus(error.status_code), str(error.detail))
    answer = http_problem(error.status_code, sentence)
    answer.headers.update(error.headers or {})
    return answer


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    if any(mistake["loc"] == ("body",) and isinstance(mistake["input"], bytes) for mistake in error.errors()):
        given = request.headers.get("content-type", "none")  # the framework parses only what is called JSON
        sentence = f"the body is {given!r:.80}: send JSON with 'Content-Type: application/json'"
        return http_problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
    mistakes = [
        Mistake(where=".".join(map(str, mistake["loc"])), sentence=_sentence(request, mistake))
        for mistake in error.errors()[:20]
    ]
    sentence = "; ".join(f"{mistake.where}: {mistake.sentence}" for mistake in mistakes[:3])
    request.state.problem = ErrorCode.MQ_ERROR_INVALID_PARAMETER.name
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence, mistakes)


def _sentence(request: Request, mistake: dict[str, Any]) -> str:
    """Return the fault, with the nearest name of a field or value."""
    if mistake["type"] == "extra_forbidden":
        name, *place = reversed(mistake["loc"])
        known = _fields(request, list(reversed(place)))
        near = nearest(str(name)[:_SHOWN], known)
        hint = f"did you mean {near}?" if near else f"known here: {', '.join(sorted(known)) or 'none'}"
        return f"it is no field of this document ({hint})"
    sentence: str = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] in ("enum", "literal_error"):
        near = nearest(str(mistake["input"])[:_SHOWN], re.findall(r"'([^']*)'", mistake["ctx"]["expected"]))
        return f"{sentence} (did you mean {near}?)" if near else sentence
    return sentence


def _fields(request: Request, place: list[Any]) -> set[str]:
    """The fields of the document at this place of the body; none if there are several kinds of it."""
    body = getattr(request.scope.get("route"), "body_field", None)
    kinds = [] if body is None or place[:1] != ["body"] else _models(body.field_info.annotation)
    for step in place[1:]:
        if not isinstance(step, int):  # the place in a list
            fields = [kind.model_fields[step].annotation for kind in kinds if step in kind.model_fields]
            kinds = [one for annotation in fields for one in _models(annotation)]
    return set().union(*(kind.model_fields for kind in kinds))


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The documents in a type: its own, or those of a list or a union."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [one for part in get_args(annotation) for one in _models(part)]


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed unexpectedly", method=request.method, path=request.url.path, exc_info=error)
    sentence = "the node failed at this request; its log says why"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, ErrorCode.MQ_ERROR, sentence)


def install_handlers(app: FastAPI) -> None:
    """Every error of the application is a problem."""
    app.add_exception_handler(MessageQueuingError, failed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(Exception, _unexpected)


def about(tag: str, summary: str, *errors: int, answer: dict[str, Any] | None = None) -> dict[str, Any]:
    """The description of a route for OpenAPI, with these errors beside those that every resource may answer with.

    ``answer`` describes an answer that is no JSON document.
    """
    responses = {status: problem_response(HTTPStatus(status).phrase) for status in (*_EVERYWHERE, *errors)}
    return {"tags": [tag], "summary": summary, "responses": responses | ({200: answer} if answer else {})}


def problem_response(description: str) -> dict[str, Any]:
    """For OpenAPI: an answer that is a problem."""
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


_EVERYWHERE: Final = (400, 401, 403, 422, 503)
