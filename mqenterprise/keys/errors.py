"""The error of a rotation that cannot continue."""


class KeyRotationError(Exception):
    """A step that must not or cannot be taken now; the sentence says why and what to do. Holds no part of a key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
