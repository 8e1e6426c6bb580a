# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Check a node's settings on the controller, in the process of the playbook: hundreds of hosts share one start."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible_collections.mqenterprise.fleet.plugins.plugin_utils._templates import keep_compiled

PROGRAM = Path(__file__).resolve().parents[2] / "roles/queue_manager/files/check_settings.py"
ADVICE = (
    "Set the declaration, queue_manager_settings, queue_manager_tokens or queue_manager_management_listen right, "
    "then run the playbook again."
)


def load():
    """Return the program as a module."""
    found = importlib.util.spec_from_file_location("mqenterprise_check_settings", PROGRAM)
    program = importlib.util.module_from_spec(found)
    found.loader.exec_module(program)
    return program


keep_compiled()  # before Ansible forks, as all below
try:
    CHECK = load()
    MISSING = ""
except ImportError as error:
    CHECK, MISSING = None, str(error)


def seen(given):
    """Return what later tasks have to know of settings, which take long to put together."""
    settings = given["settings"]
    bridges = [*(settings.get("bridges") or {}), *(given["document"].get("bridges") or {})]
    return {
        "amqp": bool((settings.get("amqp") or {}).get("enabled") or bridges),
        "tls_mode": ((settings.get("security") or {}).get("tls") or {}).get("mode") or "",
    }


class ActionModule(ActionBase):
    """Report the faults of settings, and keep silent about the settings."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Fail with all that is wrong."""
        result = super().run(tmp, task_vars) | {"changed": False}
        options = {
            "given": {"type": "str", "required": True, "no_log": True},
            "host": {"type": "str", "required": True},
        }
        _validation, asked = self.validate_argument_spec(options)
        given = json.loads(asked["given"])
        fault = MISSING or CHECK.fault_of(given)
        if not fault:
            return result | seen(given)
        told = f"The node of {asked['host']} would not start with its settings, and nothing was done to it"
        return result | {"failed": True, "msg": f"{told}: {fault}. {ADVICE}"}
