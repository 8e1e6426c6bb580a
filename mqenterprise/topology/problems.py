"""Problems of a declaration: place, fault and remedy in words, pydantic's errors included, all reported at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mqenterprise.topology import declaration
from mqenterprise.topology.access_lists import BY_KIND
from qmnode.objects.rows import QUOTA, Property, Rows
from qmnode.objects.table import ENTERPRISE
from qmnode.settings.bridges import BRIDGE_NAME_RULE, SecretSettings
from qmnode.structures.text import nearest as nearest

Path = tuple[str | int, ...]
"""A place in a document: mapping keys and list positions from its root."""
Note = tuple[Path, str]
"""A sentence about a place of the joined declaration."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a declaration.

    ``file`` and ``line`` (from 1; 0 for the whole file) give the place, ``where`` the path in words. ``sentence`` names
    the fault and the remedy.
    """

    file: str
    line: int
    where: str
    sentence: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.where}: {self.sentence}" if self.where else f"{place}: {self.sentence}"


class DeclarationError(Exception):
    """The declaration cannot be used; ``problems`` holds every reason, in the order of files and lines.

    ``warnings`` hold the problems that alone would not prevent its use.
    """

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems = in_order(problems)
        self.warnings = in_order(warnings)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NoDirectoryError(DeclarationError):
    """The declared enterprise has no directory, and only a directory could do what was asked."""


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems sorted by file and line."""
    return tuple(sorted(problems, key=lambda p: (p.file, p.line, p.where)))


def in_words(path: Path) -> str:
    """Return a path in words: ``("queues", 3, "quota")`` is ``queues[3].quota``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the nearest known name, a short list of known names, or nothing."""
    names = sorted(set(known))
    near = nearest(name, names, 0.5)
    if near is not None:
        return f" (did you mean {near}?)"
    if 0 < len(names) <= 6:
        return f" (known: {', '.join(names)})"
    return ""


_MODELS: dict[str, type[BaseModel]] = {name: model for name, (model, _) in declaration.SECTIONS.items()} | {
    "enterprise": declaration.Enterprise,
    "bridges": declaration.Bridge,
    "password_secret": SecretSettings,
    "access": declaration.Access,
    "failover": declaration.Failover,
}
_ROWS: dict[str, Rows] = {name: rows for name, (_, rows) in declaration.SECTIONS.items()} | {"enterprise": ENTERPRISE}

_WANTED = {
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "tuple_type": "a list, such as [a, b]",
    "model_type": "a mapping of names and values",
    "dict_type": "a mapping of names and values",
}


def choices(section: str) -> dict[str, Sequence[str]]:
    """Return the words that properties of a section's objects may have."""
    rights = tuple(BY_KIND.get(_ROWS[section].kind, ())) if section in _ROWS else ()
    return {"roles": get_args(declaration.Role), "allow": rights, "deny": rights}


def explain(error: ErrorDetails, choices: Mapping[str, Sequence[str]]) -> tuple[Path, str]:
    """Return the path of the value that pydantic refused, and a sentence about it."""
    path: Path = tuple(error["loc"])
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    match kind:
        case "missing":
            return path[:-1], f"{path[-1]!r} is missing; give {_what(path)}"
        case "extra_forbidden":
            return path, f"there is no setting {path[-1]!r}" + did_you_mean(str(path[-1]), _fields(path))
        case "literal_error":
            known = choices.get(str(path[-2]) if isinstance(path[-1], int) else str(path[-1]), ())
            hint = did_you_mean(str(value), known) if known else f"; give {context.get('expected')}"
            return path, f"{value!r} is not one of the values" + hint
        case "value_error":
            sentence = str(context.get("error"))
            if isinstance(value, dict) or path[-1] == "peer":  # a peer's URL may hold a password
                return path, sentence
            return path, sentence if sentence.startswith(repr(value)) else f"{_shown(value)}: {sentence}"
        case "greater_than_equal" | "less_than_equal" if _row(path) is not None:
            return path, f"{value} is out of range; give {_range(path)}"
        case "string_pattern_mismatch" if _model(path) is declaration.Bridge and path[-1] == "name":
            return path, f"{_shown(value)}: {BRIDGE_NAME_RULE}"
        case "too_short" | "too_long" | "string_too_short" | "string_too_long":
            return path, f"{_count(context)}"
        case _ if kind in _WANTED and value is None:
            return path, f"nothing stands here; {_WANTED[kind]} is wanted"
        case _ if kind in _WANTED:
            quote = "; write it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
            return path, f"{_shown(value)} is {_type(value)}, {_WANTED[kind]} is wanted{quote}"
    return path, error["msg"]


def _model(path: Path) -> type[BaseModel] | None:
    names = [step for step in path[:-1] if isinstance(step, str)]
    return _MODELS.get(names[-1]) if names else declaration.Declaration


def _fields(path: Path) -> list[str]:
    model = _model(path)
    return list(model.model_fields) if model else []


def _what(path: Path) -> str:
    model = _model(path)
    name = str(path[-1])
    description = model.model_fields[name].description if model and name in model.model_fields else None
    if not description:
        return f"its {name}"
    is_word = description[1:2].islower() or description[1:2] == " "
    return f"{description[0].lower() if is_word else description[0]}{description[1:]}".rstrip(".")


def _row(path: Path) -> Property | None:
    """The row of a value; none of settings within an object."""
    return _ROWS[str(path[0])].called(str(path[-1])) if len(path) < 4 and path[0] in _ROWS else None


def _range(path: Path) -> str:
    """The range of a number, from its row."""
    row = _row(path)
    assert row is not None
    form, name = row.form, row.name.replace("_", " ")
    otherwise = ", a size such as 10MB, or none" if form is QUOTA else ""
    return f"{form.unit or f'a {name}'} from {form.least} to {form.most}{otherwise} ({row.section})"


def _count(context: Mapping[str, Any]) -> str:
    length, low, high = context.get("actual_length"), context.get("min_length"), context.get("max_length")
    wanted = f"at least {low}" if low is not None else f"at most {high}"
    return f"has {length if length is not None else 'no'} items; {wanted} are wanted"


def _type(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "nothing"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
