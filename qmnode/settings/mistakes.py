"""Mistakes in a node's settings: one line each, with the place and the probable intention."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from qmnode.errors import ConfigurationError
from qmnode.structures.text import nearest

Place = tuple[int | str, ...]


def unreadable(path: Path, error: Exception) -> str:
    """Why a file contains no settings at all."""
    match error:
        case FileNotFoundError():
            return f"{path} does not exist: 'qmnode init --config {path}' makes one"
        case OSError():
            return f"{path} cannot be read: {error.strerror or error}"
        case UnicodeDecodeError():
            return f"{path}: byte {error.start} is no UTF-8: save the file as UTF-8"
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
        f"{where}{_line(root, mistake['loc'])}: {'.'.join(map(str, mistake['loc'])) or 'settings'}: "
        f"{_sentence(model, mistake)}"
        for mistake in error.errors()
    )


def _composed(path: Path | None) -> Any:
    return None if path is None else yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)


def _line(node: Any, place: Place) -> str:
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


def _sentence(model: type[BaseModel], mistake: Any) -> str:
    if mistake["type"] != "extra_forbidden":
        return str(mistake["msg"]).removeprefix("Value error, ")
    *sections, name = mistake["loc"]
    known = model
    for section in sections:
        field = known.model_fields.get(str(section))
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return "no such setting"
        known = field.annotation
    near = nearest(str(name), known.model_fields)
    return "no such setting" if near is None else f"no such setting (did you mean {near}?)"
