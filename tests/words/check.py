"""Judge the words of the project: what a program can see of the rules in ``rules.toml``.

``python -m tests.words.check [ROOM ...]`` lists what is found in some rooms, or in all; ``python -m tests.words.check
--lower`` takes the exceptions down to what is left.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.words.texts import ROOT, Text, all_texts, sentences

_RULES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text())
EXCEPTIONS: Final = Path(__file__).with_name("exceptions.toml")
_LIMITS: Final[dict[str, int]] = _RULES["limits"]
_HEADLESS: Final = re.compile(_RULES["headless"]["pattern"], re.IGNORECASE)
_PHRASES: Final = [(re.compile(one["pattern"], re.IGNORECASE), one["instead"]) for one in _RULES["phrase"]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule. ``rule`` is ``short``, ``long``, ``headless`` or ``phrase``."""

    rule: str
    text: Text
    advice: str
    sentence: str

    def __str__(self) -> str:
        place = f"{self.text.path.relative_to(ROOT)}:{self.text.line}"
        return f"{place}: {self.rule} {self.text.kind}: {self.sentence!r}; {self.advice}"


def judge(text: Text) -> Iterator[Finding]:
    """What is wrong with one text."""
    found = list(sentences(text.text))
    if text.kind == "docstring":
        if len(text.text.split()) < _LIMITS["words_of_a_docstring"]:
            yield Finding("short", text, "say more than the name does, or delete it", text.text)
        elif found and len(found[0].split()) < _LIMITS["words_of_a_first_sentence"]:
            yield Finding("short", text, "begin with a sentence", found[0])
    for sentence in found:
        if len(sentence.split()) > _LIMITS["words_of_a_sentence"]:
            yield Finding("long", text, "make two sentences of it", sentence)
        if sentence.rstrip("\"')").endswith("?"):
            continue
        if _HEADLESS.search(sentence):
            yield Finding("headless", text, "begin with the noun that is meant, or with a verb", sentence)
        for pattern, instead in _PHRASES:
            if pattern.search(sentence):
                yield Finding("phrase", text, f"rather {instead}", sentence)
                break


def findings() -> list[Finding]:
    """Everything that the rules find in the project."""
    return [finding for text in all_texts() for finding in judge(text)]


def counts(found: list[Finding]) -> dict[str, dict[str, int]]:
    """The number of findings by room and rule, in alphabetical order."""
    numbers = Counter((finding.text.room, finding.rule) for finding in found)
    table: dict[str, dict[str, int]] = {}
    for (room, rule), number in sorted(numbers.items()):
        table.setdefault(room, {})[rule] = number
    return table


def exceptions() -> dict[str, dict[str, int]]:
    """The most findings that each room may have, by rule."""
    table: dict[str, dict[str, int]] = tomllib.loads(EXCEPTIONS.read_text())
    return table


def lower() -> None:
    """Lower each exception to what is left in its room; none is ever raised or added."""
    now = counts(findings())
    lines = ["# Findings that a room may still have. They only shrink: python -m tests.words.check --lower\n"]
    for room, allowed in sorted(exceptions().items()):
        left = {rule: min(most, now.get(room, {}).get(rule, 0)) for rule, most in sorted(allowed.items())}
        if any(left.values()):
            lines.append(f'"{room}" = {{ {", ".join(f"{rule} = {most}" for rule, most in left.items() if most)} }}\n')
    EXCEPTIONS.write_text("".join(lines))


def main(arguments: list[str]) -> None:
    """Run the command line that the module describes."""
    if arguments == ["--lower"]:
        lower()
        return
    for finding in findings():
        if not arguments or finding.text.room in arguments:
            print(finding)


if __name__ == "__main__":
    main(sys.argv[1:])
