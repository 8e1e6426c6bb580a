"""Protocol errors, local and remote."""


class ProtocolError(Exception):
    """A rule of MS-MQQB was broken."""


class LocalProtocolError(ProtocolError):
    """The calling code requested something that the state does not allow: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that its state does not allow. The session closes (3.1.5.1.3); other sessions are
    unaffected.

    ``section`` is the section of MS-MQQB or MS-MQMQ that was broken, ``sentence`` explains how.
    """

    def __init__(self, section: str, sentence: str) -> None:
        super().__init__(section, sentence)
        self.section = section
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.sentence} ({self.section})"
