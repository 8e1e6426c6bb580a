"""A name that is twice in a file of an operator is refused with both lines, by whoever reads the file."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqenterprise.console.people import load_sign_in
from mqenterprise.directory.chosen_directory import load_settings as load_directory_settings
from mqenterprise.directory.errors import DirectoryError
from mqenterprise.keys.settings import KeyRotationError, load_key_settings
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.settings import load_settings as load_nodes
from mqenterprise.pipeline.simulation.traffic import Traffic
from mqenterprise.topology.check import load as load_declaration
from mqenterprise.topology.problems import DeclarationError
from qmnode.errors import ConfigurationError
from qmnode.management.tokens import Consoles, Tokens
from qmnode.settings.node import read_settings
from qmnode.settings.yaml_text import read_yaml
from tests.lab.nodes import PROJECT


@pytest.mark.parametrize(
    ("read", "text", "lines"),
    [
        (read_settings, "management:\n  socket: a\nlog: {level: info}\nmanagement:\n  listen: '1.2.3.4:5'\n", "1 4"),
        (read_settings, "transport:\n  port: 1801\n  address: 127.0.0.1\n  port: 1802\n", "2 4"),
        (read_settings, "bridges:\n  one: {peer: a}\n  'one': {peer: b}\n", "2 3"),
        (Tokens, "- name: a\n  role: read\n  role: operate\n", "2 3"),
        (lambda file: Consoles(file, "A"), "- name: a\n  roles:\n    ops: read\n    ops: administer\n", "3 4"),
        (load_key_settings, "directory: a\nkeep: 1\n\ndirectory: b\n", "1 4"),
        (load_directory_settings, "servers: [a]\nuser: x\nservers: [b]\n", "1 3"),
        (load_nodes, "nodes:\n  AMS: {port: 1}\n  AMS: {port: 2}\n", "2 3"),
        (load_sign_in, "ldap: {}\nldap: {}\n", "1 2"),
        (Traffic.read, "seed: 1\nseed: 2\n", "1 2"),
        (load_declaration, "enterprise:\n  name: E\nsites: []\nsites: []\n", "3 4"),
        (load_declaration, "enterprise: {name: E}\nsites:\n- name: a\n  foreign: true\n  name: b\n", "3 5"),
    ],
)
def test_a_name_that_is_twice_is_refused_with_both_lines(
    read: Callable[[Path], object], text: str, lines: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    file.chmod(0o600)
    first, again = lines.split()
    wrong = (ConfigurationError, DirectoryError, KeyRotationError, OperationsError, DeclarationError)
    with pytest.raises(wrong) as refused:
        made = read(file)
        getattr(made, "load", lambda: None)()
    said = str(refused.value) + "".join(map(str, getattr(refused.value, "problems", ())))
    assert f"line {first} and again in line {again}" in said and "file.yaml" in said


@pytest.mark.parametrize("read", [load_key_settings, load_directory_settings, load_nodes, load_sign_in])
def test_a_file_that_is_not_utf_8_is_refused_in_a_sentence(read: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes("directory: Zürich\n".encode("latin-1"))
    with pytest.raises(
        (DirectoryError, KeyRotationError, OperationsError), match=r"file\.yaml cannot be read: .*utf-8"
    ):
        read(file)


def test_names_are_twice_only_within_one_mapping() -> None:
    text = "a: {x: 1}\nb: {x: 2}\nc: [{x: 3}, {x: 4}]\nd: &d {x: 5}\ne: {<<: *d, x: 6}\nf: *d\n"
    assert read_yaml(text)["e"] == {"x": 6} and read_yaml("") is None


def test_an_inventory_with_a_name_that_is_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "e.msmq.yaml"
    file.write_text("plugin: mqenterprise.fleet.directory\nsource: declared\ndeclared: a.yaml\ndeclared: b.yaml\n")
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(file), "--list"]
    done = subprocess.run(command, cwd=PROJECT / "playbooks", capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "'declared' is set in line 3 and again in line 4" in " ".join(done.stderr.split())
