"""The state of the running node, printed. It is asked often: `qmnode.commands` says what it may load."""

import os
from pathlib import Path
from typing import Any, Final

from qmnode.commands.output import print_facts, print_json, say, size_text

_NO_QUOTA: Final = 0xFFFFFFFF
_NODE: Final = (
    "computer_name", "identifier", "version", "online", "queue_count", "outgoing_queue_count", "message_count",
    "total_bytes", "dead_letter_count", "transaction_count", "in_doubt_count", "warnings", "storage_failure",
    "disk_free_bytes", "disk_bytes", "lost_writes", "tls_mode", "settings_read",
    "plain_peers", "amqp_port", "amqp_connections", "amqp_links", "bridges", "event_loop",
    "ready", "directory", "routing", "local_settings", "shares", "weakened_security", "weakened_security_source",
    "remote_copy", "failover", "waiting", "probes", "after_restore",
)  # fmt: skip
_QUOTAS: Final = (
    "quota", "quota_used", "journal_quota", "journal_quota_used", "throttled", "journal_copies_dropped",
    "quota_source", "journal_quota_source", "default_time_to_live", "default_time_to_live_source",
    "quota_settings",
)  # fmt: skip


def show_status(socket: Path | None, config: Path | None, wait: float, as_json: bool) -> int:
    """Print it; the exit code."""
    from qmnode.local.asking import ask

    document = _document(ask(socket_path(socket, config), "status", wait))
    if as_json:
        print_json(document)
    else:
        _print(document)
    if document["storage_failure"]:
        say(document["storage_failure"])
        return 1
    return 0


def socket_path(socket: Path | None, config: Path | None) -> Path:
    """The socket of the node: the one given, else that of the configuration given, else that of the environment."""
    if socket is None and config is None and (exported := os.environ.get("QMNODE_SOCKET")):
        return Path(exported)
    if socket is not None:
        return socket
    from qmnode.settings.node import read_settings

    return read_settings(config).local.socket


def _document(found: dict[str, Any]) -> dict[str, Any]:
    """NodeDocument and QuotaDocument of the management API, without the time that it takes to load these."""
    from qmnode.structures.guid import Guid, guid_to_text
    from qmnode.version import program_version

    facts = found | {
        "identifier": guid_to_text(Guid(found["identifier"])),
        "version": program_version(),
        "storage_failure": found.get("storage_failure") or None,
        "tls_mode": found.get("tls_mode") or None,
        "plain_peers": found.get("plain_peers") or [],
        "bridges": found.get("bridges") or [],
        "waiting": found.get("waiting") or [],
        "probes": found.get("probes") or [],
        "ready": found.get("ready", True),
        "directory": found.get("directory", ""),
        "routing": found.get("routing", {}),
        "local_settings": found.get("local_settings", {}),
        "shares": found.get("shares", {}),
        "remote_copy": found.get("remote_copy") or None,
        "failover": found.get("failover") or None,
        "after_restore": found.get("after_restore", {}),
        "weakened_security": found.get("weakened_security", False),
        "weakened_security_source": found.get("weakened_security_source", ""),
        **{name: found.get(name, "") for name in _QUOTAS if name.endswith("_source")},
        "default_time_to_live": found.get("default_time_to_live", 0),
        **{name: found.get(name, 0) for name in ("amqp_port", "amqp_connections", "amqp_links", "settings_read")},
    }
    for name in ("quota", "journal_quota"):
        facts[name] = None if found[name] == _NO_QUOTA else found[name]
    own = found.get("quota_settings", {}).items()
    facts["quota_settings"] = {name: None if value == _NO_QUOTA else value for name, value in own}
    node = {name: facts.get(name) for name in _NODE}
    return node | {"quotas": {name: facts.get(name) for name in _QUOTAS}}


