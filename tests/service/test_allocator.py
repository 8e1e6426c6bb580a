"""The allocator of a node's process, seen by its page faults."""

import subprocess
import sys

PROGRAM = """
import resource, sys
from qmnode.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch = [bytearray(b"x") * (3 << 19) for _ in range(6)]  # 9 MiB in blocks of a batch's size
    del batch
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)


def test_memory_of_a_batch_is_used_again_without_asking_the_kernel() -> None:
    assert page_faults("kept") < page_faults("returned") / 5
