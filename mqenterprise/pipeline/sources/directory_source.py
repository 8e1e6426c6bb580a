"""``spark.read.format("mqdirectory")``: the contents of the directory, one table for each kind of object."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import yaml
from cryptography import x509
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from mqenterprise.directory.chosen_directory import load_settings, settings_from
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import DirectorySettings
from mqenterprise.pipeline.sources.events import check_schema
from qmnode.errors import ConfigurationError
from qmnode.objects.rows import FLAG, GUID, NO_QUOTA, QUOTA, Door, Property
from qmnode.objects.table import QUEUE
from qmnode.security.published_keys import PublishedKeys
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.public_keys import MqUserSignCerts
from qmnode.structures.security_descriptor import Sid

Row = dict[str, Any]

_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(pa.string())
_NUMBER: Final = pa.int64()
_YES: Final = pa.bool_()
_TIME: Final = pa.timestamp("us", tz="UTC")
_PROPERTIES: Final = [row for row in QUEUE.at(Door.DIRECTORY) if row.is_written]
_BATCH: Final = 4096
_LONGEST_KEY: Final = 16_384
"""The longest accepted key in bits."""


class Table(NamedTuple):
    """A kind of object: its columns, and the function that reads its rows."""

    schema: pa.Schema
    rows: Callable[[EnterpriseDirectory], Iterator[Row]]


def _sites(directory: EnterpriseDirectory) -> Iterator[Row]:
    for site in directory.sites.list(attributes=["name", "foreign_site"]):
        yield {"site_id": _guid(site.identifier), "site": site.name, "is_foreign": site.foreign_site}


def _links(directory: EnterpriseDirectory) -> Iterator[Row]:
    names = {site.identifier: site.name for site in directory.sites.list(attributes=["name"])}
    for link in directory.routing_links.list():
        yield {
            "link_id": _guid(link.identifier),
            "site1_id": _guid(link.site1_identifier),
            "site1": names.get(link.site1_identifier),
            "site2_id": _guid(link.site2_identifier),
            "site2": names.get(link.site2_identifier),
            "cost": link.actual_cost,
            "gate_ids": [_guid(gate) for gate in link.site_gate_identifier_list],
            "description": link.description,
        }


def _queue_managers(directory: EnterpriseDirectory) -> Iterator[Row]:
    names = {site.identifier: site.name for site in directory.sites.list(attributes=["name"])}
    for manager in directory.queue_managers.list():
        yield {
            "node_id": _guid(manager.identifier),
            "node": manager.computer_name,
            "qualified_name": manager.qualified_computer_name,
            "site_ids": [_guid(site) for site in manager.site_identifier_list],
            "sites": [names[site] for site in manager.site_identifier_list if site in names],
            "is_routing_server": manager.routing_server,
            "is_foreign": manager.foreign_system,
            "in_routing_server_ids": [_guid(one) for one in manager.in_routing_server_identifier_list],
            "out_routing_server_ids": [_guid(one) for one in manager.out_routing_server_identifier_list],
            "quota": _kilobytes(manager.queue_manager_quota),
            "journal_quota": _kilobytes(manager.journal_quota),
            "version": manager.queue_manager_version,
            "create_time": _moment(manager.create_time),
            "modify_time": _moment(manager.modify_time),
        }


def _queues(directory: EnterpriseDirectory) -> Iterator[Row]:
    for queue in directory.queues.list():
        yield {
            "queue_id": _guid(queue.identifier),
            "format_name": None if queue.identifier is None else f"PUBLIC={guid_to_text(queue.identifier)}",
            "pathname": queue.pathname,
            "node": queue.pathname.partition("\\")[0].upper(),
            **{_column(row): _cell(row, getattr(queue, row.in_directory)) for row in _PROPERTIES},
            "create_time": _moment(queue.create_time),
            "modify_time": _moment(queue.modify_time),
        }


def _column(row: Property) -> str:
    """The column of a property: truth values and identifiers are named as such."""
    name = {"authentication": "authenticated"}.get(row.name, row.name)
    return f"is_{name}" if row.form is FLAG else f"{name}_id" if row.form is GUID else name


def _type(row: Property) -> pa.DataType:
    if row.form is FLAG:
        return _YES
    return _NUMBER if row.form.type is int or row.form.choices else _TEXT


def _cell(row: Property, value: Any) -> Any:
    if row.form is QUOTA:
        return _kilobytes(value)
    return int(value) if row.form.choices else row.form.write(value)


def _keys(directory: EnterpriseDirectory) -> Iterator[Row]:
    attributes = ["computer_name", "public_encryption_key_list", "modify_time"]
    for manager in directory.queue_managers.list(attributes=attributes):
        identifier = manager.identifier or Guid(bytes(16))
        published = PublishedKeys.parse(identifier, manager.public_encryption_key_list, 0.0, _LONGEST_KEY)
        about = {
            "node_id": _guid(manager.identifier),
            "node": manager.computer_name,
            "modify_time": _moment(manager.modify_time),
        }
        for key in published.keys.values():
            bits = key.public_key.key_size
            yield about | {"provider": key.provider.name, "key_fingerprint": key.fingerprint, "bits": bits}
        for fault in published.faults:
            yield about | {"fault": fault}


def _certificates(directory: EnterpriseDirectory) -> Iterator[Row]:
    for user in directory.users.list(attributes=["name", "security_identifier", "certificates"]):
        about: Row = {"user": user.name, "sid": _sid(user.security_identifier)}
        if not user.certificates:
            continue
        try:
            listed = MqUserSignCerts.parse(user.certificates).certificates
        except PacketError as error:
            yield about | {"fault": f"the list of certificates cannot be read: {error}"}
            continue
        for one in listed:
            row = about | {"digest": one.digest.hex()}
            try:
                certificate = x509.load_der_x509_certificate(one.certificate)
            except ValueError as error:
                yield row | {"fault": f"the certificate cannot be read: {error}"}
                continue
            yield row | {
                "subject": certificate.subject.rfc4514_string(),
                "issuer": certificate.issuer.rfc4514_string(),
                "serial_number": f"{certificate.serial_number:x}",
                "not_before": certificate.not_valid_before_utc,
                "not_after": certificate.not_valid_after_utc,
            }


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


TABLES: Final = {
    "sites": Table(_schema(site_id=_TEXT, site=_TEXT, is_foreign=_YES), _sites),
    "links": Table(
        _schema(
            link_id=_TEXT, site1_id=_TEXT, site1=_TEXT, site2_id=_TEXT, site2=_TEXT, cost=_NUMBER, gate_ids=_TEXTS,
            description=_TEXT,
        ),
        _links,
    ),
    "queue_managers": Table(
        _schema(
            node_id=_TEXT, node=_TEXT, qualified_name=_TEXT, site_ids=_TEXTS, sites=_TEXTS, is_routing_server=_YES,
            is_foreign=_YES, in_routing_server_ids=_TEXTS, out_routing_server_ids=_TEXTS, quota=_NUMBER,
            journal_quota=_NUMBER, version=_TEXT, create_time=_TIME, modify_time=_TIME,
        ),
        _queue_managers,
    ),
    "queues": Table(
        _schema(
            queue_id=_TEXT, format_name=_TEXT, pathname=_TEXT, node=_TEXT,
            **{_column(row): _type(row) for row in _PROPERTIES},
            create_time=_TIME, modify_time=_TIME,
        ),
        _queues,
    ),
    "keys": Table(
        _schema(
            node_id=_TEXT, node=_TEXT, provider=_TEXT, key_fingerprint=_TEXT, bits=_NUMBER, modify_time=_TIME,
            fault=_TEXT,
        ),
        _keys,
    ),
    "certificates": Table(
        _schema(
            user=_TEXT, sid=_TEXT, digest=_TEXT, subject=_TEXT, issuer=_TEXT, serial_number=_TEXT, not_before=_TIME,
            not_after=_TIME, fault=_TEXT,
        ),
        _certificates,
    ),
}  # fmt: skip
"""Quotas are in bytes; null means no limit. ``fault`` names the part of an entry that could not be read."""


class DirectorySource(DataSource):
    """The source ``mqdirectory`` with these options.

    ``table`` (or the argument of ``load``): one of ``TABLES``;
    ``directory``: the YAML file of the directory's settings, as for ``mqenterprise --directory``. Instead, the settings
    can be options themselves: ``servers``, ``user``, ``password_file``, ``ca_file``. A password is read from its file
    where it is used, and is no option. Without any of them, the source reads the directory that ``mqenterprise`` uses.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name for Spark."""
        return "mqdirectory"

    def schema(self) -> StructType:
        """The columns of the table."""
        return from_arrow_schema(self._table().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        name = self._table_name()
        settings = _settings(dict(self.options))
        return DirectoryReader(name, settings, check_schema(schema, self.schema()))

    def _table_name(self) -> str:
        return self.options.get("table") or self.options.get("path") or ""

    def _table(self) -> Table:
        table = TABLES.get(self._table_name())
        if table is None:
            raise ConfigurationError(f"table {self._table_name()!r}: expected one of {', '.join(TABLES)}")
        return table


class DirectoryReader(DataSourceReader):
    """Read one table in one task: a directory does not get faster when many tasks ask it."""

    def __init__(self, table: str, settings: DirectorySettings, schema: pa.Schema) -> None:
        self._table = table
        self._settings = settings
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the single partition of the table."""
        return [InputPartition(self._table)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows as the directory returns them."""
        with EnterpriseDirectory(self._settings) as directory:
            rows = TABLES[partition.value].rows(directory)
            while chosen := list(islice(rows, _BATCH)):
                yield pa.RecordBatch.from_pylist(chosen, schema=self._schema)


def _settings(options: dict[str, str]) -> DirectorySettings:
    fields = {name.lower(): name for name in DirectorySettings.model_fields}
    given = {fields[key.lower()]: value for key, value in options.items() if key.lower() in fields}
    if "password" in given:
        raise ConfigurationError("a password is no option, it would be in Spark's plans and logs: use password_file")
    file = options.get("directory")
    if not given:
        return load_settings(Path(file) if file else None)
    if file:
        raise ConfigurationError(f"option directory names a file of settings: put {', '.join(given)} there")
    values: Row = {key: yaml.safe_load(value) if key != "user" else value for key, value in given.items()}
    for key in ("servers", "nameservers"):
        if isinstance(values.get(key), str):
            values[key] = [one.strip() for one in values[key].split(",")]
    return settings_from(values, "the options of mqdirectory")


def _guid(identifier: Guid | None) -> str | None:
    return None if identifier is None else guid_to_text(identifier)


def _sid(encoded: bytes | None) -> str | None:
    try:
        return str(Sid.parse(encoded)) if encoded else None
    except PacketError:
        return None


def _kilobytes(quota: int) -> int | None:
    return None if quota == NO_QUOTA else quota * 1024


def _moment(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1_000_000
