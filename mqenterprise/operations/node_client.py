"""A node's management API as its operations: every failure of a node is a :class:`NodeError` with a sentence."""

import json
import re
import ssl
from asyncio import Semaphore
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import chain
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from mqenterprise.operations.errors import NodeError
from mqenterprise.topology.names import fold
from qmnode.administration.carry_exchange import CarryExchange
from qmnode.management.carry_routes import BegunCarry, CarryDocument, CarryLedger, CarryList
from qmnode.management.carry_routes import Exchanged as CarryStates
from qmnode.management.documents import NodeDocument, QueueDocument, QuotaDocument, WaitingList
from qmnode.management.machine_document_routes import DocumentChanges, MachineDocument
from qmnode.management.message_documents import MessageDocument
from qmnode.management.operation_routes import (
    Edited,
    FailureGroups,
    FoundList,
    ImportResults,
    JobDocument,
    JobList,
    JobLog,
    TraceDocument,
)
from qmnode.structures.text import printable

D = TypeVar("D", bound=BaseModel)
_LARGEST_ANSWER: Final = 64 * 1024 * 1024
_LONGEST_LINE: Final = 64 * 1024 * 1024
_UNAUTHORIZED: Final = 401
_REPEATED: Final = ("GET", "PUT")
"""Methods whose requests may be repeated at any time."""
_LONGEST_REASON: Final = 500
_HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs."""


class Exchanged(NamedTuple):
    """The answer to a request."""

    status: int
    content: bytes
    media_type: str


class _Bearer(httpx.Auth):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token of this request."""
        request.headers["Authorization"] = f"Bearer {self._token()}"
        yield request


