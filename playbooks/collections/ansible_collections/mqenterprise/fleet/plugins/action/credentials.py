# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Credentials of a node, on the controller: its login at the directory, and the certificate of its host.

In the process of the playbook, since a program for each of hundreds of hosts takes longer to start than to work.
"""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible_collections.mqenterprise.fleet.plugins.modules import host_certificate

try:  # before Ansible forks: each host's process has them already
    import structlog

    from mqenterprise.commands.directory_option import directory_settings
    from mqenterprise.directory.admission import SETTINGS_FILE, admit, hash_clear_passwords
    from mqenterprise.directory.errors import DirectoryOperationError, WrongPassword
    from mqenterprise.directory.open_directory import EnterpriseDirectory

    EXPECTED = (*host_certificate.EXPECTED, DirectoryOperationError, OSError)
    MISSING = host_certificate.MISSING
except ImportError as error:
    EXPECTED, MISSING = (OSError,), str(error)

SILENT = 50
"""Only critical lines of the log, which has no place in the answer of a task."""


def refused(settings):
    """Whether the directory refuses the login: its computer was made anew, or was admitted from another controller."""
    try:
        with EnterpriseDirectory(directory_settings(settings)) as directory:
            directory.enterprise()
    except WrongPassword:
        return True
    except EXPECTED:
        pass
    return False


class ActionModule(ActionBase):
    """Admit the node to the directory if it cannot log in, and issue the certificate if it is due."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Return what was done, or would be."""
        result = super().run(tmp, task_vars)
        options = {
            "computer": {"type": "str"},
            "directory_file": {"type": "str"},
            "login": {"type": "path"},
            "certificate": {
                "type": "dict",
                "options": host_certificate.SPEC,
                "required_if": host_certificate.REQUIRED_IF,
            },
        }
        _validation, given = self.validate_argument_spec(options)
        if MISSING:
            return result | {"failed": True, "msg": f"the Python that runs Ansible lacks qmnode[enterprise]: {MISSING}"}
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT))
        try:
            done = [*self._admitted(given), *self._certified(given["certificate"])]
        except EXPECTED as error:
            return result | {"failed": True, "msg": str(error)}
        return result | {"changed": bool(done), "done": done}

    def _admitted(self, given):
        """Admit the computer, if a login is asked for and there is none, or one that is refused."""
        if not given["login"]:
            return
        folder = Path(given["login"])
        if (folder / SETTINGS_FILE).exists() and not refused(folder / SETTINGS_FILE):
            return
        yield f"{given['computer']} is admitted to the directory"
        if self._task.check_mode:
            return
        file = given["directory_file"]
        with EnterpriseDirectory(directory_settings(Path(file) if file else None)) as directory:
            admit(directory, given["computer"], folder, new=False)
            hash_clear_passwords(directory.connection)

    def _certified(self, given):
        """Issue the certificate, if one is asked for and due."""
        if not given:
            return
        reason = host_certificate.work(given, self._task.check_mode)
        if reason is not None:
            yield f"a certificate is issued: {reason}"