def _print(node: dict[str, Any]) -> None:
    from qmnode.settings.sizes import quota_text

    quotas, after_restore, routing = node.pop("quotas"), node.pop("after_restore"), node.pop("routing")
    shares, _ = node.pop("shares"), node.pop("local_settings")

    def quota(name: str) -> str:
        return f"{size_text(quotas[f'{name}_used'])} of {quota_text(quotas[name])}{_source(quotas, name)}"

    print_facts(
        node
        | {
            "total_bytes": size_text(node["total_bytes"]),
            "disk_free_bytes": size_text(node["disk_free_bytes"]) if node["disk_bytes"] else None,
            "disk_bytes": size_text(node["disk_bytes"]) if node["disk_bytes"] else None,
            **{name: quota(name) for name in ("quota", "journal_quota")},
            "default_time_to_live": f"{quotas['default_time_to_live']} s{_source(quotas, 'default_time_to_live')}"
            if quotas["default_time_to_live"]
            else None,  # an older node
            "throttled": quotas["throttled"],
            "journal_copies_dropped": quotas["journal_copies_dropped"],
            "tls_mode": node["tls_mode"] or "none",
            "settings_read": _time_text(node["settings_read"]),
            "plain_peers": ", ".join(node["plain_peers"]) or "none",
            "amqp_port": node["amqp_port"] or "closed",
            "bridges": "; ".join(map(_bridge_text, node["bridges"])) or "none",
            "directory": node["directory"] or "none",
            "remote_copy": _copy_text(node["remote_copy"]),
            "failover": _failover_text(node["failover"]),
            "probes": "; ".join(map(_probe_text, node["probes"])) or "none",
            "waiting": "; ".join(map(_waiting_text, node["waiting"])) or "none",
            "warnings": "; ".join(node["warnings"]) or "none",
        }
        | {name: ", ".join(value) or "none" if isinstance(value, list) else value for name, value in routing.items()}
        | {f"share of {name}": _share_text(share) for name, share in shares.items() if _is_used(share)}
        | _ranges(after_restore)
    )


def _waiting_text(group: dict[str, Any]) -> str:
    since, queues = _time_text(group["since"]), group["queues"]
    where = f" ({group['messages']} messages in {queues} {'queue' if queues == 1 else 'queues'})" if queues else ""
    return f"{group['reason']}: {group['sentence']}{where} since {since}; {group['step']}"


def _probe_text(probe: dict[str, Any]) -> str:
    missed = f", {probe['missed']} of {probe['sent']} missed"
    if probe["healthy"] is None:
        return f"{probe['name']}: no result yet"
    if not probe["healthy"]:
        since = _time_text(probe["since"])
        return f"{probe['name']}: {probe['reason']}: {probe['sentence']} since {since}; {probe['step']}{missed}"
    return f"{probe['name']}: {probe['expects']} in {probe['seconds']:.2f} s{missed}"


def _is_used(share: dict[str, Any]) -> bool:
    return any(share["used"].values()) or any(share["refused"].values())


def _share_text(share: dict[str, Any]) -> str:
    """The use of a bounded resource by all, by strangers, and the refusals."""
    amount = size_text if share["unit"] == "bytes" else str
    strangers = f"strangers {amount(share['used']['stranger'])} of {amount(share['total'] - share['reserve'])}"
    refused = f", refused {sum(share['refused'].values())} times" if any(share["refused"].values()) else ""
    return f"{amount(sum(share['used'].values()))} of {amount(share['total'])}, {strangers}{refused}"


def _ranges(after_restore: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The ranges that a restored copy lacks, by kind; nothing for other stores."""
    return {
        f"{kind} after restore": "; ".join(map(_range_text, ranges)) or "nothing known"
        for kind, ranges in after_restore.items()
    }


def _range_text(one: dict[str, Any]) -> str:
    place = f" of sequence {one['sequence']} to {one['queue']}, {one['peer']}" if one["peer"] else ""
    return f"{one['first']} to {one['last']}{place}: {one['state']}"


def _source(quotas: dict[str, Any], name: str) -> str:
    """The source of a value, in words, if the directory declares it."""
    return " (from the directory)" if quotas[f"{name}_source"] == "directory" else ""


def _time_text(seconds: float) -> str:
    if not seconds:
        return "when the node started"
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(seconds), UTC).isoformat(sep=" ")


def _copy_text(copy: dict[str, Any] | None) -> str:
    if copy is None:
        return "none"
    covered = f"has all up to {_time_text(copy['moment'])}" if copy["moment"] else "has no base yet"
    behind = f"{copy['lag_seconds']:.0f} s and {size_text(copy['lag_bytes'])} behind"
    return f"{copy['to']} {covered}, {behind}{': ' if copy['failure'] else ''}{copy['failure']}"


def _failover_text(failover: dict[str, Any] | None) -> str:
    if failover is None:
        return "none"
    before = f" after {failover['before']}" if failover["before"] else ""
    others = failover["standbys"] or [host for host in failover["hosts"] if host != failover["host"]]
    return (
        f"{failover['host']} is active since {_time_text(failover['since'])}{before}, token {failover['token']}; lease "
        f"{failover['lease_left']:.1f} of {failover['lease']:g} s, renewed by {failover['renewed_by'] or 'the node'}; "
        f"standby {'; '.join(others) or 'none'}"
    )


def _bridge_text(bridge: dict[str, Any]) -> str:
    arrow = "to" if bridge["direction"] == "out" else "from"
    state = "connected" if bridge["connected"] else f"down ({bridge['reason'] or 'connecting'})"
    return (
        f"{bridge['name']} {arrow} {bridge['address']}: {state}, {bridge['carried']} carried, "
        f"{bridge['repeated']} of them possibly twice, {bridge['rejected']} rejected"
    )
