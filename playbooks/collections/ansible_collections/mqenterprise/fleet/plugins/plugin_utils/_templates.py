# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Templates that are compiled once for all hosts.

Ansible runs each task of a host in a process of its own, which compiles every template that it meets: more than half of
the controller's work. Here each is compiled once, and kept in the run's own folder of temporary files, which Ansible
removes at its end. And none of these processes looks for garbage among what all of them share, since it would get a
copy of each page that it looks at.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
from functools import wraps
from hashlib import sha256
from pathlib import Path

import jinja2
from ansible import constants

OPTIONS = (
    "block_start_string", "block_end_string", "variable_start_string", "variable_end_string", "comment_start_string",
    "comment_end_string", "line_statement_prefix", "line_comment_prefix", "trim_blocks", "lstrip_blocks",
    "newline_sequence", "keep_trailing_newline",
)  # fmt: skip
"""Options by which Jinja reads a template, as in its own cache of lexers."""
_KNOWN = {}


def is_plain(environment, source):
    """Whether the code depends on nothing but the text and the options: Ansible treats backslashes by the place."""
    ours = type(environment).__module__.startswith("ansible._internal._templating")
    return ours and isinstance(source, str) and "\\" not in source and not environment.extensions


def read(path):
    """The code that another process has kept; None if none has."""
    try:
        return marshal.loads(path.read_bytes())  # noqa: S302  this run's own
    except FileNotFoundError:
        return None


def write(path, code):
    """Keep the code for the other processes. Without room for it they compile it themselves."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_bytes(marshal.dumps(code))
        beside.replace(path)


def keep_compiled():
    """Let Jinja look for what is compiled already, in this process and in those that it starts."""
    compiled = jinja2.Environment.compile
    if hasattr(compiled, "__wrapped__"):
        return
    gc.freeze()

    @wraps(compiled)
    def compile_once(self, source, *arguments, **options):
        if arguments or options or not is_plain(self, source):
            return compiled(self, source, *arguments, **options)
        text = repr(([getattr(self, name) for name in OPTIONS], str(source)))
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if key not in _KNOWN:
            path = Path(constants.DEFAULT_LOCAL_TMP) / "templates" / key
            code = read(path)
            if code is None:
                code = compiled(self, source)
                write(path, code)
            _KNOWN[key] = code
        return _KNOWN[key]

    jinja2.Environment.compile = compile_once
