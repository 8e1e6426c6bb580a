"""Reads the YAML of operators. A name that is there twice is refused: YAML's libraries silently take the last."""

from pathlib import Path
from typing import Any, Final

import yaml

DEEPEST: Final = 100
"""Levels of lists and mappings in each other."""
MOST_REPEATED: Final = 1_000_000
"""Values that aliases may add: ten lines can stand for more than any machine can hold."""


class RefusedError(yaml.constructor.ConstructorError):
    """YAML that is refused. Its text is the reason, with no other part of the file than a name."""

    def __init__(self, sentence: str, mark: yaml.Mark | None) -> None:
        self.sentence = sentence
        super().__init__(None, None, sentence, mark)

    def __str__(self) -> str:
        return self.sentence


class DuplicateNameError(RefusedError):
    """A name is in a mapping twice. Its text has both lines."""

    def __init__(self, name: yaml.Node, first: yaml.Node) -> None:
        sentence = (
            f"{name.value!r:.80} is set in line {first.start_mark.line + 1} and again in line "
            f"{name.start_mark.line + 1}: keep one of them"
        )
        super().__init__(sentence, name.start_mark)


def settings_in(file: Path) -> Any:
    """The settings in a YAML file as plain data. Raises ValueError with the file and what is wrong with it."""
    try:
        return read_yaml(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except DuplicateNameError as error:
        raise ValueError(f"{file}: {error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML: {' '.join(str(error).split())}") from None


def read_yaml(text: str) -> Any:
    """The single document of a text as plain data. Raises ``yaml.YAMLError``, :class:`RefusedError` among them."""
    loader = yaml.SafeLoader(text)
    try:
        root = _composed(loader)
        if root is None:
            return None
        _check(root)
        try:
            return loader.construct_document(root)
        except (ValueError, LookupError, TypeError, OverflowError) as error:  # such as the date 2026-13-45
            raise RefusedError(f"a value is none of its kind: {error!s:.200}", root.start_mark) from None
    finally:
        loader.dispose()


def refuse_duplicate_names(text: str) -> None:
    """Raise as ``read_yaml`` does; the values may have tags of other readers."""
    loader = yaml.SafeLoader(text)
    try:
        if (root := _composed(loader)) is not None:
            _check(root)
    finally:
        loader.dispose()


def _composed(loader: yaml.SafeLoader) -> yaml.Node | None:
    try:
        return loader.get_single_node()
    except RecursionError:
        raise _too_deep(loader.get_mark()) from None


def _too_deep(mark: yaml.Mark | None) -> RefusedError:
    return RefusedError(f"lists and mappings stand in each other more than {DEEPEST} deep", mark)


def _check(root: yaml.Node) -> None:
    """Refuse names that are there twice, and what aliases make of a text: values in themselves, deep or without end."""
    sizes: dict[int, tuple[int, int]] = {}
    """Of each node, the values that it stands for with all aliases, and the levels of them."""
    around: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            around.remove(id(node))
            inside = [sizes[id(one)] for one in _inside(node)]
            size, depth = 1 + sum(size for size, _ in inside), 1 + max((depth for _, depth in inside), default=0)
            if depth > DEEPEST:
                raise _too_deep(node.start_mark)
            if size > len(sizes) + MOST_REPEATED:
                raise RefusedError(f"aliases stand for more than {MOST_REPEATED:,} values", node.start_mark)
            sizes[id(node)] = size, depth
        elif id(node) in around:
            raise RefusedError("an alias stands in the value that it means", node.start_mark)
        elif id(node) not in sizes:
            _refuse_duplicates(node)
            around.add(id(node))
            waiting += ((node, True), *((one, False) for one in _inside(node)))


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _refuse_duplicates(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        names: dict[tuple[str, str], yaml.Node] = {}
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                first = names.setdefault((name.tag, name.value), name)
                if first is not name:
                    raise DuplicateNameError(name, first)
