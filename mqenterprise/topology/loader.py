"""YAML files to a :class:`~mqenterprise.topology.declaration.Declaration`.

The declaration is one file, or a directory of ``*.yaml`` and ``*.yml`` that are read in the order of their names. A
file may ``include`` others (a list of paths relative to it). Lists of several files are joined; ``enterprise`` is in
exactly one of them.

Line numbers cost nothing without errors: files are read into plain data, and parsed a second time with their marks only
when an error in them needs a line.

A declaration with invalid values is salvaged, so that all the rest of it can still be checked: an invalid value is
replaced by its default, or, where a value is required, by a stand-in that refers to nothing. Every item thus keeps its
position, and its references are checked together with those of the others.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mqenterprise.topology import declaration
from mqenterprise.topology import problems as faults
from mqenterprise.topology.declaration import SECTIONS as MODELS
from mqenterprise.topology.declaration import Declaration
from mqenterprise.topology.names import fold
from mqenterprise.topology.problems import DeclarationError, Note, Problem, choices, explain
from qmnode.objects.table import ROUTING_LINK
from qmnode.settings.yaml_text import DuplicateNameError

_REFUSED: Final = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML 1.1 (5.1) does not allow."""
_NESTED: Final = 100
_MARKS: Final = (
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
)
_WORDS: Final = (
    ("could not find expected ':'", "a ':' is missing after a name"),
    ("mapping values are not allowed", "a ':' stands where none can; quote texts that have one, check the indentation"),
    ("did not find expected key", "the indentation does not fit the lines above, or a ',' or '}' is missing"),
    ("did not find expected '-' indicator", "a list and something else stand at the same indentation"),
    ("did not find expected ',' or ']'", "a list that begins with '[' lacks ',' or ']'"),
    ("did not find expected ',' or '}'", "a mapping that begins with '{' lacks ',' or '}'"),
    ("unexpected end of stream", "a quoted text does not end"),
    ("but found another document", "'---' begins a second document; a file holds one"),
    ("undefined alias", "an alias (*name) stands before its anchor (&name), or has none"),
    ("cannot start any token", "no text begins with %, @, ` or a tab; put it in quotes, and indent with spaces"),
    ("could not determine a constructor", "a tag (a word after '!') stands here; leave it out"),
)  # fmt: skip


class Unreadable(Exception):
    """The file is not YAML: the line, and a sentence about the fault."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(line, sentence)
        self.line = line
        self.sentence = sentence


def decoded(content: bytes) -> str:
    """Return the text of a file. Raises :class:`Unreadable`."""
    for mark, what in _MARKS:
        if content.startswith(mark):
            raise Unreadable(1, f"the file is {what}; save it as text in UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        line = content.count(b"\n", 0, error.start) + 1
        raise Unreadable(line, f"the byte 0x{byte:02X} is no UTF-8; save the file in UTF-8") from None
    if (found := _REFUSED.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise Unreadable(line, f"the control character U+{ord(found[0]):04X} cannot be in a file; take it out")
    return text


def in_plain_words(error: yaml.MarkedYAMLError) -> str:
    """Return the parser's message, or advice for a common mistake."""
    problem = str(error.problem)
    for begins, words in _WORDS:
        if begins in problem:
            return words
    return problem


def deepest_line(text: str) -> int:
    """Return the line where brackets are nested too deeply, or the line with the deepest indentation."""
    depth = 0
    deepest, line_of_deepest = 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        for character in line:
            depth += (character in "[{") - (character in "]}")
            if depth > _NESTED:
                return number
        indent = len(line) - len(line.lstrip(" -"))
        if indent > deepest:
            deepest, line_of_deepest = indent, number
    return line_of_deepest


def unfolding_line(text: str, loader: Any, most: int, deepest: int) -> int:
    """Return the line of the innermost value with more than ``most`` values or ``deepest`` levels after expansion."""
    sizes: dict[int, tuple[int, int]] = {}

    def size(node: yaml.Node) -> tuple[int, int]:
        """Return the numbers of values and levels. A value that contains itself exceeds both limits."""
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = (most + 1, deepest + 1)
        inside = [size(child) for child in _children(node)]
        found = 1 + sum(count for count, _ in inside), 1 + max((levels for _, levels in inside), default=0)
        sizes[id(node)] = found
        if line[0] == 0 and (found[0] > most or found[1] > deepest):
            line[0] = node.start_mark.line + 1
        return found

    line = [0]
    try:
        root = yaml.compose(text, Loader=loader)
        if root is not None:
            size(root)
    except (RecursionError, yaml.YAMLError):
        return deepest_line(text)
    return line[0] or 1


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


