"""Decode YAML files, and describe faults of encoding and syntax in words, each with its line."""

import re
from typing import Any, Final

import yaml

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
