"""Set the enterprise up: declare it, admit the nodes named as arguments, issue certificates and a token.

Runs in the image of the directory, beside a directory that answers. What is there from an earlier start is kept.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from mqenterprise.directory.admission import admit
from mqenterprise.directory.authority import issue, load_authority, write_anew
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory
from qmnode.structures.guid import guid_to_text

SETUP = Path(__file__).resolve().parent
DIRECTORY = Path("/var/lib/mqenterprise/directory")
IDENTITIES = Path("/var/lib/identities")


def main(machines: list[str]) -> None:
    """Make what is missing; a file that is written last says what is whole."""
    embedded = EmbeddedDirectory(DIRECTORY)
    declared = [SETUP / "enterprise.yaml", "--directory", DIRECTORY / "client.yaml"]
    subprocess.run(["/opt/mqenterprise/bin/mqenterprise", "apply", *declared], check=True)
    authority = load_authority(embedded.paths.authority, embedded.paths.tls / "ca.key")

    def certificate(folder: Path, name: str, hosts: list[str]) -> None:
        now = datetime.datetime.now(datetime.UTC)
        issue(authority, hosts[0], hosts, now).save(folder / f"{name}.pem", folder / f"{name}.key")

    console = IDENTITIES / "console"
    if not (console / "nodes.yaml").exists():
        console.mkdir(mode=0o700, exist_ok=True)
        certificate(console, "console", ["localhost", "console", "127.0.0.1"])
        write_anew(console / "token", f"{secrets.token_urlsafe(24)}\n".encode(), 0o600)
        shutil.copy(embedded.paths.authority, console / "ca.pem")
        write_anew(console / "nodes.yaml", b"authority: ca.pem\n", 0o600)
    digest = hashlib.sha256((console / "token").read_bytes().strip()).hexdigest()
    with EnterpriseDirectory(embedded.client_settings()) as directory:
        queues = {
            queue.label: f"PUBLIC={guid_to_text(queue.identifier)}"
            for queue in directory.queues.list()
            if queue.identifier is not None
        }
        write_anew(IDENTITIES / "queues.yaml", yaml.safe_dump(queues).encode(), 0o600)
        for machine in machines:
            folder = IDENTITIES / machine
            if (folder / "node.yaml").exists():
                continue
            folder.mkdir(mode=0o700, exist_ok=True)
            admit(directory, machine, folder / "directory", new=False)
            certificate(folder, "api", [machine])
            tokens = [{"name": "console", "role": "operate", "sha256": digest}]
            write_anew(folder / "tokens.yaml", yaml.safe_dump(tokens).encode(), 0o600)
            shutil.copy(SETUP / "node.yaml", folder / "node.yaml")


if __name__ == "__main__":
    main(sys.argv[1:])
