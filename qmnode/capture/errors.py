"""The exception for unreadable captures."""


class CaptureError(Exception):
    """A capture that cannot be read any further.

    ``offset`` is the position in the file, in bytes; ``sentence`` explains the fault there.
    """

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(f"{sentence} (at byte {offset} of the file)")
        self.offset = offset
        self.sentence = sentence
