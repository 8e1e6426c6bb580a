"""The node itself: health, state, quotas, connections, transactions, metrics."""

import asyncio
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from cryptography import x509
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field

from qmnode.administration.queue_names import queue_name
from qmnode.management.documents import (
    ConnectionDocument,
    NodeDocument,
    QuotaDocument,
    TransactionDocument,
    WaitingDocument,
    WaitingList,
    time_or_none,
)
from qmnode.management.large_requests import InSteps
from qmnode.management.metrics import exposition
from qmnode.management.problems import about, http_problem
from qmnode.management.request_context import Context, Node, note
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState
from qmnode.security.message_security import KeyStoreStatus
from qmnode.version import program_version


class CertificateUse(StrEnum):
    """The connections that a certificate is for."""

    MANAGEMENT = "management"
    QUEUE_MANAGERS = "queue managers"


class KeyDocument(BaseModel):
    """A key pair that the node uses."""

    fingerprint: str
    purpose: KeyPurpose
    provider: str = Field(description="The cryptographic service provider")
    length: int = Field(description="Bits of its modulus")
    state: KeyState = Field(description="`next`: not published yet; `previous`: messages to it may still arrive")
    created: datetime | None
    published: datetime | None = Field(description="Since when the directory shows it, or when it began to")
    superseded: datetime | None = Field(description="Since when the directory shows the next one")

    @classmethod
    def of(cls, pair: KeyPair) -> Self:
        """Make the document from a pair."""
        return cls(
            fingerprint=pair.fingerprint,
            purpose=pair.purpose,
            provider=pair.provider,
            length=pair.modulus_length,
            state=pair.state,
            created=time_or_none(pair.created_time),
            published=time_or_none(pair.published_time or 0.0),
            superseded=time_or_none(pair.superseded_time or 0.0),
        )


