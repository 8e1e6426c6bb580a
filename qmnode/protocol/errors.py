"""Who broke the protocol: the caller here, or the peer there."""


class ProtocolError(Exception):
    """A rule of MS-MQQB was broken."""


class LocalProtocolError(ProtocolError):
    """The code that drives a machine asked for something that its state does not allow. A bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what its state does not allow. The session closes (3.1.5.1.3), others do not notice.

    ``section`` is the section of MS-MQQB or MS-MQMQ that was broken, ``sentence`` says how.
    """

    def __init__(self, section: str, sentence: str) -> None:
        super().__init__(section, sentence)
        self.section = section
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.sentence} ({self.section})"
