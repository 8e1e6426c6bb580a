"""The version of the program."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def program_version() -> str:
    """As it was installed; ``0`` when it runs from its source without being installed."""
    try:
        return version("qmnode")
    except PackageNotFoundError:
        return "0"
