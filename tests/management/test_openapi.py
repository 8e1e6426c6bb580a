"""schemathesis against the node as a service: whatever is asked, the answer is one that the OpenAPI document names."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.lab.nodes import NodeProcess
from tests.management.conftest import OPERATOR, write_certificate, write_tokens

pytestmark = pytest.mark.servers
_EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
"""For each resource: enough to find what is answered badly, and few enough to be done in a minute."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and certificate of a node with its management API on TCP."""
    folder = tmp_path_factory.mktemp("node")
    certificate, key = write_certificate(folder)
    management = {
        "socket": None,
        "listen": "127.0.0.1:0",
        "tokens": str(write_tokens(folder)),
        "certificate": str(certificate),
        "private_key": str(key),
        "audit_log": str(folder / "audit.log"),
        "longest_wait": 0.05,
        "batch": 20,
    }
    node = NodeProcess(folder, computer_name="ALPHA", management=management)
    try:
        node.launch()
        port = node.wait_for("management API")["port"]
        node.wait_for("ready")
        yield f"https://127.0.0.1:{port}", certificate
    finally:
        node.kill()


@pytest.fixture(scope="module")
def api_schema(served: tuple[str, Path]) -> schemathesis.schemas.BaseSchema:
    address, certificate = served
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    with httpx.Client(base_url=address, verify=str(certificate), headers=headers) as client:
        document = client.get("/openapi.json").json()
        # What the generated names can mean: a queue of each kind.
        client.post("/v1/queues", json={"name": "orders", "journaling": True})
        client.post("/v1/queues", json={"name": "exact", "transactional": True})
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.config.update(base_url=address)
    return schema


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_node_fail(
    api_schema: schemathesis.schemas.BaseSchema, served: tuple[str, Path], mode: GenerationMode
) -> None:
    """Requests that the document allows, and requests that it does not, to every resource."""
    asked = 0
    session = requests.Session()  # one connection: else each request would begin with a TLS handshake

    def ask(case: schemathesis.Case) -> None:
        nonlocal asked
        asked += 1
        if case.operation.label != "DELETE /v1/queues/{name}" and asked % 2 and "name" in (case.path_parameters or {}):
            # Names that are made up are of no queue: every second request is about one that there is.
            case.path_parameters["name"] = ("orders", "exact")[asked // 2 % 2]
        case.call_and_validate(
            headers={"Authorization": f"Bearer {OPERATOR}"},
            session=session,
            verify=str(served[1]),
            timeout=30,
            checks=[
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )

    with session:
        for operation in api_schema.get_all_operations():
            try:
                strategy = operation.ok().as_strategy(generation_mode=mode)
                _EXAMPLES(given(strategy)(ask))()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, "only what takes no parameters has no wrong requests"
    assert asked > 100