class CertificateDocument(BaseModel):
    """A certificate of the node."""

    use: CertificateUse
    subject: str | None
    begins: datetime | None
    ends: datetime | None
    fault: str | None = Field(description="Why its file cannot be used")

    @classmethod
    def of(cls, use: CertificateUse, file: Path) -> Self:
        """Read the first certificate of a PEM file."""
        try:
            found = x509.load_pem_x509_certificate(file.read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "this is no PEM file of a certificate"
            return cls(use=use, subject=None, begins=None, ends=None, fault=f"{file}: {reason}")
        return cls(
            use=use,
            subject=found.subject.rfc4514_string()[:500],
            begins=found.not_valid_before_utc,
            ends=found.not_valid_after_utc,
            fault=None,
        )


class Keys(BaseModel):
    """The private keys of the node, as of the last reading of its key store: their names, never more."""

    version: int = Field(description="Of the key store's contents")
    fault: str | None = Field(description="Why the store could not be read; what was read before goes on serving")
    fingerprints: list[str] = Field(description="The keys in use")
    keys: list[KeyDocument] = Field(description="The same with their states and times")
    certificates: list[CertificateDocument] = Field(description="Those of the node itself")

    @classmethod
    def of(cls, status: KeyStoreStatus, context: Context) -> Self:
        """Make the document from the status of the key reader and the settings of the node. Reads files."""
        files = {
            CertificateUse.MANAGEMENT: context.settings.certificate,
            CertificateUse.QUEUE_MANAGERS: context.manager.transport_security.certificate,
        }
        return cls(
            version=status.version,
            fault=status.fault,
            fingerprints=list(status.fingerprints),
            keys=[KeyDocument.of(pair) for pair in status.pairs],
            certificates=[CertificateDocument.of(use, file) for use, file in files.items() if file is not None],
        )


router = APIRouter(route_class=InSteps)

_NO_KEYS: Final = KeyStoreStatus(fault=None)
"""Of a node without a network, which reads no key store."""


class Health(BaseModel):
    """The answer of a healthy node."""

    status: Literal["ok"] = "ok"


class Readiness(Health):
    """Yes, and what does not work although the node takes messages."""

    warnings: list[str] = Field(default=[], examples=[["key store: /var/lib/qmnode/keys cannot be read"]])


class Connections(BaseModel):
    """Connections to other queue managers."""

    connections: list[ConnectionDocument]


class Transactions(BaseModel):
    """Transactions that have not ended."""

    transactions: list[TransactionDocument]


class Online(BaseModel):
    """Whether the node exchanges messages with other machines."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"online": True}})

    online: bool


@router.get("/healthz", **about("health", "Is the process alive, and its disk?"))
async def health(node: Node) -> Health:
    """Answers as long as the node's event loop runs; 503 when it can store nothing. Needs no token.

    No probe of liveness: with a full disk a restart changes nothing, and the node goes on by itself when there is room.
    """
    node.manager.store.check()
    return Health()


@router.get("/readyz", response_model=Readiness, **about("health", "Does the node take messages?"))
async def readiness(node: Node) -> Readiness | JSONResponse:
    """503 while the node starts or stops, and after its store could no longer be written. Needs no token."""
    if not node.ready():
        return http_problem(503, "the node is starting or stopping")
    node.manager.store.check()
    return Readiness(warnings=list((await node.manager.status()).warnings))


@router.get("/v1/waiting", **about("node", "What messages wait for, and why"))
async def show_waiting(
    node: Node,
    queue: Annotated[
        str | None, Query(max_length=512, description="Only of this queue: path name or format name")
    ] = None,
    machine: Annotated[
        str, Query(max_length=256, description="Only what goes to or through this machine; the node itself for all")
    ] = "",
    link: Annotated[str, Query(max_length=256, description="Only what goes over the routing link to this site")] = "",
) -> WaitingList:
    """By queue, and for the whole node where all of it is concerned. Empty if nothing keeps any message."""
    if queue is not None:
        one = (await node.manager.queue(queue_name(queue))).waiting
        return WaitingList(waiting=[] if one is None else [WaitingDocument.of(one)])
    return WaitingList(waiting=[WaitingDocument.of(one) for one in await node.manager.waiting(machine, link)])


@router.get("/v1/keys", **about("node", "The keys and certificates of the node"))
async def show_keys(node: Node) -> Keys:
    """Keys as the last reading of the key store found them; certificates as their files are now."""
    node.require("keys")
    status = node.key_reader.status if node.key_reader is not None else _NO_KEYS
    return await asyncio.to_thread(Keys.of, status, node)


@router.post("/v1/keys/reload", **about("node", "Read the key store again"))
async def reload_keys(node: Node) -> Keys:
    """Now, and not only when ``security.key_reload_interval`` has passed: the answer says what was found."""
    node.require("reload_keys")
    status = await node.key_reader.read() if node.key_reader is not None else _NO_KEYS
    return await asyncio.to_thread(Keys.of, status, node)


@router.get(
    "/metrics",
    response_class=Response,
    **about("health", "Prometheus metrics", answer={"content": {"text/plain": {"schema": {"type": "string"}}}}),
)
async def metrics(node: Node) -> Response:
    """In the text format. Queues have metrics of their own up to ``management.metrics_queues``, the fullest first."""
    return Response(await exposition(node), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/node", **about("node", "The node and its totals"))
async def show_node(node: Node) -> NodeDocument:
    """Name, identifier, version, and how much there is of everything."""
    return NodeDocument.of(await node.manager.status(), program_version())


@router.put("/v1/node/online", **about("node", "Connect the node, or take it off"))
async def set_online(wanted: Online, request: Request, node: Node) -> NodeDocument:
    """Offline, no messages go to or come from other machines; those for others wait. It ends with the node's stop."""
    note(request, online=wanted.online)
    await node.manager.set_online(wanted.online)
    return NodeDocument.of(await node.manager.status(), program_version())


@router.get("/v1/quotas", **about("node", "Limits of the node, and their use"))
async def show_quotas(node: Node) -> QuotaDocument:
    """Limits are set in the configuration (``quotas``) and taken over on SIGHUP; those of a queue with the queue."""
    return QuotaDocument.of(await node.manager.status())


@router.get("/v1/connections", **about("node", "Connections to other queue managers"))
async def list_connections(node: Node) -> Connections:
    """Sessions of the binary protocol (MS-MQQB)."""
    node.require("connections")
    found = node.connection_list.connections() if node.connection_list is not None else ()
    return Connections(connections=[ConnectionDocument.of(connection) for connection in found])


@router.get("/v1/transactions", **about("transactions", "Transactions that have not ended"))
async def list_transactions(node: Node) -> Transactions:
    """The transactions that applications began and have not ended."""
    found = await node.manager.list_transactions()
    return Transactions(transactions=[TransactionDocument.of(transaction) for transaction in found])
