"""The enterprise of the story, the sample: what goes from Amsterdam to Córdoba passes Bremen."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

from tests.lab.enterprise import PROJECT

if TYPE_CHECKING:
    from tests.lab.enterprise import LabEnterprise

MACHINES = ("ams-router", "ams-shop", "bre-router", "bre-connector", "cor-router", "cor-warehouse")
SENDER, BEFORE, MIDDLE, RECEIVER = "ams-shop", "ams-router", "bre-router", "cor-warehouse"
UNLINKED = ("Amsterdam", "Córdoba")
SIGNER = getpass.getuser()
"""Who runs the story signs its messages."""

PICTURE = r"""
   Amsterdam                   Bremen                    Córdoba
 ┌────────────┐           ┌───────────────┐          ┌───────────────┐
 │  ams-shop  │           │ bre-connector │          │ cor-warehouse │
 │      │     │           │       │       │          │       │       │
 │ ams-router ├───────────┤   bre-router  ├──────────┤   cor-router  │
 └────────────┘           └───────────────┘          └───────────────┘
"""


def declaration() -> dict[str, Any]:
    """The sample enterprise, and who signs. More queues are published later."""
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/contoso.yaml").read_text("utf-8"))
    assert {machine["name"] for machine in declared["machines"]} == set(MACHINES)
    return declared | {"users": [*declared["users"], {"name": SIGNER}]}


def queues() -> list[dict[str, Any]]:
    """What is published for the story."""
    return [
        {"machine": RECEIVER, "name": "offers", "label": "Express and recoverable"},
        {"machine": RECEIVER, "name": "payments", "label": "Transactional", "transactional": True},
        {"machine": RECEIVER, "name": "contracts", "label": "Signed only", "authentication": True},
        {"machine": RECEIVER, "name": "salaries", "label": "Encrypted only", "privacy_level": "body"},
        {"machine": RECEIVER, "name": "stock", "label": "Flows while things break", "transactional": True},
        {"machine": SENDER, "name": "reports", "label": "Where messages went"},
    ]


def register_signer(enterprise: LabEnterprise) -> None:
    """A certificate in the directory, and its private key among the files that the sender's node is given."""
    key, pem = enterprise.folder / "signer.der", enterprise.folder / "signer.pem"
    enterprise.command("certificate", "register", SIGNER, "--internal", str(key))
    private = load_der_private_key(key.read_bytes(), None)
    pem.touch(mode=0o600)
    pem.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    place = "{{ queue_manager_config }}/signer.pem"
    content = "{{ lookup('ansible.builtin.file', '" + str(pem) + "', rstrip=false) }}"
    file = enterprise.host_variables(SENDER)
    variables = yaml.safe_load(file.read_text()) | {
        "queue_manager_settings": {"security": {"signers": {SIGNER: {"private_key": place}}}},
        "queue_manager_more_files": [{"path": place, "content": content, "mode": "0600", "secret": True}],
    }
    file.write_text(yaml.safe_dump(variables))
