"""Reads the YAML of operators. A name that is there twice is refused: YAML's libraries silently take the last."""

from typing import Any

import yaml


class DuplicateNameError(yaml.constructor.ConstructorError):
    """A name is in a mapping twice. Its text has both lines, and no other part of the file."""

    def __init__(self, name: yaml.Node, first: yaml.Node) -> None:
        self.sentence = (
            f"{name.value!r:.80} is set in line {first.start_mark.line + 1} and again in line "
            f"{name.start_mark.line + 1}: keep one of them"
        )
        super().__init__(None, None, self.sentence, name.start_mark)

    def __str__(self) -> str:
        return self.sentence


def read_yaml(text: str) -> Any:
    """The single document of a text as plain data. Raises ``yaml.YAMLError``, for a duplicate DuplicateNameError."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_duplicates(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def refuse_duplicate_names(text: str) -> None:
    """Raise as ``read_yaml`` does; the values may have tags of other readers."""
    if (root := yaml.compose(text, yaml.SafeLoader)) is not None:
        _refuse_duplicates(root)


def _refuse_duplicates(root: yaml.Node) -> None:
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            names: dict[tuple[str, str], yaml.Node] = {}
            for name, value in node.value:
                waiting += (name, value)
                if isinstance(name, yaml.ScalarNode):
                    first = names.setdefault((name.tag, name.value), name)
                    if first is not name:
                        raise DuplicateNameError(name, first)
