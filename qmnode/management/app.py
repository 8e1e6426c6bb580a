"""The application: resources, errors, and the OpenAPI document that describes them."""

import asyncio
import inspect
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.types import Message

from qmnode.bodies.choice import decode
from qmnode.management import (
    carry_routes,
    console_routes,
    machine_document_routes,
    message_routes,
    node_routes,
    operation_routes,
    queue_routes,
    rotation_routes,
)
from qmnode.management.problems import Problem, install_handlers, problem_response
from qmnode.management.request_context import OPEN_PATHS, Context
from qmnode.version import program_version

_DESCRIPTION: Final = """
Administration of a Message Queuing node: its queues, messages, outgoing queues, connections, transactions, journals
and dead letters.

**Who may do what.** On the Unix socket of the API the administrators of the node
(`security.administrators`) may do everything, other users what the access list of each queue allows. Over TCP every
request needs `Authorization: Bearer TOKEN`. Tokens with the role `read` see everything but the bodies of messages,
those with `bodies` see these too, those with `operate` may do everything, and those with `administer` also read the
audit log, and rotate the keys of a node that permits it. A token with a `principal` may do what the access list of
each queue allows that SID and its groups. Every change is written to the audit log.

**Names.** Queues are named by path name or format name, percent-encoded in paths. `orders` is short for
`.\\private$\\orders`; `orders;journal` is its journal, `orders;later` a subqueue, `system$;deadletter` a system queue.

**Errors** are `application/problem+json`, with the MQ_ERROR code of MS-MQMQ 2.4, its name, and a sentence.

**Messages** here are for looking and repairing. Applications use `qmnode.connect()`, which keeps handles, cursors and
transactions, and is many times faster.
"""
_TAGS: Final = [
    {"name": "queues", "description": "Create, find, change, delete and purge queues."},
    {"name": "messages", "description": "Send, receive, peek, move."},
    {"name": "jobs", "description": "Operations on many messages, which go on in the node."},
    {"name": "carries", "description": "Messages of other queue managers, taken over."},
    {"name": "outgoing queues", "description": "Messages on their way to other machines."},
    {"name": "journals", "description": "Copies of messages that were received or sent."},
    {"name": "dead letters", "description": "What could not be delivered, or was not received."},
    {"name": "transactions", "description": "Transactions that have not ended."},
    {"name": "node", "description": "The node, its limits and its connections."},
    {"name": "health", "description": "For watchdogs, load balancers and Prometheus."},
]
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the file `management.tokens`; TCP only."}
}


def build_app(context: Context) -> FastAPI:
    """The application over a queue manager; callers come through a Doorway."""
    app = FastAPI(
        title="qmnode management API",
        version=program_version(),
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        # The pages that show the document load scripts from elsewhere.
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
    )
    app.state.context = context
    for module in (
        console_routes,  # first in what the framework compares with each path: consoles ask again and again
        queue_routes,
        message_routes,
        operation_routes,
        carry_routes,
        node_routes,
        rotation_routes,
        machine_document_routes,
    ):
        app.include_router(module.router)
    install_handlers(app)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    written: list[bytes] = []

    def write() -> None:
        written[:] = [to_json(app.openapi())]
        app.openapi_schema = None  # Its many parts would be looked at by each collection of garbage.

    async def openapi() -> Response:
        if not written:
            await asyncio.to_thread(write)
        return Response(written[0], media_type="application/json")

    app.add_api_route("/openapi.json", openapi, include_in_schema=False)
    return app


def warmed_app(context: Context) -> FastAPI:
    """The same after its first request, in which the framework builds its routes and imports modules, and with the
    formats of bodies, which are imported when one is first decoded.

    Call it in a thread: all this takes longer than the loop of a node may be held.
    """
    app = build_app(context)
    scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [], "query_string": b"", "state": {}}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Message) -> None:
        pass

    async def first() -> None:
        await app(scope, receive, send)
        await run_in_threadpool(decode, b"<a/>")  # In a thread of the framework, which imports what threads need.

    asyncio.run(first())
    inspect.getsourcelines(build_app)  # The framework does so for every handler; the first time looks at all modules.
    decode(b"{}")
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        definition = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= definition.pop("$defs", {}) | {"Problem": definition}
        components["securitySchemes"] = _SECURITY
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in OPEN_PATHS else [{"bearer": []}, {}]
                operation["responses"].setdefault("default", problem_response("Any other error"))
        app.openapi_schema = document
    return app.openapi_schema
