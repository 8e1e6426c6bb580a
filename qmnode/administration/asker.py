"""The caller of an operation, at any face."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asker:
    """A person or a program, as the face knows it."""

    name: str
    """For the audit log and the records of jobs: ``uid:1000``, the name of a token."""
    channel: str = "local"
    principal: object = None
    """For access checks of queues; None may do everything."""
    reads_bodies: bool = True
