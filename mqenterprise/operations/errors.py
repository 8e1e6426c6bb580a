"""The errors of operations over nodes."""


class OperationsError(Exception):
    """A command over nodes that cannot begin; the sentence says why and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class NodeError(Exception):
    """One node that is down or refuses; the work at the other nodes goes on. The sentence does not name the node."""

    def __init__(self, sentence: str, name: str = "", *, unavailable: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.lacks_queue = name == "MQ_ERROR_QUEUE_NOT_FOUND"
        """Whether the node answered that it has no such queue."""
        self.unavailable = unavailable
        """Whether the node gave no answer; it may do so later."""
