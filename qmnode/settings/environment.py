"""Settings from environment variables. The library for them is loaded only if there are such variables."""

import os
from typing import Any, Final

from pydantic import BaseModel

from qmnode.errors import ConfigurationError

PREFIX: Final = "QMNODE_"
DELIMITER: Final = "__"


def with_environment(kind: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, overridden by the environment. Raises ConfigurationError if that cannot be read."""
    if not any(_is_setting(kind, name) for name in os.environ):
        return values
    from pydantic_settings import EnvSettingsSource, SettingsError

    source: Any = EnvSettingsSource(kind, env_prefix=PREFIX, env_nested_delimiter=DELIMITER)  # type: ignore[arg-type]
    try:
        return _over(values, source())
    except SettingsError as error:
        raise ConfigurationError(str(error)) from error


def _is_setting(kind: type[BaseModel], variable: str) -> bool:
    name = variable.upper()
    return name.startswith(PREFIX) and name[len(PREFIX) :].partition(DELIMITER)[0].lower() in kind.model_fields


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        merged[name] = _over(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return merged
