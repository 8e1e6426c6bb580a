"""What the YAML of operators may not have: values without end, and values that are none of their kind."""

import pytest

from qmnode.settings.yaml_text import RefusedError, read_yaml


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 5_000, "deep"),
        ("[" * 101 + "]" * 101, "deep"),
        ("a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60, "deep"),
        ("&a [*a]", "in the value that it means"),
        ("a: &a {b: [c, {d: *a}]}", "in the value that it means"),
        ("- &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"- &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
        ), "more than 1,000,000 values"),
        ("- &a {x: 1}\n" + "".join(
            f"- &{new} {{<<: [{','.join([f'*{old}'] * 40)}]}}\n" for old, new in zip("abcde", "bcdef", strict=True)
        ), "more than 1,000,000 values"),
        ("2026-13-45", "month"),
        ("!!bool perhaps", "none of its kind"),
        ("!!int ''", "none of its kind"),
    ],
)  # fmt: skip
def test_a_text_that_stands_for_too_much_or_for_nothing_is_refused(text: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        read_yaml(text)
    assert refused.value.problem_mark is not None and len(str(refused.value)) < 300


def test_aliases_that_stand_for_less_are_values() -> None:
    text = "a: &a [send, receive]\nqueues:\n" + "- {name: x, access: *a}\n" * 200
    assert read_yaml(text)["queues"][199]["access"] == ["send", "receive"]
    assert read_yaml("[" * 99 + "]" * 99)
