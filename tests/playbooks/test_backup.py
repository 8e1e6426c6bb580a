"""A backup over a connection that breaks while the archive is on its way."""

from __future__ import annotations

import json
import re
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.collection.test_ansible import PLAYBOOKS, run

if TYPE_CHECKING:
    from pathlib import Path

CONNECTION = '''
"""Tasks run here, and a file that is fetched comes by half, or not at all."""

DOCUMENTATION = """
name: breaking
short_description: breaks when a file is fetched
description: As O(local), until a file is fetched.
author: tests
extends_documentation_fragment: connection_pipelining
options:
  become_success_timeout:
    type: int
    default: 10
    description: As there.
  become_strip_preamble:
    type: bool
    default: true
    description: As there.
  comes:
    description: How many bytes come.
    type: int
    vars: [{name: breaking_comes}]
"""

from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local


class Connection(Local):
    transport = "breaking"

    def fetch_file(self, in_path, out_path):
        if comes := self.get_option("comes"):
            Path(out_path).write_bytes(Path(in_path).read_bytes()[:comes])
        raise AnsibleConnectionFailure("the line is cut")
'''
COPIES = """#!/bin/sh
mkdir -p "$2" && echo messages > "$2/store"
"""
"""In the place of a node's program: `backup FOLDER`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "comes",
    [
        pytest.param(20, id="by half"),
        pytest.param(0, id="not at all, with an older file in its place", marks=pytest.mark.soak),
    ],
)
def test_an_archive_that_did_not_come_is_not_stored(tmp_path: Path, comes: int) -> None:
    (tmp_path / "connection").mkdir()
    (tmp_path / "connection/breaking.py").write_text(CONNECTION)
    program = tmp_path / "shop/opt/qmnode/current/bin/qmnode"
    program.parent.mkdir(parents=True)
    program.write_text(COPIES)
    program.chmod(0o755)
    (tmp_path / "shop/var/lib").mkdir(parents=True)
    there, kept = tmp_path / "state/hosts/shop/backup/shop-one.tar.gz", tmp_path / "kept/shop-one.tar.gz"
    if not comes:
        there.parent.mkdir(parents=True)
        there.write_bytes(b"older")
    variables = {
        "ansible_connection": "breaking",
        "breaking_comes": comes,
        "ansible_python_interpreter": sys.executable,
        "queue_manager_python": sys.executable,
        "queue_manager_service": "process",
        "queue_manager_root": str(tmp_path / "shop"),
    }
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(yaml.safe_dump({"queue_managers": {"hosts": {"shop": variables}}}))
    common = {
        "backup_to": str(kept.parent),
        "backup_name": "one",
        "queue_manager_state": str(tmp_path / "state"),
    }

    def back_up(code: int, **more: str) -> str:
        play = ("-i", inventory, PLAYBOOKS / "backup.yml", "--limit", "shop", "-e", json.dumps(common | more))
        environment = {"ANSIBLE_CONNECTION_PLUGINS": str(tmp_path / "connection")}
        return run("ansible-playbook", *play, code=code, **environment).stdout

    said = back_up(2)

    assert re.search("shop cannot be reached: .*the line is cut", " ".join(said.split()))
    assert not kept.exists()
    back_up(0, ansible_connection="local")
    with tarfile.open(kept) as archive:
        assert "backup-one/store" in archive.getnames()
