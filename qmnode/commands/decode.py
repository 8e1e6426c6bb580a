"""``qmnode decode``: explain the packets in a capture, a hex dump or plain bytes."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console

from qmnode.capture.errors import CaptureError
from qmnode.capture.explain import Explained, Explainer
from qmnode.capture.packet_as_json import document
from qmnode.capture.packet_as_text import Body, plain, summary, tree
from qmnode.capture.read_files import PING_PORT, SESSION_PORT, Format, Notice, SourceOptions, read_packets
from qmnode.structures.text import printable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: qmnode decode capture.pcapng --summary")
def decode(
    file: Annotated[
        Path, typer.Argument(help="pcap, pcapng, hex dump or plain bytes; - is standard input.", metavar="FILE|-")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document per packet and line; docs/decode.md lists the keys.")
    ] = False,
    summarize: Annotated[bool, typer.Option("--summary", help="One line per packet.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Name each MUST that a packet breaks, and exit with 1 if one does.")
    ] = False,
    body: Annotated[
        Body | None,
        typer.Option(
            "--body",
            "--show",
            help="How bodies are shown; in JSON, all but short add the bytes. "
            "Default: decoded at a terminal, else short.",
        ),
    ] = None,
    file_format: Annotated[
        Format, typer.Option("--format", help="Kind of the file; recognised by its contents if not given.")
    ] = Format.AUTO,
    port: Annotated[list[int], typer.Option(min=1, max=65535, help="TCP port of sessions; may be given again.")] = [  # noqa: B006
        SESSION_PORT
    ],
    ping_port: Annotated[list[int], typer.Option(min=1, max=65535, help="UDP port of pings; may be given again.")] = [  # noqa: B006
        PING_PORT
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this number of packets.")] = None,
) -> None:
    """Explain the packets of Message Queuing in a capture, a hex dump or plain bytes.

    Fields have the names of MS-MQMQ and MS-MQQB, with their values, meanings, offsets and sections. Broken packets
    are reported, and decoding continues with the next packet. TCP streams are put together from their segments.

    Exit codes: 0 done; 1 the file cannot be read, or --check found a broken packet; 2 wrong usage.
    """
    if body is None:
        body = Body.DECODED if sys.stdout.isatty() and not as_json else Body.SHORT
    options = SourceOptions(file_format, frozenset(port), frozenset(ping_port))
    show = _printer(as_json=as_json, summarize=summarize, check=check, body=body)
    broken = count = 0
    failure: str | None = None
    explainer = Explainer()
    try:
        with _opened(file) as data:
            for item in read_packets(data, options):
                if isinstance(item, Notice):
                    _say(f"frame {item.frame}: {item.sentence}")
                    continue
                count += 1
                explained = explainer.explain(item)
                broken += explained.broken
                with _writing():
                    show(explained, count)
                if count == limit:
                    break
        with _writing():
            sys.stdout.flush()
    except CaptureError as error:
        failure = str(error)
    except _OutputError as error:
        failure = f"the output cannot be written: {error}"
        _drop_output()
    except BrokenPipeError:
        raise  # the reader of the output has closed it
    except OSError as error:
        failure = f"{file} cannot be read: {error.strerror or error}"
    if failure:
        _say(failure)
    elif not count:
        _say("there are no packets in it")
    elif check:
        _say(f"{count} packet{'' if count == 1 else 's'}, {broken} of them broken")
    if failure or (check and broken):
        raise typer.Exit(1)


class _OutputError(Exception):
    """Standard output cannot be written, through no fault of the file that is read."""


def _drop_output() -> None:
    """Buffered output is dropped: Python would fail on it again at exit, with an exit code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _OutputError(error.strerror or str(error)) from error


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
    else:
        with file.open("rb") as data:
            yield data


def _say(sentence: str) -> None:
    print(f"qmnode decode: {printable(sentence)}", file=sys.stderr)


def _printer(*, as_json: bool, summarize: bool, check: bool, body: Body) -> Callable[[Explained, int], None]:
    """The work on each packet."""
    console = Console(highlight=False, emoji=False, markup=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may have letters that the output has not

    def show(explained: Explained, number: int) -> None:
        if as_json:
            print(json.dumps(document(explained, number, body=body is not Body.SHORT, decoded=body is Body.DECODED)))
        elif summarize or (check and explained.broken):
            line = summary(explained, number)
            console.print(line, soft_wrap=True) if console.is_terminal else print(line)
        elif not check:
            found = tree(explained, number, body)
            console.print(found) if console.is_terminal else print("\n".join(plain(found)))

    return show
