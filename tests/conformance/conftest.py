"""Queue managers on which tests of this folder observe what the specifications demand."""

from tests.model.conftest import clock, node, qm
from tests.transport.conftest import pair

__all__ = ["clock", "node", "pair", "qm"]
