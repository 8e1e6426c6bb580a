"""What the registry of certificates says when it cannot do what it was asked for."""


class CertificateError(Exception):
    """The sentence says why, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
