"""``spark.read.format("qmnode")``: events that nodes export, and messages in copies of their stores."""

import json
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from mqenterprise.pipeline.sources.checkpoints import MESSAGES, MessageReader, is_checkpoint
from mqenterprise.pipeline.sources.events import EVENTS, EventOptions, EventReader, EventStreamReader
from mqenterprise.pipeline.sources.message_columns import DECODED
from mqenterprise.pipeline.sources.quarantine import FOLDER
from qmnode.errors import ConfigurationError
from qmnode.export.places import below

_ON_REQUEST: Final = {"body": ("body",), "decoded": DECODED}
"""Columns of messages that are read only on request by an option."""
_PARTITION: Final = 32 * 1024 * 1024
_ROWS: Final = 250_000


class QmnodeSource(DataSource):
    """The source ``qmnode`` with these options.

    ``rows``: ``events`` of segments or ``messages`` in copies of stores. The default is whatever the path has.
    ``path`` (or the argument of ``load``): a place, or several as a list or separated by commas. A place is a directory
    or ``s3://bucket/prefix``.
    ``quarantine``: the place for the list of segments that are set aside. The default is ``PATH/_quarantine``.
    ``partition_bytes``: the most bytes of segments that one task reads (32 MiB).
    ``partition_rows``: the number of messages that one task reads (250,000).
    ``body``: ``true`` for the bodies of messages, which ``schema`` may request as well.
    ``decoded``: ``true`` for their columns ``format``, ``headers`` and ``decoded``, the last two as JSON, and
        ``undecoded_headers``.
    ``files_per_trigger``, ``bytes_per_trigger``: the most that one batch of a stream takes.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name for Spark."""
        return "qmnode"

    def schema(self) -> StructType:
        """All columns; name fewer with ``schema``, and only those are read."""
        if not self._is_messages():
            return EVENTS
        left_out = {name for option, names in _ON_REQUEST.items() if not self._wanted(option) for name in names}
        return StructType([field for field in MESSAGES if field.name not in left_out])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        if self._is_messages():
            return MessageReader(self._addresses(), schema, self._number("partition_rows", _ROWS) or _ROWS)
        return EventReader(self._event_options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        if self._is_messages():
            raise ConfigurationError("messages in a copy of a store do not change: use spark.read, or stream events")
        return EventStreamReader(self._event_options(), schema)

    def _is_messages(self) -> bool:
        rows = self.options.get("rows")
        if rows not in (None, "events", "messages"):
            raise ConfigurationError(f"option rows={rows!r}: expected events or messages")
        return rows == "messages" or (rows is None and is_checkpoint(self._addresses()[0]))

    def _event_options(self) -> EventOptions:
        addresses = self._addresses()
        quarantine = self.options.get("quarantine") or below(addresses[0], FOLDER)
        return EventOptions(
            addresses,
            quarantine,
            self._number("partition_bytes", _PARTITION),
            self._number("files_per_trigger", 0),
            self._number("bytes_per_trigger", 0),
        )

    def _addresses(self) -> tuple[str, ...]:
        several = self.options.get("paths")  # Spark passes a list in this form
        given = json.loads(several) if several else [one.strip() for one in self.options.get("path", "").split(",")]
        if not all(given):
            raise ConfigurationError('say what to read: load("/var/lib/segments") or load("s3://bucket/prefix")')
        return tuple(given)

    def _wanted(self, name: str) -> bool:
        text = self.options.get(name, "false").lower()
        if text not in ("true", "false"):
            raise ConfigurationError(f"option {name}={self.options[name]!r}: expected true or false")
        return text == "true"

    def _number(self, name: str, default: int) -> int:
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            raise ConfigurationError(f"option {name}={text!r}: expected a whole number of at least 0")
        return int(text)