_MODELS: dict[str, type[BaseModel]] = {name: model for name, (model, _) in declaration.SECTIONS.items()} | {
    "bridges": declaration.Bridge
}
_NAMED = ("sites", "foreign_sites", "machines")
_ACCEPTED: dict[str, Any] = {
    **dict.fromkeys(("name", "machine", "queue", "address"), "x"),
    "sites": ("x", "y"),
    "cost": ROUTING_LINK["cost"].default,
    "direction": "out",
    "peer": "amqp://x",
    "format_name": r"DIRECT=OS:x\x",
}
"""For each required value, one that its model accepts."""


def salvage(
    joined: Mapping[str, Any], errors: Sequence[ErrorDetails]
) -> tuple[declaration.Declaration, frozenset[str]] | None:
    """Return the declaration without its invalid values, and the folded names about which nothing more is reported.

    Return None when the errors are not those of single items.
    """
    sections: dict[str, Any] = dict(joined)
    doubtful: set[str] = set()
    wrong: dict[tuple[str, int], set[str]] = {}
    for error in errors:
        match error["loc"]:
            case ("enterprise", *_):
                sections["enterprise"] = declaration.Enterprise(name="x")
            case ("directory",):
                del sections["directory"]
            case (str(section), int(position), *rest) if section in _MODELS:
                wrong.setdefault((section, position), set()).update(str(step) for step in rest[:1])
            case _:
                return None
    for section in {section for section, _ in wrong}:
        sections[section] = list(sections[section])
    try:
        for (section, position), fields in wrong.items():
            item = _mended(section, position, joined[section][position], fields, doubtful)
            sections[section][position] = item
        return declaration.Declaration.model_validate(sections), frozenset(doubtful)
    except ValidationError:
        return None


def _mended(section: str, position: int, given: object, fields: set[str], doubtful: set[str]) -> BaseModel:
    model = _MODELS[section]
    raw: dict[Any, Any] = given if isinstance(given, dict) else {}
    kept = model.model_fields.keys() - fields
    if not fields:  # they do not fit together
        kept = {name for name, info in model.model_fields.items() if info.is_required()}
    values = {name: raw[name] for name in model.model_fields if name in raw and name in kept}
    replaced: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        if name in values or not info.is_required():
            continue
        values[name] = _ACCEPTED[name]
        if name == "sites":  # no name can hold a NUL
            replaced[name] = (f"\0{section}/{position}/0", f"\0{section}/{position}/1")
            doubtful.update(replaced[name])
        elif name not in ("cost", "format_name"):
            replaced[name] = raw[name] if isinstance(raw.get(name), str) else f"\0{section}/{position}"
            doubtful.add(fold(replaced[name]))
    mended = model.model_validate(values)
    if section in _NAMED:
        doubtful.add(fold(replaced.get("name", values["name"])))
    return mended.model_copy(update=replaced)


MAXIMUM_FILE = 64 << 20
"""The greatest size of one file in bytes."""
MAXIMUM_FILES = 10_000
MAXIMUM_VALUES = 5_000_000
"""The greatest number of values in one file with its aliases expanded: the limit that stops an alias bomb."""
MAXIMUM_DEPTH = 32

_ADVICE: dict[type[OSError], str] = {
    FileNotFoundError: "; name a YAML file or a folder of them",
    PermissionError: "; run this as a user who may read it",
}
SECTIONS = tuple(name for name in Declaration.model_fields if name not in ("enterprise", "directory"))
_TOP_LEVEL = ("enterprise", "directory", "include", *SECTIONS)
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc,valid-type]
    """A safe loader that leaves dates as text."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))

_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


def _plain_data(text: str) -> Any:
    """Return the single document of a text as plain data. Duplicate keys are refused.

    PyYAML's own constructor takes two thirds of the time for a large declaration. Nearly all of a declaration is
    mappings, lists and texts, which are made here. Raises ``yaml.YAMLError`` and ``ValueError``.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        return None if root is None else _Builder(loader).build(root)
    finally:
        loader.dispose()


