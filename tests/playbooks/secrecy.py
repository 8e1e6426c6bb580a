"""Every secret of a lab's enterprise, and every log in which one could be: playbooks, hosts, nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.enterprise import LabEnterprise

MARKERS: Final = {
    "marker": "MARKER-of-one-line-7391",
    "marker.pem": "-----BEGIN MARKER-----\nMARKER/first/line/2846\nMARKER/second/line/2846\n-----END MARKER-----\n",
    "marker.password": "MARKER\\with\\backslashes-5512 'and' \"quotes\"\n",
}
SECRETS: Final = ("*.key", "key.pem", "*.password", "my.token", "marker*")
KEYS: Final = "/var/lib/qmnode/keys"
SHORTEST: Final = 16
"""Characters: a shorter line is no secret of its own."""


def plant(enterprise: LabEnterprise) -> None:
    """Give every node secret files, and secrets in its settings, with the next roll-out."""
    config = "{{ queue_manager_config }}"
    enterprise.set_for_all(
        queue_manager_more_files=[
            {"path": f"{config}/{name}", "content": content, "mode": "0600", "secret": True}
            for name, content in MARKERS.items()
        ],
        queue_manager_amqp_users=["billing"],
    )


def secrets_of(enterprise: LabEnterprise) -> set[str]:
    """Lines of the files that hold secrets, on the controller and on the hosts."""
    files = [*_below(enterprise.folder / "state"), *_below(enterprise.folder / "directory")]
    for host in enterprise.hosts.addresses:
        files += _below(enterprise.hosts.path(host, "/etc/qmnode"))
    found = {line for file in files for line in file.read_text().splitlines()}
    for host in enterprise.hosts.addresses:
        store: dict[str, Any] = json.loads(enterprise.hosts.path(host, KEYS).read_text())
        found |= {key[100:160] for key in _private(store)}  # what is before it is the same in all keys
    return {line for line in found if len(line) >= SHORTEST and not line.startswith("-----")}


def _below(folder: Path) -> list[Path]:
    return [file for pattern in SECRETS for file in folder.rglob(pattern) if file.is_file()]


def _private(found: Any) -> Iterator[str]:
    match found:
        case {"private_key": str(key)}:
            yield key
        case dict():
            for value in found.values():
                yield from _private(value)
        case list():
            for value in found:
                yield from _private(value)


def logs_of(enterprise: LabEnterprise) -> dict[str, str]:
    """All logs of all hosts, and what the playbooks have said, by place."""
    found = {f"playbook {number}": said for number, said in enumerate(enterprise.transcripts)}
    for host in enterprise.hosts.addresses:
        if enterprise.is_real:
            journal = enterprise.lab.hosts[host].do("journalctl", "--no-pager", "--all", "--output=cat", limit=120)
            found[f"journal of {host}"] = journal.stdout
        for log in enterprise.hosts.path(host, "/var/log/qmnode").rglob("*"):
            found[f"{host}: {log}"] = log.read_text(errors="replace")
    return found


def assert_kept(enterprise: LabEnterprise) -> int:
    """That no secret is in any log, nor as Python or JSON writes it. How many secrets there are."""
    logs, secrets = logs_of(enterprise), secrets_of(enterprise)
    planted = {line for text in MARKERS.values() for line in text.splitlines() if not line.startswith("-----")}
    assert planted <= secrets
    shown = [
        f"{place}: {secret[:12]}..."
        for place, text in logs.items()
        for secret in sorted(secrets)
        if any(form in text for form in _forms(secret))
    ]
    assert not shown, "\n".join(shown)
    verbose = [text for place, text in logs.items() if place.startswith("playbook") and "invocation" in text]
    assert verbose, "a playbook has run with -vvv"
    if enterprise.is_real:
        journals = [text for place, text in logs.items() if place.startswith("journal")]
        assert all("Invoked with" in text for text in journals), "modules log on the hosts"
    return len(secrets)


def _forms(secret: str) -> set[str]:
    """The secret as it is, and as Python and JSON write it."""
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
