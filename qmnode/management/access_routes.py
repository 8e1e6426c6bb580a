"""Access control lists of queues."""

from fastapi import APIRouter, Request

from qmnode.administration.access_control import change_access, show_access
from qmnode.administration.names import queue_name
from qmnode.management.access_documents import AccessChange, AccessDocument
from qmnode.management.context import Node, note
from qmnode.management.large_requests import InSteps
from qmnode.management.problems import about
from qmnode.management.queue_routes import QueueName

router = APIRouter(route_class=InSteps)


@router.get("/v1/queues/{name}/access", **about("queues", "Who may use a queue", 404))
async def show_queue_access(name: QueueName, node: Node) -> AccessDocument:
    """Its owner and its access control list, in the order in which entries count."""
    return AccessDocument.of(await show_access(node.manager, queue_name(name)))


@router.post("/v1/queues/{name}/access", **about("queues", "Change who may use a queue", 404))
async def change_queue_access(name: QueueName, change: AccessChange, request: Request, node: Node) -> AccessDocument:
    """Allow or deny rights to somebody, or remove them from his entries. Other entries stay as they are."""
    note(request, change=change.change, trustee=change.trustee, rights=change.rights)
    access = await change_access(node.manager, queue_name(name), change.change, change.trustee, change.rights)
    return AccessDocument.of(access)