class _Builder:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._made: dict[int, Any] = {}
        self._making: set[int] = set()

    def build(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag == _TEXT else self._loader.construct_object(node)
        key = id(node)  # the target of an alias was made before
        if key in self._made:
            return self._made[key]
        if key in self._making:
            raise ValueError("an alias stands inside the value that it names")
        self._making.add(key)
        made: Any
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            made = [self.build(item) for item in node.value]
        elif isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            made = self._mapping(node)
        else:
            made = self._loader.construct_object(node, deep=True)  # refuses unsafe tags
        self._making.remove(key)
        self._made[key] = made
        return made

    def _mapping(self, node: yaml.MappingNode) -> dict[Hashable, Any]:
        own: dict[Hashable, Any] = {}
        merged: dict[Hashable, Any] = {}
        lines: dict[Hashable, yaml.Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._merge(merged, value_node)
                continue
            key = self.build(key_node)
            if isinstance(key, list | dict):
                raise _refused("a name cannot be a list or a mapping", key_node)
            if key in own:
                raise DuplicateNameError(key_node, lines[key])
            own[key], lines[key] = self.build(value_node), key_node
        return merged | own if merged else own

    def _merge(self, merged: dict[Hashable, Any], node: yaml.Node) -> None:
        given = self.build(node)
        for mapping in given if isinstance(given, list) else [given]:
            if not isinstance(mapping, dict):
                raise _refused("only mappings can be merged with <<", node)
            for key, value in mapping.items():
                merged.setdefault(key, value)


def _refused(sentence: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, sentence, node.start_mark)


@dataclass(slots=True)
class Sources:
    """The origin of each part of a joined declaration."""

    files: list[Path] = field(default_factory=list)
    enterprise: Path | None = None
    incomplete: bool = False
    """A file or a section could not be read."""
    origins: dict[str, list[tuple[int, Path, int]]] = field(default_factory=dict)
    """For each section: (first position in the joined list, file, its first position in that file)."""
    renamed: dict[faults.Path, str] = field(default_factory=dict)
    """The name of an earlier release that the file has at a path."""
    _trees: dict[Path, yaml.Node | None] = field(default_factory=dict)

    def problem(self, path: faults.Path, sentence: str) -> Problem:
        """Return a :class:`Problem` at a path of the joined declaration."""
        file, local = self.locate(self._as_written(path))
        if file is None:
            return Problem(str(self.files[0]) if self.files else "(nothing)", 0, faults.in_words(path), sentence)
        return Problem(str(file), self.line(file, local), faults.in_words(local), sentence)

    def _as_written(self, path: faults.Path) -> faults.Path:
        old = self.renamed.get(path[:3])
        return path if old is None else (*path[:2], old, *path[3:])

    def locate(self, path: faults.Path) -> tuple[Path | None, faults.Path]:
        """Return the file that holds ``path``, and the path inside that file."""
        if not path or path[0] == "enterprise":
            return self.enterprise, path
        section, origins = str(path[0]), self.origins.get(str(path[0]), [])
        if len(path) > 1 and isinstance(path[1], int):
            for first, file, local in reversed(origins):
                if path[1] >= first:
                    return file, (section, path[1] - first + local, *path[2:])
        return (origins[0][1] if origins else None), path

    def line(self, file: Path, path: faults.Path) -> int:
        """Return the line of ``path`` in ``file``, or of the nearest enclosing part that exists."""
        if file not in self._trees:
            try:
                self._trees[file] = yaml.compose(decoded(file.read_bytes()), Loader=_Loader)
            except (OSError, ValueError, Unreadable, RecursionError, yaml.YAMLError):
                self._trees[file] = None
        node = self._trees[file]
        line = node.start_mark.line + 1 if node is not None else 0
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    return None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A declaration, the positions of its parts, and the problems of its single values.

    With ``problems`` the declaration is only the usable rest (:mod:`mqenterprise.topology.loader`), which is checked
    but not applied. Nothing more is reported about the ``doubtful`` names (folded).
    """

    declaration: Declaration
    sources: Sources
    problems: tuple[Problem, ...] = ()
    doubtful: frozenset[str] = frozenset()
    incomplete: bool = False
    """Parts could not be read: a name that is nowhere may be in them."""
    notes: tuple[Note, ...] = ()
    """Names of earlier releases, with the new ones."""


def load_models(start: Path) -> Loaded:
    """Read ``start`` (a file or a directory) into models, without checking references.

    Raises :class:`DeclarationError` with all problems of all files when nothing can be checked further.
    """
    found: list[Problem] = []
    sources = Sources()
    joined: dict[str, Any] = {section: [] for section in SECTIONS}
    for file in _files(start, found):
        data = _read(file, found)
        sources.files.append(file)
        if data is None:
            sources.incomplete = True
        else:
            _join(file, data, joined, sources, found)
    incomplete = sources.incomplete
    if "enterprise" not in joined:
        if sources.files and not incomplete:
            empty = "" if sources.origins else "the file is empty, or "
            sentence = f"{empty}there is no 'enterprise' section; begin with 'enterprise: {{name: ...}}'"
            found.append(Problem(str(sources.files[0]), 1, "", sentence))
        joined["enterprise"] = {"name": "x"}
    notes = tuple(_rename(joined, sources, found))
    try:
        declaration = Declaration.model_validate(joined)
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        return Loaded(declaration, sources, tuple(found), incomplete=incomplete, notes=notes)
    for detail in details:
        path, sentence = explain(detail, choices(str(detail["loc"][0])))
        found.append(sources.problem(path, sentence))
    rest = salvage(joined, details)
    if rest is None:
        raise DeclarationError(found)
    return Loaded(rest[0], sources, tuple(found), rest[1], incomplete, notes)


def _rename(joined: dict[str, Any], sources: Sources, found: list[Problem]) -> Iterator[Note]:
    """Give properties their names of this release, and yield a note for each earlier name that is used."""
    for section, (_, rows) in MODELS.items():
        aliases = {alias: row.name for row in rows.values() for alias in row.aliases}
        first: dict[str, faults.Path] = {}
        count: Counter[str] = Counter()
        for position, item in enumerate(joined[section] if aliases else ()):
            if not isinstance(item, dict) or aliases.keys().isdisjoint(item):
                continue
            renamed: dict[Any, Any] = {}
            for name, value in item.items():
                new: str = aliases.get(name) or name
                path: faults.Path = (section, position, new)
                if new in renamed:
                    other = sources.renamed.pop(path, new)
                    sentence = f"{other!r} and {name!r} are one property; keep {new!r}"
                    found.append(sources.problem((section, position, name), sentence))
                elif name != new:
                    sources.renamed[path] = name
                    first.setdefault(name, path)
                    count[name] += 1
                renamed[new] = value
            joined[section][position] = renamed
        for name, place in first.items():
            new = aliases[name]
            more = "once" if count[name] == 2 else f"{count[name] - 1} times"
            others = f" (here and {more} more)" if count[name] > 1 else ""
            yield place, f"the name is {new} now; {name} is taken for one more release{others}"


def _files(start: Path, found: list[Problem]) -> Iterator[Path]:
    """Return every file of the declaration once, includes after the file that names them."""
    if start.is_dir():
        waiting = sorted(path for path in start.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
        if not waiting:
            found.append(Problem(str(start), 0, "", "the directory holds no .yaml file; put the declaration there"))
    else:
        waiting = [start]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop(0)
        if file.resolve() in seen:
            continue
        seen.add(file.resolve())
        if len(seen) > MAXIMUM_FILES:
            found.append(Problem(str(file), 0, "include", f"more than {MAXIMUM_FILES} files"))
            return
        yield file
        waiting[:0] = _includes(file, found)


def _includes(file: Path, found: list[Problem]) -> list[Path]:
    # Read cheaply: only files that mention an include pay for a second parse of their head.
    try:
        text = decoded(file.read_bytes())
        if "include:" not in text:
            return []
        root = yaml.compose(text, Loader=_Loader)
    except (OSError, ValueError, Unreadable, RecursionError, yaml.YAMLError):
        return []  # _read reports it
    entry = _child(root, "include")
    if entry is None:
        return []
    line, node = entry
    if not isinstance(node, yaml.SequenceNode) or not all(isinstance(item, yaml.ScalarNode) for item in node.value):
        found.append(Problem(str(file), line, "include", "give a list of paths, relative to this file"))
        return []
    paths: list[Path] = []
    for item in node.value:
        path = file.parent / item.value
        try:
            matches = sorted(file.parent.glob(item.value)) if "*" in item.value else [path]
        except (NotImplementedError, ValueError, IndexError):
            matches = []  # an absolute pattern, or none
        if not matches or not all(match.is_file() for match in matches):
            found.append(Problem(str(file), item.start_mark.line + 1, "include", f"there is no file {path}"))
        else:
            paths += matches
    return paths


def _read(file: Path, found: list[Problem]) -> dict[str, Any] | None:
    """Read one file as plain data. Faults of its YAML go to ``found``."""
    try:
        if file.stat().st_size > MAXIMUM_FILE:
            found.append(Problem(str(file), 0, "", f"the file is larger than {MAXIMUM_FILE >> 20} MiB; split it"))
            return None
        content = file.read_bytes()
    except OSError as error:
        advice = _ADVICE.get(type(error), "")
        found.append(Problem(str(file), 0, "", f"cannot be read: {error.strerror}{advice}"))
        return None
    try:
        data = _parsed(content)
    except Unreadable as error:
        found.append(Problem(str(file), error.line, "", error.sentence))
        return None
    if data is None:
        return {}
    if not isinstance(data, dict):
        found.append(Problem(str(file), 1, "", f"a declaration is a mapping with {', '.join(_TOP_LEVEL)}"))
        return None
    return data


def _parsed(content: bytes) -> Any:
    text = decoded(content)
    try:
        data = _plain_data(text)
        if "*" in text:
            _bounded(data)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(mark.line + 1 if mark else 1, f"not valid YAML: {in_plain_words(error)}") from None
    except yaml.YAMLError as error:
        raise Unreadable(1, f"not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise Unreadable(deepest_line(text), "the values are nested too deep") from None
    except ValueError as error:
        raise Unreadable(unfolding_line(text, _Loader, MAXIMUM_VALUES, MAXIMUM_DEPTH), str(error)) from None
    return data


def _bounded(data: Any) -> None:
    """Raise ValueError when ``data`` with expanded aliases is larger than a declaration can be."""
    count, waiting = 0, [(data, 0)]
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > MAXIMUM_VALUES or depth > MAXIMUM_DEPTH:
            raise ValueError("its aliases unfold to more than a declaration can hold")
        if isinstance(value, dict):
            waiting += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            waiting += [(item, depth + 1) for item in value]


def _join(file: Path, data: dict[str, Any], joined: dict[str, Any], sources: Sources, found: list[Problem]) -> None:
    """Add one file's sections to the joined declaration."""
    for key, value in data.items():
        if key == "include":
            continue
        if key == "enterprise":
            if value is None:
                sentence = "the section is empty; give at least the name of the enterprise: {name: ...}"
                found.append(Problem(str(file), sources.line(file, (key,)), key, sentence))
                value = {"name": "x"}
            if sources.enterprise is not None:
                sentence = f"'enterprise' stands in {sources.enterprise} already; it belongs in one file"
                found.append(Problem(str(file), sources.line(file, (key,)), str(key), sentence))
                continue
            sources.enterprise, joined["enterprise"] = file, value
        elif key == "directory":
            if key in joined:
                sentence = f"'directory' stands in {sources.origins[key][0][1]} already; it belongs in one file"
                found.append(Problem(str(file), sources.line(file, (key,)), key, sentence))
                continue
            sources.origins[key], joined[key] = [(0, file, 0)], value
        elif key not in SECTIONS:
            sentence = f"there is no section {key!r}" + faults.did_you_mean(str(key), _TOP_LEVEL)
            found.append(Problem(str(file), sources.line(file, (str(key),)), str(key), sentence))
            sources.incomplete |= faults.nearest(str(key), _TOP_LEVEL, 0.6) is not None
        elif value is None:
            continue
        elif not isinstance(value, list):
            found.append(Problem(str(file), sources.line(file, (key,)), key, f"{key} is a list; begin each with '- '"))
            sources.incomplete = True
        else:
            sources.origins.setdefault(key, []).append((len(joined[key]), file, 0))
            joined[key] += value


def read_certificates(loaded: Loaded, found: list[Problem]) -> dict[str, tuple[str, ...]]:
    """Return, for each user (folded name) with declared certificates, their DER in base64, sorted and unique."""
    certificates: dict[str, tuple[str, ...]] = {}
    for position, user in enumerate(loaded.declaration.users):
        if user.certificates is None:
            continue
        texts: set[str] = set()
        for index, source in enumerate(user.certificates):
            path = ("users", position, "certificates", index)
            try:
                texts.update(_read_certificates_of(source, loaded.sources.locate(path)[0]))
            except ValueError as error:
                found.append(loaded.sources.problem(path, str(error)))
        certificates[fold(user.name)] = tuple(sorted(texts))
    return certificates


def _read_certificates_of(source: str, beside: Path | None) -> list[str]:
    if "-----BEGIN" in source:
        data = source.encode()
    else:
        file = (beside.parent if beside else Path()) / source
        try:
            data = file.read_bytes()
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ValueError("holds no certificate in PEM; give a file, or text with BEGIN CERTIFICATE") from None
    return [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode() for certificate in found]


def described(encoded: str) -> str:
    """Describe a certificate in a few words, for a diff."""
    try:
        certificate = x509.load_der_x509_certificate(base64.b64decode(encoded, validate=True))
    except ValueError:
        return f"(no certificate: {encoded[:16]}...)"
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    return f"{certificate.subject.rfc4514_string()} sha256:{fingerprint[:16]}"


def as_pem(encoded: str) -> str:
    """Return a certificate as PEM text for a declaration."""
    body = "\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64))
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