class NodeClient:
    """One node. A context manager; calls may be made side by side."""

    def __init__(
        self,
        machine: str,
        url: str,
        token: str | Callable[[], str],
        trust: ssl.SSLContext,
        *,
        connect_timeout: float,
        timeout: float,
    ) -> None:
        """``token`` may be a function that is called for each request."""
        self.machine = machine
        self.url = url
        self._timeout = timeout
        # Proxies of the environment are no way to a node: the token would pass them.
        self._client = httpx.AsyncClient(
            base_url=url,
            verify=trust,
            auth=_Bearer((lambda: token) if isinstance(token, str) else token),
            headers={"Accept-Encoding": "identity"},
            timeout=httpx.Timeout(timeout, connect=connect_timeout),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__()

    # The node

    async def node(self) -> NodeDocument:
        return await self._ask(NodeDocument, "GET", "/v1/node")

    async def trace(self, criteria: Mapping[str, str]) -> TraceDocument:
        """Return the way of a message as the node knows it; ``criteria`` are parameters of the request."""
        return await self._ask(TraceDocument, "GET", "/v1/trace", parameters=criteria)

    async def waiting(self, machine: str = "") -> WaitingList:
        """Return why messages wait at the node; for one ``machine``, those that go to or through it."""
        return await self._ask(WaitingList, "GET", "/v1/waiting", parameters={"machine": machine})

    async def quotas(self) -> QuotaDocument:
        """Quotas and the default time to live, with the source of each."""
        return await self._ask(QuotaDocument, "GET", "/v1/quotas")

    async def queue(self, name: str) -> QueueDocument:
        return await self._ask(QueueDocument, "GET", f"/v1/queues/{quote(name, safe='')}")

    async def document(self, *, everything: bool) -> MachineDocument:
        """Return the document, or with all that the node has. It is of this machine, whatever the node says."""
        found = await self._ask(MachineDocument, "GET", "/v1/document", parameters={"all": everything})
        if not all(_is_text(queue.get("name")) and _has_values(queue) for queue in found.queues):
            raise _not_understood(1)
        if not (_is_value(found.addresses) and _is_value(found.bridges, _OF_BRIDGES)):
            raise _not_understood(1)
        for one in (*found.queues, *found.bridges.values()):
            one.pop("machine", None)
            one.pop("private", None)
        return found

    async def apply_document(
        self, document: Mapping[str, Any], *, prune: bool, with_messages: bool, dry_run: bool, declares: bool = True
    ) -> DocumentChanges:
        """Make the document of the machine true, or say what that would change. Raises :class:`NodeError` if another
        machine answers.
        """
        if fold(found := (await self.node()).computer_name) != fold(self.machine):
            raise NodeError(f"{printable(found)} answers there, whose queues are others: correct the address")
        asked = {"prune": prune, "with_messages": with_messages, "dry_run": dry_run}
        if not declares:
            asked["declares"] = False
        done = await self._ask(DocumentChanges, "PUT", "/v1/document", parameters=asked, content=document)
        changes = [change for step in done.steps for change in step.changes.values()]
        if not all({"from", "to"} <= change.keys() and _has_values(change, _OF_BRIDGES) for change in changes):
            raise _not_understood(1)
        return done

    async def delete_queue(self, name: str) -> None:
        """Delete a private queue with its messages."""
        async with self._answer("DELETE", f"/v1/queues/{quote(name, safe='')}"):
            pass

    # Messages

    async def find(
        self,
        queues: Sequence[str],
        where: Sequence[str],
        *,
        cursor: str,
        limit: int,
        body: str,
        room: Semaphore,
    ) -> FoundList:
        """A page of a search. ``room`` is acquired before the page is read, when the node has answered."""
        asked = {"queue": list(queues), "where": list(where), "cursor": cursor, "limit": limit, "body": body}
        return await self._ask(FoundList, "GET", "/v1/messages", parameters=asked, room=room)

    async def message(self, queue: str, lookup: str, *, body: str) -> MessageDocument:
        path = f"/v1/queues/{quote(queue, safe='')}/messages/{quote(lookup, safe='')}"
        return await self._ask(MessageDocument, "GET", path, parameters={"body": body})

    @asynccontextmanager
    async def export(self, queues: Sequence[str], where: Sequence[str]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The exported messages as they come. NodeError, also in the middle, if the node's stream is cut off."""
        asked = {"queue": list(queues), "where": list(where)}
        async with (
            self._answer("GET", "/v1/messages/export", parameters=asked) as response,
            aclosing(self._lines(response)) as lines,
        ):
            yield lines

    async def _lines(self, response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        waiting = b""
        try:
            async for part in response.aiter_raw():
                *lines, waiting = (waiting + part).split(b"\n")
                for line in lines:
                    yield _object(line)
                if len(waiting) > _LONGEST_LINE:
                    raise NodeError(f"it sent a line of more than {_LONGEST_LINE} bytes")
        except httpx.HTTPError as error:
            raise NodeError(f"its export was cut off: begin it again ({_why(error)})") from None
        if waiting:
            raise NodeError("its export was cut off: begin it again")

    async def edit(self, queue: str, lookup: str, editing: Mapping[str, Any]) -> Edited:
        """Change a message and send it again."""
        path = f"/v1/queues/{quote(queue, safe='')}/messages/{quote(lookup, safe='')}/edit"
        return await self._ask(Edited, "POST", path, content=editing)

    async def import_messages(self, importing: Mapping[str, Any]) -> ImportResults:
        """Send exported messages, each once."""
        return await self._ask(ImportResults, "POST", "/v1/messages/import", content=importing)

    async def failures(self, queues: Sequence[str], by: Sequence[str], where: Sequence[str]) -> FailureGroups:
        """The failed messages of the node in groups."""
        asked = {"queue": list(queues), "by": list(by), "where": list(where)}
        return await self._ask(FailureGroups, "GET", "/v1/failures", parameters=asked)

    # Jobs

    async def start_job(self, wanted: Mapping[str, Any]) -> JobDocument:
        """Begin a job. See ``NewJob`` of the management API."""
        return await self._ask(JobDocument, "POST", "/v1/jobs", content=wanted)

    async def jobs(self) -> list[JobDocument]:
        """The jobs of the node that the caller may see, the latest first."""
        return (await self._ask(JobList, "GET", "/v1/jobs")).jobs

    async def job(self, number: int) -> JobDocument:
        return await self._ask(JobDocument, "GET", f"/v1/jobs/{number}")

    async def job_log(self, number: int, after: int) -> JobLog:
        """A page of the outcomes of a job."""
        return await self._ask(JobLog, "GET", f"/v1/jobs/{number}/log", parameters={"after": after})

    async def control_job(self, number: int, action: str) -> JobDocument:
        """Pause, resume, cancel or undo a job; undo returns the job that does it."""
        return await self._ask(JobDocument, "POST", f"/v1/jobs/{number}", content={"action": action})

    # Carries

    async def begin_carry(self, source: str, target: str, *, dry_run: bool = False) -> BegunCarry:
        """Begin or go on with the carry from a queue elsewhere into one of the node."""
        wanted = {"source": source, "target": target, "dry_run": dry_run}
        return await self._ask(BegunCarry, "POST", "/v1/carries", content=wanted)

    async def carries(self) -> list[CarryDocument]:
        """The carries into the node, the latest first."""
        return (await self._ask(CarryList, "GET", "/v1/carries")).carries

    async def carry_messages(self, number: int, exchange: CarryExchange) -> CarryStates:
        """Confirm messages and hold more."""
        return await self._ask(CarryStates, "PUT", f"/v1/carries/{number}/messages", octets=exchange.write())

    async def carry_ledger(self, number: int, after: str = "") -> CarryLedger:
        """A page of the ledger of a carry."""
        return await self._ask(CarryLedger, "GET", f"/v1/carries/{number}/ledger", parameters={"after": after})

    async def delete_carry(self, number: int) -> None:
        """Delete a finished carry with its ledger."""
        async with self._answer("DELETE", f"/v1/carries/{number}"):
            pass

    # HTTP

    async def exchange(self, method: str, path: str, query: str, content: bytes, *, largest: int) -> Exchanged:
        """Any request with its answer, also a refusal. NodeError if none comes, or more than ``largest`` bytes."""
        url = httpx.URL(self.url).copy_with(raw_path=f"{path}?{query}".encode("latin-1", "replace"))
        try:
            request = self._client.build_request(
                method, url, content=content, headers={"Content-Type": "application/json"} if content else None
            )
            response = await self._client.send(request, stream=True)
            try:
                return Exchanged(
                    response.status_code,
                    await _whole(response, largest),
                    response.headers.get("Content-Type", ""),
                )
            finally:
                await response.aclose()
        except (httpx.HTTPError, OSError, httpx.InvalidURL, UnicodeError) as error:
            raise self._unavailable(error, changes=method != "GET") from None

    async def stream(self, path: str, query: str) -> AsyncGenerator[bytes, None]:
        """The content of an answer as it comes. NodeError for a refusal, and if it is cut off."""
        async with self._answer("GET", f"{path}?{query}") as response:
            async for part in response.aiter_raw():
                yield part

    async def _ask(
        self,
        kind: type[D],
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        octets: bytes | None = None,
        room: Semaphore | None = None,
    ) -> D:
        async with self._answer(method, path, parameters=parameters, content=content, octets=octets) as response:
            if room is not None:
                await room.acquire()
            try:
                document = await _document(response)
                return kind.model_validate(document, extra="ignore")  # a later release may say more
            except BaseException as error:
                if room is not None:
                    room.release()
                if isinstance(error, ValidationError):
                    raise _not_understood(error.error_count()) from None
                raise

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        content: Mapping[str, Any] | None = None,
        octets: bytes | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """The head of an answer; the rest is read from it. Raises NodeError for every answer that is no success."""
        request = self._client.build_request(method, path, params=parameters, json=content, content=octets)
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.HTTPError, OSError, httpx.InvalidURL, UnicodeError) as error:
            raise self._unavailable(error, changes=method not in _REPEATED) from None
        try:
            if not response.is_success:
                raise await self._refusal(response)
            yield response
        except httpx.HTTPError as error:
            raise self._unavailable(error, changes=method not in _REPEATED) from None
        finally:
            await response.aclose()

    def _unavailable(self, error: Exception, *, changes: bool) -> NodeError:
        certificate = _certificate_error(error)
        if certificate:
            return NodeError(f"its certificate is not believed ({certificate}): check authority and address in --nodes")
        return NodeError(self._broken(error, changes=changes), unavailable=True)

    def _broken(self, error: Exception, *, changes: bool) -> str:
        if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            return f"it is unavailable: no connection to {self.url} in time"
        if isinstance(error, httpx.ConnectError) or not isinstance(error, httpx.HTTPError):
            return f"it is unavailable: no connection to {self.url} ({_why(error)})"
        done = "; it may have been done: list its jobs before you repeat it" if changes else ""
        if isinstance(error, httpx.TimeoutException):
            return f"it did not answer within {self._timeout:g} s{done}"
        return f"the connection to {self.url} broke ({_why(error)}){done}"

    async def _refusal(self, response: httpx.Response) -> NodeError:
        if response.status_code == _UNAUTHORIZED:
            return NodeError("it does not know your token: add its digest to management.tokens of this node")
        try:
            problem = await _document(response)
            name = str(problem["name"])
            return NodeError(printable(f"{name}: {problem['detail']}"[:_LONGEST_REASON]), name)
        except (NodeError, KeyError, TypeError, httpx.HTTPError):
            return NodeError(f"it answered with HTTP status {response.status_code}")


async def _whole(response: httpx.Response, largest: int) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_raw():  # decoded, a few bytes could be more than the memory holds
        parts.append(part)
        size += len(part)
        if size > largest:
            raise NodeError(f"its answer is larger than {largest} bytes")
    return b"".join(parts)


async def _document(response: httpx.Response) -> Any:
    return _json(await _whole(response, _LARGEST_ANSWER))


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise NodeError("its answer is no JSON: is this the management API of a node?") from None


def _not_understood(mistakes: int) -> NodeError:
    counted = f"{mistakes} mistake{'s' if mistakes != 1 else ''}"
    return NodeError(f"its answer is not understood ({counted}): is it another release?")


_OF_BRIDGES: Final = 4
"""Mappings in each other: bridges, a bridge, its secret, and the settings of that."""


def _has_values(found: Mapping[str, Any], depth: int = 0) -> bool:
    return all(_is_text(name) and _is_value(value, depth) for name, value in found.items())


def _is_value(value: object, depth: int = 0) -> bool:
    """Whether it can be in a document: a number, a text, nothing, an access list, or addresses; mappings to a depth."""
    if isinstance(value, list):
        return all(_is_text(entry) or (isinstance(entry, dict) and _is_entry(entry)) for entry in value)
    if isinstance(value, dict):
        return depth > 0 and _has_values(value, depth - 1)
    return value is None or isinstance(value, int | float) or _is_text(value)


def _is_entry(entry: Mapping[str, Any]) -> bool:
    rights = [[verb, *value] if isinstance(value, list) else [None] for verb, value in entry.items() if verb != "to"]
    return _is_text(entry.get("to")) and all(map(_is_text, chain.from_iterable(rights)))


def _is_text(value: object) -> bool:
    """Whether it is a text of whole characters: JSON may have half of one, which nothing can write."""
    return isinstance(value, str) and (value.isascii() or not _HALVES.search(value))


def _object(line: bytes) -> dict[str, Any]:
    found = _json(line)
    if not isinstance(found, dict):
        raise NodeError("its export has a line that is no message")
    return found


def _certificate_error(error: BaseException | None) -> str:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return ""


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
