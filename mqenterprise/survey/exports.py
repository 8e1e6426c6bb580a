"""Reads files about queues: PowerShell's ConvertTo-Json and Export-Csv, spreadsheets, and lists of NServiceBus.

``Get-MsmqQueue | ConvertTo-Json`` writes an array, or the object alone if there is one queue; numbers of enumerations,
or their names; UTF-16 with a byte-order mark if Windows PowerShell redirected it, UTF-8 otherwise.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from mqenterprise.survey.estate import Estate, Queue, SurveyError, shown
from mqenterprise.survey.machines import SYSTEM_QUEUES
from mqenterprise.topology.access_lists import mask as access_mask
from mqenterprise.topology.names import fold
from qmnode.objects.rows import NO_QUOTA
from qmnode.structures.guid import guid_from_text, guid_to_text
from qmnode.structures.security_descriptor import QueueAccess, names_of_rights
from qmnode.structures.text import nearest

_LARGEST: Final = 64 << 20
_MOST_ROWS: Final = 200_000
Row = Mapping[str, Any]

# Values


def _flag(value: Any) -> bool:
    text = str(value).strip().casefold()
    if text in {"true", "1", "yes", "y", "x", "wahr", "vrai", "ja", "oui"}:
        return True
    if text in {"false", "0", "no", "n", "falsch", "faux", "nein", "non"}:
        return False
    raise ValueError("is neither true nor false")


def _number(value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,20}", text, re.ASCII):
        raise ValueError("is no whole number")
    return int(text)


def _quota(value: Any) -> Any:
    number = _number(value)
    return "none" if number < 0 or number >= NO_QUOTA else number


def _text(value: Any) -> str:
    return shown(value).strip()


def _privacy(value: Any) -> str:
    text = str(value).strip().casefold()
    found = {"0": "none", "1": "optional", "2": "body"}.get(text, text)
    if found not in ("none", "optional", "body"):
        raise ValueError("is none of None, Optional and Body")
    return found


def _guid(value: Any) -> str | None:
    text = guid_to_text(guid_from_text(str(value)))
    return None if set(text) <= {"0", "-"} else text


_VALUES: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "label": ("label", _text),
    "transactional": ("transactional", _flag),
    "journaling": ("journaling", _flag),
    "journal": ("journaling", _flag),
    "journalenabled": ("journaling", _flag),
    "journalingenabled": ("journaling", _flag),
    "usejournalqueue": ("journaling", _flag),
    "authenticate": ("authentication", _flag),
    "authenticated": ("authentication", _flag),
    "authentication": ("authentication", _flag),
    "quota": ("quota", _quota),
    "queuequota": ("quota", _quota),
    "maximumqueuesize": ("quota", _quota),
    "journalquota": ("journal_quota", _quota),
    "maximumjournalsize": ("journal_quota", _quota),
    "encryptionrequired": ("privacy_level", _privacy),
    "privacylevel": ("privacy_level", _privacy),
    "privacy": ("privacy_level", _privacy),
    "multicastaddress": ("multicast_address", _text),
    "multicast": ("multicast_address", _text),
    "category": ("type", _guid),
    "messagecount": ("messages", _number),
    "messages": ("messages", _number),
    "bytesinqueue": ("bytes", _number),
    "bytes": ("bytes", _number),
    "journalmessagecount": ("journal_messages", _number),
    "bytesinjournal": ("journal_bytes", _number),
}
"""Columns by their names in small letters, with what they say."""
_COUNTS: Final = frozenset({"messages", "bytes", "journal_messages", "journal_bytes"})
_NAMES: Final = ("path", "formatname", "queuename", "name", "queue", "pathname")
_MACHINES: Final = ("machinename", "machine", "computername", "computer", "pscomputername")
_HINTS: Final = ("reader", "readers", "sender", "senders", "owner", "dtc", "triggers", "endpoint", "note", "notes")
_TYPES: Final = ("queuetype", "private", "kind")
_ACCESS: Final = ("acl", "accesslist", "access")
_TRUSTEES: Final = ("accountname", "username", "trustee", "account")
_RIGHTS: Final = ("right", "rights", "accessrights", "queueaccessrights")
_VERBS: Final = ("access", "accesstype", "accesscontroltype", "entrytype")
_IGNORED: Final = frozenset(
    [
        "accessmode",
        "basepriority",
        "canread",
        "canwrite",
        "container",
        "createtime",
        "defaultpropertiestosend",
        "denysharedreceive",
        "formatter",
        "id",
        "lastmodifytime",
        "messagereadpropertyfilter",
        "readhandle",
        "site",
        "subqueues",
        "subqueuenames",
        "synchronizingobject",
        "writehandle",
        "designmode",
        "events",
        "runspaceid",
        "psshowcomputername",
        "journalqueue",
        "pspath",
        "ps",
        "accounttype",
        "sid",
        "inherited",
        "queuestate",
        "state",
        "connectionstatus",
        "subqueuecount",
    ]
)
"""Properties that .NET and PowerShell add, and a survey does not need."""
_COLUMNS: Final = frozenset(
    {*_VALUES, *_NAMES, *_MACHINES, *_HINTS, *_TYPES, *_ACCESS, *_TRUSTEES, *_RIGHTS, *_VERBS, *_IGNORED}
)


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.casefold())


# Files


def read_exports(estate: Estate, files: Iterable[Path]) -> None:
    """Read files into the estate. Raises SurveyError with the file, the row and what to do."""
    for file in files:
        text = _decoded(file)
        start = text.lstrip()[:1]
        if start in ("[", "{"):
            _read_rows(estate, file, _json_rows(file, text), strict=False)
        elif start == "<":
            _read_endpoints(estate, file, _xml_endpoints(file, text))
        elif _is_list(text):
            _read_endpoints(estate, file, _listed_endpoints(file, text))
        else:
            _read_rows(estate, file, _csv_rows(file, text), strict=True)
        estate.files.append(str(file))


def _decoded(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise SurveyError(f"{file} has more than {_LARGEST >> 20} MB: export fewer machines into one file")
        content = file.read_bytes()
    except OSError as error:
        raise SurveyError(f"{file} cannot be read: {error.strerror}") from None
    if not content.strip():
        raise SurveyError(f"{file} is empty: export again, and look whether the command reported an error")
    encoding = "utf-8-sig"
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif content[1:2] == b"\0":
        encoding = "utf-16-le"
    elif content[:1] == b"\0":
        encoding = "utf-16-be"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise SurveyError(
            f"{file} is not {encoding.removesuffix('-sig').upper()} (byte {error.start}): save it as UTF-8, in Excel "
            "as 'CSV UTF-8', in PowerShell with Out-File -Encoding utf8"
        ) from None
    if "\0" in text:
        raise SurveyError(f"{file} is no text: give what ConvertTo-Json or Export-Csv wrote")
    return text


def _json_rows(file: Path, text: str) -> Iterator[tuple[str, Row]]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise SurveyError(f"{file} is nested too deeply: export with ConvertTo-Json -Depth 3") from None
    except ValueError as error:
        raise SurveyError(f"{file} is not JSON: {error}. Export again: the file may be cut") from None
    if isinstance(found, dict) and isinstance(found.get("value"), list) and "Count" in found:
        found = found["value"]  # Windows PowerShell makes this of some arrays
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise SurveyError(
                f"{file}, item {number}, is no object: pipe queues into ConvertTo-Json themselves, not a table of them"
            )
        yield f"item {number}", {_plain(str(name)): value for name, value in row.items()}


def _csv_rows(file: Path, text: str) -> Iterator[tuple[str, Row]]:
    lines = text.splitlines()
    skipped = 0
    delimiter = ""
    while lines and (lines[0].startswith("#TYPE") or not lines[0].strip() or lines[0].lower().startswith("sep=")):
        if lines[0].lower().startswith("sep="):
            delimiter = lines[0][4:5]
        lines, skipped = lines[1:], skipped + 1
    header = lines[0] if lines else ""
    delimiter = delimiter or max(";,\t", key=header.count)  # Excel writes what the country uses
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(reader, [])]
        columns = [_plain(name) for name in names]
        if not set(columns) & {*_NAMES}:
            raise SurveyError(
                f"{file} is no export of queues: its first line names no column such as QueueName, Path or Queue"
            )
        for name, column in zip(names, columns, strict=True):
            if column not in _COLUMNS:
                near = nearest(column, _COLUMNS)
                raise SurveyError(
                    f"{file} has a column '{shown(name)}', which is unknown"
                    + (f": did you mean {near!r}?" if near else "; delete it, or name it Note")
                )
        for row in reader:
            if any(cell.strip() for cell in row):
                where = f"line {reader.line_num + skipped}"
                if len(row) > len(columns):
                    raise SurveyError(f"{file}, {where}, has {len(row)} cells, and the first line names {len(columns)}")
                yield where, {name: cell for name, cell in zip(columns, row, strict=False) if cell.strip()}
    except csv.Error as error:
        raise SurveyError(f"{file}, line {reader.line_num + skipped}: {error}") from None


def _read_rows(estate: Estate, file: Path, rows: Iterable[tuple[str, Row]], *, strict: bool) -> None:
    count = 0
    unknown: set[str] = set()
    for where, row in rows:
        count += 1
        if count > _MOST_ROWS:
            raise SurveyError(f"{file} has more than {_MOST_ROWS:,} rows: export fewer machines into one file")
        for expanded in _expanded(row):
            try:
                _read_row(estate, expanded, file.name)
            except ValueError as error:
                raise SurveyError(f"{file}, {where}: {error}") from None
        unknown |= row.keys() - _COLUMNS
    if not count:
        raise SurveyError(f"{file} has no queues: export again, and look whether the command reported an error")
    if unknown and not strict:
        estate.unread.append(
            f"{file.name}: properties that are not used: {', '.join(sorted(map(shown, unknown))[:20])}"
        )


def _expanded(row: Row) -> Iterator[Row]:
    """The row, and the entries of an access list within it as rows of their own."""
    inner = row.get("queue")
    if isinstance(inner, dict):
        row = {name: value for name, value in row.items() if name != "queue"} | {
            _plain(str(name)): value for name, value in inner.items()
        }
    lists = [row[name] for name in _ACCESS if isinstance(row.get(name), list | dict)]
    plain = {name: value for name, value in row.items() if not isinstance(value, list | dict)}
    yield plain
    names = {name: plain[name] for name in (*_NAMES, *_MACHINES) if name in plain}
    for found in lists:
        for entry in found if isinstance(found, list) else [found]:
            if isinstance(entry, dict):
                yield {_plain(str(name)): value for name, value in entry.items()} | names


def _read_row(estate: Estate, row: Row, source: str) -> None:
    named = _queue_named(row)
    if named is None:
        return
    machine, name, private = named
    if private and fold(name) in SYSTEM_QUEUES:
        estate.machine(machine).triggers |= "trigger" in fold(name)
        return
    queue = estate.queue(machine, name, private=private)
    if _first(row, _TRUSTEES) is not None:
        _read_entry(queue, row, source)
        return
    for column, value in row.items():
        if value is None or column not in _VALUES:
            continue
        what, read = _VALUES[column]
        try:
            known = read(value)
        except ValueError as error:
            raise ValueError(f"{column} '{shown(value)}' of {queue.path} {error}") from None
        if what not in _COUNTS:
            queue.learn(what, known, source)
        elif getattr(queue, what) is None and known >= 0:
            setattr(queue, what, known)
    for column in _HINTS:
        if row.get(column) is not None:
            queue.hints.setdefault(column.removesuffix("s") if column != "triggers" else column, _text(row[column]))


def _first(row: Row, names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _queue_named(row: Row) -> tuple[str, str, bool] | None:
    """The machine and the name of the queue of a row; None for a system queue."""
    text = _first(row, _NAMES)
    if text is None:
        raise ValueError("it names no queue: add QueueName to what you export")
    name = re.sub(r"^(formatname:)?(direct=(os|tcp|https?):(//)?)?", "", str(text).strip(), flags=re.IGNORECASE)
    if re.match(r"(public|private|machine)=", name, re.IGNORECASE):
        other = row.get("queuename") or row.get("pathname")
        if other is None:
            raise ValueError(f"'{shown(text)}' is the name of a queue by its number: add QueueName to what you export")
        name = str(other)
    parts = name.replace("/", "\\").split("\\")
    private = any(fold(part) == "private$" for part in parts)
    parts = [part for part in parts if fold(part) != "private$"]
    machine = _first(row, _MACHINES)
    if len(parts) > 1:
        machine = machine or parts[0]
    kind = str(_first(row, _TYPES) or "").casefold()
    if "system" in kind or ";" in parts[-1] or fold(parts[0]) == "system$":
        return None
    if kind in ("private", "true", "yes"):
        private = True
    if machine is None or str(machine).strip() in ("", "."):
        raise ValueError(f"'{shown(text)}' names no machine: add MachineName to what you export")
    short = str(machine).strip().split(".")[0] if not _is_address(str(machine)) else str(machine).strip()
    return short, shown(parts[-1]).strip(), private


def _is_address(text: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+", text.strip()))


# Access lists

_RIGHT_NAMES: Final = {
    "deletemessage": QueueAccess.MQSEC_DELETE_MESSAGE,
    "peekmessage": QueueAccess.MQSEC_PEEK_MESSAGE,
    "receivemessage": QueueAccess.MQSEC_RECEIVE_MESSAGE,
    "writemessage": QueueAccess.MQSEC_WRITE_MESSAGE,
    "sendmessage": QueueAccess.MQSEC_WRITE_MESSAGE,
    "deletejournalmessage": QueueAccess.MQSEC_DELETE_JOURNAL_MESSAGE,
    "receivejournalmessage": QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE,
    "setqueueproperties": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "getqueueproperties": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "deletequeue": QueueAccess.MQSEC_DELETE_QUEUE,
    "getqueuepermissions": QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    "changequeuepermissions": QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS,
    "setqueuepermissions": QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS,
    "takequeueownership": QueueAccess.MQSEC_TAKE_QUEUE_OWNERSHIP,
    "genericread": QueueAccess.MQSEC_QUEUE_GENERIC_READ,
    "genericwrite": QueueAccess.MQSEC_QUEUE_GENERIC_WRITE,
    "fullcontrol": QueueAccess.MQSEC_QUEUE_GENERIC_ALL,
}
"""MessageQueueAccessRights of System.Messaging. Its numbers are those of MS-MQMQ 2.2.24."""


def _read_entry(queue: Queue, row: Row, source: str) -> None:
    """Add an entry of an access list. The first one of a file replaces what another file said."""
    trustee, rights = _text(_first(row, _TRUSTEES)), _first(row, _RIGHTS)
    if rights is None:
        raise ValueError(f"the entry of '{trustee}' for {queue.path} names no Right")
    verb = str(_first(row, _VERBS) or "Allow").strip().casefold()
    verb = {"1": "allow", "2": "allow", "3": "deny", "0": "allow"}.get(verb, verb)
    if verb not in ("allow", "deny"):
        raise ValueError(f"'{shown(verb)}' is neither Allow nor Deny, for '{trustee}' and {queue.path}")
    if queue.access is None or queue.sources.get("access") != source:
        queue.access = []
    queue.sources["access"] = source
    mask = _mask(rights)
    entry = next((one for one in queue.access if fold(str(one["to"])) == fold(trustee)), None)
    if entry is None:
        entry = {"to": trustee}
        queue.access.append(entry)
    names = [name for name in names_of_rights(mask | access_mask(entry.get(verb, ()))) if not name.startswith("0x")]
    entry[verb] = names


def _mask(rights: Any) -> int:
    if isinstance(rights, int) or str(rights).strip().isdecimal():
        return int(rights) & int(QueueAccess.MQSEC_QUEUE_GENERIC_ALL)
    value = 0
    for name in re.split(r"[,;|]", str(rights)):
        right = _RIGHT_NAMES.get(_plain(name))
        if right is None:
            near = nearest(_plain(name), _RIGHT_NAMES)
            raise ValueError(f"'{shown(name)}' is no right to a queue" + (f": did you mean {near!r}?" if near else ""))
        value |= int(right)
    return value


# NServiceBus

_ADDRESS: Final = re.compile(r"[^@\s,;]+@[^@\s,;]+")


def _is_list(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()[:100] if line.strip() and not line.startswith("#")]
    return bool(lines) and all(_ADDRESS.fullmatch(line) for line in lines)


def _listed_endpoints(file: Path, text: str) -> Iterator[tuple[str, str, str]]:
    """Addresses ``queue@machine``, one on each line."""
    for number, line in enumerate(text.splitlines(), 1):
        address = line.strip()
        if address and not address.startswith("#"):
            if not _ADDRESS.fullmatch(address):
                raise SurveyError(f"{file}, line {number}: '{shown(address)}' is no address such as sales@winshop")
            queue, _, machine = address.partition("@")
            yield queue, queue, machine


def _xml_endpoints(file: Path, text: str) -> Iterator[tuple[str, str, str]]:
    """The instance mapping file of the MSMQ transport: endpoints with instances, each on a machine."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SurveyError(f"{file} declares a document type, which an instance mapping file has not: remove it")
    try:
        root = ElementTree.fromstring(text.encode())  # noqa: S314  # no entities: see above
    except (ElementTree.ParseError, ValueError) as error:
        raise SurveyError(f"{file} is not XML: {error}") from None
    if root.tag != "endpoints":
        raise SurveyError(f"{file} is no instance mapping file of NServiceBus: it begins with <{shown(root.tag)}>")
    for endpoint in root.iter("endpoint"):
        for instance in endpoint.iter("instance"):
            machine, name = instance.get("machine"), endpoint.get("name", "")
            if not machine:
                raise SurveyError(
                    f"{file}: an instance of '{shown(name)}' names no machine: give it the attribute machine"
                )
            discriminator = instance.get("discriminator")
            queue = instance.get("queue") or (f"{name}-{discriminator}" if discriminator else name)
            yield name, queue, machine


def _read_endpoints(estate: Estate, file: Path, endpoints: Iterable[tuple[str, str, str]]) -> None:
    """NServiceBus reads a private, transactional queue of the endpoint's name."""
    count = 0
    for endpoint, name, machine in endpoints:
        count += 1
        if count > _MOST_ROWS:
            raise SurveyError(f"{file} has more than {_MOST_ROWS:,} endpoints")
        queue = estate.queue(machine.split(".")[0] if not _is_address(machine) else machine, name, private=True)
        queue.endpoint = shown(endpoint)
        queue.hints.setdefault("reader", f"NServiceBus endpoint {shown(endpoint)}")
    if not count:
        raise SurveyError(f"{file} lists no endpoints")
