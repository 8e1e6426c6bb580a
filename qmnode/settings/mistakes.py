"""Mistakes in a node's settings: one line each, with the place and the probable intention."""

from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from qmnode.errors import ConfigurationError
from qmnode.settings.yaml_text import DuplicateNameError, RefusedError
from qmnode.structures.text import nearest

SettingPath = tuple[int | str, ...]
_FEW: Final = 3
"""The most settings of one name that a mistake suggests."""
_PREFERRED: Final = "AES256, and RC4 where security.weak_algorithms_sent has it; a message may name another one"
_ONE_VALUE: Final = "it has the value of the specification and of Windows"
_NO_LIMIT_OF_OWN: Final = "remote_read.connections and remote_read.connections_per_peer limit clients"
_REMOVED: Final = {
    "transport.messages_per_second": "strangers share the processor by what their input costs",
    "storage.identifier_jump": "a copy skips 16,777,216 identifiers",
    "export.roll_bytes": "export.roll_seconds limits a segment, as do 32 MiB of events",
    "export.sample_seconds": "the queues are sampled each minute",
    "directory.sites_update": "directory.notification_interval sets how soon changes are read",
    "directory.site_gates_update": "directory.notification_interval sets how soon changes are read",
    "security.preferred_advanced_algorithm": _PREFERRED,
    "security.preferred_enhanced_algorithm": _PREFERRED,
    "security.preferred_base_algorithm": _PREFERRED,
    "security.user_cert_cache_size": "security.user_cert_lifetime sets how long certificates are cached",
    "security.receive_symmetric_key_cache_size": "security.symmetric_key_short_lifetime sets how long keys are cached",
    "security.send_symmetric_key_cache_size": "security.symmetric_key_short_lifetime sets how long keys are cached",
    "security.maximum_modulus_length": "RSA keys of up to 8,192 bits are used",
    "session.direct_ack_wait_factor": "session.ack_wait_timeout_ms sets the time, twice that for direct names",
    "session.initialization_timeout": _ONE_VALUE,
    "session.maximum_packet_size": _ONE_VALUE,
    "session.server_class": "a node always presents itself as a server",
    "session.acknowledge_every": "session.window_size sets it: a quarter of the window, 16 at most",
    **{
        f"transfer.resend_{name}": "transfer.resend_timeouts has all four: [short, medium, long, final]"
        for name in ("short", "medium", "long", "final")
    },
    "amqp.sessions": "amqp.links limits a connection, which may have 64 sessions",
    "amqp.transactions": "amqp.transaction_bytes limits a client, whose connections may have 64 transactions each",
    "transfer.history_pages_per_source": "transfer.history_sources and transfer.history_sparse_pages limit the history",
    "transfer.notice_lifetime": "acknowledgments may be in transit for 4 days",
    "remote_read.calls_per_connection": _NO_LIMIT_OF_OWN,
    "remote_read.context_handles": _NO_LIMIT_OF_OWN,
    "remote_read.cursors": "remote_read.open_queues limits queues, each of which may have 1,024 cursors",
    "remote_read.request_size": _ONE_VALUE,
    "remote_read.fragment": _ONE_VALUE,
    "remote_read.bind_timeout": _NO_LIMIT_OF_OWN,
}
"""Settings of earlier releases: the setting or the rule that takes their place."""


def unreadable(path: Path, error: Exception) -> str:
    """Why a file contains no settings at all."""
    match error:
        case FileNotFoundError():
            return f"{path} does not exist: 'qmnode init --config {path}' makes one"
        case OSError():
            return f"{path} cannot be read: {error.strerror or error}"
        case UnicodeDecodeError():
            return f"{path}: byte {error.start} is no UTF-8: save the file as UTF-8"
        case DuplicateNameError():
            return f"{path}: {error}"
        case RefusedError(problem_mark=yaml.Mark(line=line)):
            return f"{path}:{line + 1}: {error}"
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark(line=line)):
            return f"{path}:{line + 1}: no YAML: {error.problem or error.context}"
        case yaml.reader.ReaderError():
            return f"{path}: character {error.position} cannot be in YAML"
        case _:
            return f"{path}: no YAML: {' '.join(str(error).split())}"


def explained(path: Path | None, model: type[BaseModel], error: ValidationError | ConfigurationError) -> str:
    """The mistakes in the settings of a file, and of the environment."""
    where = str(path) if path is not None else "environment"
    if not isinstance(error, ValidationError):
        return f"{where}: {error}"
    root = _composed(path)
    return "\n".join(
        f"{where}{line_of(root, mistake['loc'])}: {'.'.join(map(str, mistake['loc'])) or 'settings'}: "
        f"{sentence_of(model, mistake)}"
        for mistake in error.errors()
    )


def faults_of(error: ValidationError, most: int | None = None) -> str:
    """The mistakes that pydantic found, at most so many, in one line: the place of each and what is wrong. Never what
    was written there, which may be a secret.
    """
    faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors()[:most]]
    return "; ".join(f"{place}: {sentence}" if place else sentence for place, sentence in faults)


def _composed(path: Path | None) -> Any:
    return None if path is None else yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)


def line_of(node: Any, place: SettingPath) -> str:
    """``:7``, the line of a setting or of the nearest enclosing section; empty if it is not in the file."""
    line = None
    for step in place:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(step)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = node.value[step], node.value[step]
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return "" if line is None else f":{line}"


def sentence_of(model: type[BaseModel], mistake: Any) -> str:
    if mistake["type"] == "missing":
        return "it is missing"
    if mistake["type"] == "literal_error":
        return f"give {mistake['ctx']['expected']}"
    if mistake["type"] != "extra_forbidden":
        return str(mistake["msg"]).removeprefix("Value error, ")
    *sections, name = mistake["loc"]
    replacement = _REMOVED.get(".".join(map(str, mistake["loc"])))
    if replacement is not None:
        return f"no setting any more: remove it ({replacement})"
    known = model
    for section in sections:
        within = _section(known, str(section))
        if within is None:
            return "no such setting"
        known = within
    longer = [one for one in known.model_fields if one.endswith(f"_{name}")]
    meant = [*longer, *_elsewhere(model, str(name))] or _near(str(name), known)
    return f"no such setting (did you mean {' or '.join(meant)}?)" if meant else "no such setting"


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = model.model_fields.get(name)
    if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
        return None
    return field.annotation


def _elsewhere(model: type[BaseModel], name: str) -> list[str]:
    """The few settings of this name that are in some section."""
    found = [name] if name in model.model_fields else []
    for section in model.model_fields:
        if (within := _section(model, section)) is not None:
            found += [f"{section}.{place}" for place in _elsewhere(within, name)]
    return found if len(found) <= _FEW else []


def _near(name: str, known: type[BaseModel]) -> list[str]:
    """The setting of a section that a name begins with, as in ``data_directory`` and ``log_level``, or is most similar
    to.
    """
    for one in known.model_fields:
        if name.startswith(f"{one}_"):
            within, rest = _section(known, one), name.removeprefix(f"{one}_")
            return [f"{one}.{rest}" if within is not None and rest in within.model_fields else one]
    near = nearest(name, known.model_fields)
    return [] if near is None else [near]
