"""Errors of the registry of certificates."""


class CertificateError(Exception):
    """The sentence says why, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
