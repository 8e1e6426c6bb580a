"""How operators name queues."""

import pytest

from qmnode.administration.queue_names import format_name, queue_name


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", r".\private$\orders"),
        ("orders;journal", r".\private$\orders;journal"),
        (r"private$\orders", r".\private$\orders"),
        (r"PRIVATE$\orders", r".\PRIVATE$\orders"),
        (r".\private$\orders", r".\private$\orders"),
        (r".\public", r".\public"),
        (r"beta\private$\orders", r"beta\private$\orders"),
        ("system$;deadletter", r".\system$;deadletter"),
        (r"DIRECT=OS:beta\private$\orders", r"DIRECT=OS:beta\private$\orders"),
        ("a=b", "a=b"),
        (r".\private$\a=b", r".\private$\a=b"),
    ],
)
def test_short_names_mean_private_queues(text: str, path: str) -> None:
    assert queue_name(text) == path


def test_every_queue_has_a_format_name() -> None:
    assert format_name("orders") == r"DIRECT=OS:.\private$\orders"
    assert format_name("PUBLIC=7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e") == "PUBLIC=7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"
