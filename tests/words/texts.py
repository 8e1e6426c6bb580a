"""The prose of the project, piece by piece: docstrings, comments, errors, help texts, Ansible's files and the pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("qmnode", "mqenterprise", "playbooks")
PAGES: Final = ("*.md", "docs/*.md", "playbooks/**/*.md")

_SENTENCE_END: Final = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[`*A-Z:])")
_DIRECTIVE: Final = re.compile(r"noqa|type: ?ignore|fmt: ?(on|off|skip)|pragma|!/")
_NOT_PROSE: Final = re.compile(r"^(\s{4,}|>>>|\||\$ |#|\S+( \S+)*\s{3,}\S)")
_YAML_COMMENT: Final = re.compile(r"\s*# ?(?!!)(.*\S)")
_YAML_TEXT: Final = re.compile(
    r"\s*(?:- )?(?:name|fail_msg|success_msg|description|short_description): (?![|>\[{&*])(.*\S)"
)
_ITEM: Final = re.compile(r"^\s*([-*]|\d+\.)\s+")
_STRING_OR_COMMENT: Final = re.compile(
    r"""\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(#[^\n]*)""",
    re.DOTALL,
)
"""A string, in which a # begins nothing, or a comment: all that one needs of the language to find comments."""


@dataclass(frozen=True, slots=True)
class Text:
    """A docstring, comment, error text or page paragraph, and where it is."""

    kind: str
    path: Path
    line: int
    text: str

    @property
    def room(self) -> str:
        """The folder that answers for the text, such as ``qmnode/model``; ``pages`` for Markdown."""
        if self.kind == "page":
            return "pages"
        folders = self.path.relative_to(ROOT).parts[:-1]
        return "/".join(folders[: 1 if folders[0] == "playbooks" else 2])


def all_texts() -> Iterator[Text]:
    """Every text that the words test judges."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from texts_of_code(path, path.read_text())
    for path in sorted((ROOT / "playbooks").rglob("*.yml")):
        yield from texts_of_yaml(path, path.read_text())
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            for line, text in paragraphs(path.read_text()):
                yield Text("page", path, line, text)


def texts_of_code(path: Path, source: str) -> Iterator[Text]:
    """The docstrings, comments and error texts of one module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text("docstring", path, node.lineno, _cleaned(node.value.value))
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                if message := _literal(argument):
                    yield Text("error", path, argument.lineno, message)
        elif isinstance(node, ast.Call):
            for argument in _helps(node):
                if message := _literal(argument):
                    yield Text("help", path, argument.lineno, message)
    for line, comment in _comments(source):
        yield Text("comment", path, line, comment)


def texts_of_yaml(path: Path, source: str) -> Iterator[Text]:
    """The names of plays and tasks, their messages and descriptions, and the comments of one file of Ansible's."""
    found: list[tuple[int, str]] = []
    last = -1
    for number, line in enumerate(source.splitlines(), 1):
        if comment := _YAML_COMMENT.match(line):
            if number == last + 1:
                found[-1] = (found[-1][0], f"{found[-1][1]} {comment[1]}")
            else:
                found.append((number, comment[1]))
            last = number
        elif text := _YAML_TEXT.match(line):
            yield Text("task", path, number, text[1].strip("'\""))
    for number, comment_text in found:
        yield Text("comment", path, number, comment_text)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text; code, tables and headings are left out."""
    for _, paragraph in paragraphs(text):
        yield from (sentence.strip() for sentence in _SENTENCE_END.split(paragraph) if sentence.strip())


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The first line number and the prose of each paragraph and list item."""
    collected: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        ends = not line.strip() or fence or fenced or bool(_NOT_PROSE.match(line)) or bool(_ITEM.match(line))
        if ends and collected:
            yield start, " ".join(collected)
            collected = []
        if not ends or (_ITEM.match(line) and not fenced):
            start = start if collected else number
            collected.append(_ITEM.sub("", line).strip())


def _cleaned(docstring: str) -> str:
    first, *others = docstring.strip().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first, *(line[margin:] for line in others)])


def _helps(call: ast.Call) -> Iterator[ast.expr]:
    """The help texts in a call: of an option, of a group of commands, or of a row in the table of commands."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "help")
    if isinstance(call.func, ast.Name) and call.func.id == "Row":
        yield from call.args[1:2]


def _literal(node: ast.expr) -> str:
    """The words of a string expression, with ``X`` for each value that is formatted into it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) if isinstance(part, ast.Constant) else "X" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case _:
            return ""


def _comments(source: str) -> Iterable[tuple[int, str]]:
    """Comments, with those on lines of their own that follow each other as one."""
    found: list[tuple[int, str]] = []
    last, line, counted = -1, 1, 0
    for match in _STRING_OR_COMMENT.finditer(source):
        if match[1] is None or _DIRECTIVE.search(match[1]):
            continue
        start = match.start()
        line, counted = line + source.count("\n", counted, start), start
        alone = not source[source.rfind("\n", 0, start) + 1 : start].strip()
        text = match[1].lstrip("# ")
        if alone and line == last + 1:
            found[-1] = (found[-1][0], f"{found[-1][1]} {text}")
        else:
            found.append((line, text))
        last = line if alone else -1
    return found
