"""``qmnode run`` and ``qmnode status`` without the library that reads command lines.

It takes longer to load than ``status`` takes in all, and these two are started by service managers, watchdogs and
loops. Their plain command lines are read here; ``--help`` and all mistakes go the common way.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from qmnode.commands.error_line import complain
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

EXIT_CODES: Final = {
    ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE: 3,
    ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE: 3,
    ErrorCode.MQ_ERROR_IO_TIMEOUT: 4,
}
EXTRAS: Final = {
    "boto3": "aws",
    "deltalake": "pipeline",
    "dns": "enterprise",
    "gssapi": "kerberos",
    "httpx": "enterprise",
    "ldap3": "enterprise",
    "pandas": "pipeline",
    "proton": "amqp",
    "pyarrow": "export",
    "pyspark": "pipeline",
    "spnego": "rpc",
}
"""The extra that brings a package which only some commands need."""
_SHORT: Final = {"-c": "--config"}


def quick(arguments: Sequence[str]) -> int | None:
    """Do what a plain command line asks for, and return the exit code. None: it is not one of these."""
    match arguments:
        case ["run", *options] if (found := _read(options, {"--config"}, set())) is not None:
            return _run(found)
        case ["status", *options] if (
            found := _read(options, {"--config", "--socket", "--wait"}, {"--json"})
        ) is not None and _is_wait(found.get("--wait", "0")):
            return _status(found)
    return None


def _read(options: Sequence[str], with_value: set[str], flags: set[str]) -> dict[str, str] | None:
    """Options by name. None when one is unknown, given twice or has no value: others say what is wrong."""
    found: dict[str, str] = {}
    rest = iter(options)
    for option in rest:
        name, equals, value = option.partition("=")
        name = _SHORT.get(name, name) if not equals else name
        if name in found:
            return None
        if name in flags and not equals:
            found[name] = ""
        elif name in with_value:
            taken = value if equals else next(rest, "")
            if not taken or taken.startswith("-"):
                return None
            found[name] = taken
        else:
            return None
    return found


def _is_wait(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()


def _run(options: dict[str, str]) -> int:
    from qmnode.commands.foreground import run_node

    return run_node(_path(options.get("--config")))


def _status(options: dict[str, str]) -> int:
    from qmnode.commands.state import show_status

    socket = options.get("--socket")
    wait = float(options.get("--wait", "0"))
    return exit_code(lambda: show_status(_path(socket), _path(options.get("--config")), wait, "--json" in options))


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None


def exit_code(work: Callable[[], int]) -> int:
    """Do something to its exit code: 0 done, 1 failed, 2 wrong usage, 3 no node, 4 no message in time."""
    try:
        code = work()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except MessageQueuingError as error:
        complain(str(error))
        return EXIT_CODES.get(error.code, 1)
    except ConfigurationError as error:
        complain(str(error))
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        complain(f"this needs the package {package}: pip install 'qmnode[{EXTRAS[package]}]'")
        return 1
    except BrokenPipeError:
        _drop_output()  # its reader has enough
        return 1
    except OSError as error:
        if error.filename is not None:
            complain(f"{os.fsdecode(error.filename)}: {error.strerror}")
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
            complain(f"the output cannot be written: {error.strerror}")
            _drop_output()
        else:
            raise
        return 1
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """Python would complain at exit about what it cannot write any more."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
