"""The caller of an operation, at any face."""

import os
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

    @property
    def administers(self) -> bool:
        """Whether the jobs of others may be seen and changed: by administrators, and by the program of the node."""
        return self.principal is None or bool(getattr(self.principal, "administrator", False))

    @property
    def owns_files(self) -> bool:
        """Whether the caller could read every file of the node: root, its own account, or the program around it."""
        if self.channel == "tcp":  # a token may have any name
            return False
        if self.name.startswith("uid:"):
            return self.name in ("uid:0", f"uid:{os.geteuid()}")
        return self.channel == "local"

    @property
    def does_everything(self) -> bool:
        """Whether no descriptor of a queue is asked."""
        return self.principal is None
