"""The process that writes a node's segments, so that their time and memory do not burden the node.

It reads jobs from standard input and answers each with a line of JSON on standard output: ``{"segment": NAME}`` or
``{"error": SENTENCE}``. A job is a line of JSON with the sizes of the blocks of events that follow it. The process ends
with its input.
"""

import json
import os
import sys
from typing import Any, BinaryIO

from qmnode.errors import ConfigurationError
from qmnode.export.decoding import Rows
from qmnode.export.places import Place
from qmnode.export.segment import SUFFIX, Origin, SegmentName, table_of, write_segment


def main() -> None:
    """Serve until the input ends."""
    os.nice(5)
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Execute jobs, one after the other."""
    while line := jobs.readline():
        job = json.loads(line)
        blocks = [(first, jobs.read(size)) for first, size in job["blocks"]]
        try:
            answer = {"segment": str(export(job, blocks))}
        except (OSError, ValueError, ConfigurationError) as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def export(job: dict[str, Any], blocks: list[tuple[int, bytes]]) -> SegmentName:
    """Write blocks of events as one segment, then apply the directory's limit. Raises OSError, ConfigurationError."""
    origin = Origin(**job["origin"])
    rows = Rows(job["labels"])
    rows.add_blocks(blocks)
    place = Place.open(job["target"])
    name = write_segment(place, table_of(rows.columns, origin, rows.count), origin)
    if place.is_local and job["directory_bytes"]:
        _keep_to(place, origin.node_id, job["directory_bytes"])
    return name


def _keep_to(place: Place, node_id: str, limit: int) -> None:
    """Delete the oldest segments of a node until the rest fits the limit; the newest one stays."""
    found = [
        (name, file)
        for file in place.files(SUFFIX)
        if (name := SegmentName.parse(file.name)) is not None and name.node_id == node_id
    ]
    found.sort(key=lambda one: one[0].first)
    size = sum(file.size for _, file in found)
    for _, file in found[:-1]:
        if size <= limit:
            return
        place.delete(file.path)
        size -= file.size


if __name__ == "__main__":
    main()
