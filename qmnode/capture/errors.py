"""The exception for unreadable captures."""


class CaptureError(Exception):
    """A capture that cannot be read any further, for a fault at ``offset`` (bytes), which ``sentence`` explains."""

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(f"{sentence} (at byte {offset} of the file)")
        self.offset = offset
        self.sentence = sentence
