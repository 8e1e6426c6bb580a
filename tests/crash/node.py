"""The node as a process over a disk that forgets, and that is killed without a word."""

from tests.crash.disk import Disk
from tests.lab.nodes import NodeProcess


class Daemon(NodeProcess):
    """``qmnode run``, started and killed many times on one disk."""

    def __init__(self, disk: Disk, *, managed: bool = False, **settings: object) -> None:
        self.disk = disk
        given = {"data": str(disk.store), "computer_name": "ALPHA", **settings}
        super().__init__(disk.store.parent, environment=disk.environment, managed=managed, **given)
