"""``python -m tests.lab.demo [--keep] [--plain]``, and ``python -m tests.lab.demo stop`` after ``--keep``.

The exit code is 0 when every promise was kept, 1 when one was broken, 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from tests.lab.demo.chapters import CHAPTERS, Story
from tests.lab.demo.declared import MIDDLE, PICTURE, RECEIVER, SENDER, declaration
from tests.lab.demo.telling import Teller
from tests.lab.enterprise import PROJECT, LabEnterprise
from tests.lab.hosts import why_no_hosts
from tests.lab.network import FOLDERS, PREFIX, hand_over, remove

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = "kept-demo"
"""The file that says what a lab was left for: its text is the project's folder, whose ``stop`` removes it."""
INTERRUPTED = 130
UNSEEN_WIDTH = 160
"""Characters in a line when nobody looks."""


def main() -> int:
    """Tell the story, or remove what one has left."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.demo", description="From a declaration to an enterprise."
    )
    parser.add_argument(
        "action", nargs="?", choices=("run", "stop"), default="run", help="stop: remove what --keep left"
    )
    parser.add_argument("--keep", action="store_true", help="leave it running, and say how to look at it and stop it")
    parser.add_argument("--plain", action="store_true", help="plain processes on loopback addresses, also as root")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNSEEN_WIDTH)
    if arguments.action == "stop":
        return _stop(console)
    return _run(console, keep=arguments.keep, plain=arguments.plain)


def _run(console: Console, *, keep: bool, plain: bool) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    teller = Teller(console)
    why = "--plain was given" if plain else why_no_hosts()
    if why is None:
        console.print("Six hosts with systemd and ssh, in network namespaces of this machine.")
    else:
        console.print(f"Six nodes as plain processes on loopback addresses, without hosts of their own: {why}.")
    console.print(PICTURE, markup=False)
    enterprise = None
    kept = False
    try:
        with _uninterrupted():
            enterprise = LabEnterprise(declaration(), real=why is None)
        asyncio.run(_tell(teller, enterprise, keep=keep))
        kept = teller.conclude(enterprise.hosts.kind, len(CHAPTERS))
        if keep:
            _leave(console, enterprise)
    except KeyboardInterrupt:
        console.print("Interrupted: everything is removed.")
        return INTERRUPTED
    finally:
        if enterprise is not None and not (enterprise.folder / KEPT).exists():
            with _uninterrupted():
                remove(enterprise.hosts.folder)
    return 0 if kept else 1


async def _tell(teller: Teller, enterprise: LabEnterprise, *, keep: bool) -> None:
    story = Story(enterprise, teller.note)
    complete = False
    try:
        for chapter in CHAPTERS:
            if not await teller.tell(chapter.doing, chapter.promise, chapter.tell(story)) and chapter.vital:
                break
        complete = True
    finally:
        if not (complete and keep):
            # Also ends a playbook that still runs in a thread, which would be waited for.
            with _uninterrupted():
                enterprise.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Interruptions come after the block, so that nothing is left half made or half removed."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _leave(console: Console, enterprise: LabEnterprise) -> None:
    hand_over(enterprise.hosts.folder)
    (enterprise.folder / KEPT).write_text(str(PROJECT))
    lines = [
        "",
        "It is left running. The operator's folder, and whose commands are meant:",
        f"  source {enterprise.write_environment(SENDER)}",
        "Then every command and playbook of the README works as it is written there, for example:",
        "  mqenterprise show",
        f"  mqenterprise route explain {SENDER} {RECEIVER}",
        "  mqenterprise message find '*' --all                # at every node, over TLS, with a token",
        "  ansible-playbook playbooks/verify.yml",
        f"  qmnode status                                      # of {SENDER}",
        f"  qmnode queue list --socket {enterprise.socket(RECEIVER)}",
    ]
    if enterprise.is_real:
        lines.append(f"  ssh -F {enterprise.lab.ssh_config} {MIDDLE} journalctl -u qmnode")
    lines += [
        f"  ls {enterprise.folder}/*.log                       # what Ansible said",
        "The console, in a browser:",
        f"  {enterprise.start_console()}",
        f"  sign in with the token {enterprise.token}",
        f"  and look at the map, the queue payments of {RECEIVER}, Routes from {SENDER} to {RECEIVER}, Plan and Audit",
        "Stop and remove it: make demo DEMO=stop, in the project's folder",
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _stop(console: Console) -> int:
    kept = FOLDERS.glob(f"{PREFIX}*/controller/{KEPT}")
    found = [file.parent.parent for file in kept if file.read_text() in ("", str(PROJECT))]
    for folder in found:
        console.print(f"Removing {folder} and what runs in it.")
        with _uninterrupted():
            remove(folder)
    if not found:
        console.print("No demo was left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
