"""The enterprise of the story: three sites of two nodes. What goes from Amsterdam to Córdoba passes Bremen."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

from tests.lab.enterprise import PROJECT

if TYPE_CHECKING:
    from tests.lab.enterprise import LabEnterprise

MACHINES = ("ams-router", "ams-shop", "bre-router", "bre-office", "cor-router", "cor-warehouse")
SENDER, BEFORE, MIDDLE, RECEIVER = "ams-shop", "ams-router", "bre-router", "cor-warehouse"
UNLINKED = ("Amsterdam", "Córdoba")
SIGNER = getpass.getuser()
"""Who runs the story signs its messages."""

PICTURE = r"""
   Amsterdam                  Bremen                  Córdoba
 ┌────────────┐           ┌────────────┐          ┌───────────────┐
 │  ams-shop  │           │ bre-office │          │ cor-warehouse │
 │      │     │           │      │     │          │       │       │
 │ ams-router ├───────────┤ bre-router ├──────────┤   cor-router  │
 └────────────┘           └────────────┘          └───────────────┘
"""


def declaration() -> dict[str, Any]:
    """The sample enterprise: in each site a routing server and another node. Its queues are published later."""
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/contoso.yaml").read_text("utf-8"))
    known = {machine["name"]: machine for machine in declared["machines"]}
    known["bre-office"] = {"name": "bre-office", "sites": ["Bremen"]}
    links = [link for link in declared["routing_links"] if set(link["site_gates"]) <= set(MACHINES)]
    machines = [known[name] for name in MACHINES]
    return declared | {
        "machines": machines, "routing_links": links, "foreign_sites": [], "queues": [], "users": [{"name": SIGNER}],
    }  # fmt: skip


def queues() -> list[dict[str, Any]]:
    """What is published for the story."""
    return [
        {"machine": RECEIVER, "name": "prices", "label": "Express and recoverable"},
        {"machine": RECEIVER, "name": "picking", "label": "Transactional", "transactional": True},
        {"machine": RECEIVER, "name": "contracts", "label": "Signed only", "authenticate": True},
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
    file = enterprise.folder / f"host_vars/{SENDER}.yaml"
    variables = yaml.safe_load(file.read_text()) | {
        "queue_manager_settings": {"security": {"signers": {SIGNER: {"private_key": place}}}},
        "queue_manager_more_files": [{"path": place, "content": content, "mode": "0600", "secret": True}],
    }
    file.write_text(yaml.safe_dump(variables))
