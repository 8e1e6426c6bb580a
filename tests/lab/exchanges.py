"""Exchanges of Ansible with hosts: what was asked, the answer, and how long it took.

One host's answer is played for others that are asked the same: in a question, the host's own name, address and
identifier have a mark each. Connection plugins import this in each process of Ansible, so that it imports little.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULE_LINE = re.compile(rb"^(ansible_module|params)=(.*),$", re.MULTILINE)
PROGRAM = re.compile(r"([a-z_]+\.py)\b")
OPTIONS = """
      lab_name:
        description: The name of the host.
        vars: [{name: inventory_hostname}]
      lab_identifier:
        description: The identifier of its queue manager.
        vars: [{name: msmq_identifier}]
"""
"""Of both connection plugins."""


def identity(connection: Any) -> dict[str, str]:
    """What a host is called, by mark."""
    name = str(connection.get_option("lab_name"))
    return {
        "<name>": name,
        "<NAME>": name.upper(),
        "<address>": str(connection.get_option("host")),
        "<identifier>": str(connection.get_option("lab_identifier") or "").lower(),
    }


def exchanged(text: str, old: Mapping[str, str]) -> str:
    """The text with other words in place of the old ones, wherever those stand alone."""
    words = "|".join(re.escape(word) for word in old if word)
    return re.sub(rf"(?<![\w.-])(?:{words})(?![\w-]|\.\d)", lambda found: old[found[0]], text)


def question(command: str, given: bytes | None, host: Mapping[str, str]) -> tuple[str, str]:
    """What is run, and all that is asked as text.

    It says nothing of a module but its arguments, since the controller writes the time into each archive, and nothing
    of what is secret, which is another for each host.
    """
    marks = {word: mark for mark, word in host.items()}
    if module := dict(MODULE_LINE.findall(given or b"")):
        name = ast.literal_eval(module[b"ansible_module"].decode())
        asked: Any = json.loads(ast.literal_eval(module[b"params"].decode()))
    else:
        found = PROGRAM.search(command)
        name, asked = found[1] if found else command, (given or b"").decode()
    return name, json.dumps(_marked([command, asked], marks), sort_keys=True, indent=1)


def _marked(value: Any, marks: Mapping[str, str]) -> Any:
    match value:
        case str():
            return exchanged(value, marks)
        case list():
            return [_marked(each, marks) for each in value]
        case dict():
            secret = value.get("secret") is True
            return {key: "" if secret and key == "content" else _marked(each, marks) for key, each in value.items()}
    return value
