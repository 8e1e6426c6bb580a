"""Problems of a declaration: place, fault and remedy, collected so that all are reported at once."""

from collections.abc import Iterable
from dataclasses import dataclass

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
