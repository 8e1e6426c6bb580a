"""The exception for malformed bytes."""


class PacketError(ValueError):
    """Bytes, or values for bytes, that break a layout of the specifications.

    ``structure`` and ``field`` are the specification's names, ``offset`` counts bytes from the start of the buffer that
    was parsed (None when a value was built rather than parsed), ``sentence`` explains the fault.
    """

    def __init__(self, structure: str, field: str, offset: int | None, sentence: str) -> None:
        super().__init__(structure, field, offset, sentence)
        self.structure = structure
        self.field = field
        self.offset = offset
        self.sentence = sentence

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.structure}.{self.field}{where}: {self.sentence}"
