"""The directory's tables as Spark's source reads them, from both directory servers; test_directory_tables has Spark."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql.types import StructType

from mqenterprise.certificates.files import make_internal
from mqenterprise.certificates.registry import CertificateRegistry
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.pipeline.sources.directory_source import TABLES, DirectorySource
from qmnode.directory.port import Queue, QueueManager, RoutingLink, Site, User
from qmnode.errors import ConfigurationError
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import Sid
from tests.lab.directory_objects import create
from tests.lab.servers import DirectoryServer

Named = Callable[[str], str]


@pytest.fixture
def options(directory_server: DirectoryServer, tmp_path: Path) -> dict[str, str]:
    """The settings of a server as options, its password in a file."""
    values = directory_server.settings.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    password = directory_server.settings.password
    if password is not None:
        values.pop("password")
        values["password_file"] = str(tmp_path / "password")
        (tmp_path / "password").write_text(password.get_secret_value())
    return {name: value if isinstance(value, str) else yaml.safe_dump(value) for name, value in values.items()}


def read(options: dict[str, str], table: str) -> list[dict[str, Any]]:
    """What the reader gives, without a trip through Spark."""
    source = DirectorySource(options | {"table": table})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    (partition,) = reader.partitions()
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]  # type: ignore[union-attr]


def only(rows: list[dict[str, Any]], **facts: object) -> dict[str, Any]:
    (row,) = (row for row in rows if facts.items() <= row.items())
    return row


@pytest.mark.servers
def test_every_table_tells_what_the_directory_holds(
    directory: EnterpriseDirectory, options: dict[str, str], fresh_name: Named
) -> None:
    one = create(directory, Site(name=fresh_name("Spark")))
    two = create(directory, Site(name=fresh_name("Spark"), foreign_site=True))
    assert one.identifier is not None
    assert two.identifier is not None
    node = directory.queue_managers.add(
        QueueManager(computer_name=fresh_name("SPARK"), site_identifier_list=(one.identifier,), routing_server=True)
    )
    assert node.identifier is not None
    create(
        directory,
        RoutingLink(
            site1_identifier=one.identifier,
            site2_identifier=two.identifier,
            actual_cost=7,
            site_gate_identifier_list=(node.identifier,),
        ),
    )
    directory.queues.add(
        Queue(pathname=f"{node.computer_name}\\orders", label="Aufträge", quota=10, transactional=True)
    )
    assert only(read(options, "sites"), site=two.name) == {
        "site_id": guid_to_text(two.identifier), "site": two.name, "is_foreign": True,
    }  # fmt: skip
    link = only(read(options, "links"), cost=7, site1_id=guid_to_text(one.identifier))
    assert (link["site1"], link["site2"], link["gate_ids"]) == (one.name, two.name, [guid_to_text(node.identifier)])
    manager = only(read(options, "queue_managers"), node_id=guid_to_text(node.identifier))
    assert manager["sites"] == [one.name]
    assert manager["is_routing_server"]
    queue = only(read(options, "queues"), label="Aufträge")
    assert queue["pathname"] == f"{node.computer_name}\\orders".lower()
    assert (queue["node"], queue["quota"], queue["journal_quota"]) == (node.computer_name.upper(), 10240, None)
    assert queue["is_transactional"]


@pytest.mark.servers
def test_certificates_and_keys_are_told_with_their_ends(
    directory: EnterpriseDirectory, options: dict[str, str], fresh_name: Named, tmp_path: Path
) -> None:
    sid = bytes.fromhex("010500000000000515000000010203040506070809101112") + (8123).to_bytes(4, "little")
    user = create(directory, User(name=fresh_name("spark"), security_identifier=sid))
    made = make_internal(user.name, tmp_path / "key", time.time(), 30, 2048)
    CertificateRegistry(directory).register(user.name, made.encoded)
    row = only(read(options, "certificates"), user=user.name)
    known = directory.users.find(user.name)  # Active Directory gives users identifiers of its own
    assert known is not None
    assert known.security_identifier is not None
    assert row["sid"] == str(Sid.parse(known.security_identifier))
    assert row["not_after"] > row["not_before"]
    assert row["fault"] is None
    broken = directory.queue_managers.add(
        QueueManager(computer_name=fresh_name("SPARK"), public_encryption_key_list=b"\x01\x00\x00\x00broken")
    )
    assert "cannot be read" in only(read(options, "keys"), node=broken.computer_name)["fault"]


def test_a_password_is_no_option() -> None:
    source = DirectorySource({"table": "sites", "servers": "ldaps://127.0.0.1", "user": "cn=x", "password": "secret"})
    with pytest.raises(ConfigurationError, match="use password_file"):
        source.reader(source.schema())  # type: ignore[arg-type]


def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'users': expected one of sites, links"):
        DirectorySource({"path": "users"}).schema()
    assert all(DirectorySource({"path": name}).schema() for name in TABLES)
