# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Shared by all modules: the options that name the directory, its opening, and errors with the next step."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    import structlog

    from mqenterprise.certificates.registry import CertificateError
    from mqenterprise.directory.chosen_directory import load_settings, settings_from
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.keys.settings import KeyRotationError
    from mqenterprise.operations.errors import NodeError, OperationsError
    from mqenterprise.survey.estate import SurveyError
    from mqenterprise.topology.apply import ApplyError
    from mqenterprise.topology.ldap_target import LdapTarget
    from mqenterprise.topology.plan import FixedError, TargetError
    from mqenterprise.topology.problems import DeclarationError
    from mqenterprise.topology.some_objects import NotPossible
    from qmnode.directory.port import DirectoryOperationError
    from qmnode.security.errors import KeyStoreError
    from qmnode.security.private_files import forbid_core_dumps

    EXPECTED = (
        ApplyError,
        CertificateError,
        DeclarationError,
        DirectoryOperationError,
        FixedError,
        KeyRotationError,
        KeyStoreError,
        NodeError,
        NotPossible,
        OperationsError,
        SurveyError,
        TargetError,
        OSError,
    )
    MISSING = None
except ImportError:
    EXPECTED = ()
    MISSING = traceback.format_exc()

CONNECTION = {
    # Without both the environment is asked; a fallback here would contradict `directory`.
    "directory_file": {"type": "path"},
    "directory": {
        "type": "dict",
        "no_log": True,
        "options": {
            "servers": {"type": "list", "elements": "str"},
            "domain": {"type": "str"},
            "site": {"type": "str"},
            "nameservers": {"type": "list", "elements": "str"},
            "root": {"type": "str"},
            "kind": {"type": "str", "choices": ["auto", "openldap", "active-directory"]},
            "bind": {"type": "str", "choices": ["anonymous", "simple", "external", "gssapi"]},
            "user": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "password_file": {"type": "path", "no_log": False},
            "start_tls": {"type": "bool"},
            "verify": {"type": "bool"},
            "ca_file": {"type": "path"},
            "tls_name": {"type": "str"},
            "client_certificate": {"type": "path"},
            "client_key": {"type": "path", "no_log": False},
            "connect_timeout": {"type": "float"},
            "operation_timeout": {"type": "float"},
        },
    },
}
WAITING = {"wait": {"type": "float", "default": 60.0}}


class EnterpriseModule:
    """A module over an open directory. Subclasses implement :meth:`work`, which returns the results."""

    options = {}
    """The module's own options."""
    rules = {}
    """More arguments for ``AnsibleModule``: required_if and the like."""
    plans = False
    """Whether the module changes the directory by a plan, and may have to wait for another one that does."""

    def __init__(self):
        self.module = AnsibleModule(
            argument_spec=CONNECTION | (WAITING if self.plans else {}) | self.options,
            supports_check_mode=True,
            mutually_exclusive=[("directory_file", "directory"), *self.rules.get("mutually_exclusive", ())],
            **{name: rule for name, rule in self.rules.items() if name != "mutually_exclusive"},
        )
        self._show_all_but_the_password()
        self.given = {name: self.module.params[name] for name in self.options}

    def _show_all_but_the_password(self):
        """Mask only the password of ``directory`` in the results.

        The option is ``no_log``, since Ansible logs a dict as Python writes it, and misses a password with a backslash
        in that. It would mask the names of servers and domains everywhere.
        """
        given = self.module.params["directory"] or {}
        masked = self.module.no_log_values
        for value in given.values():
            masked.difference_update(map(str, value if isinstance(value, list) else [value]))
        if given.get("password"):
            masked.add(given["password"])

    @classmethod
    def main(cls):
        """Run, and end the process as Ansible expects."""
        cls().run()

    def run(self):
        if MISSING is not None:
            self.module.fail_json(
                msg=missing_required_lib(
                    "qmnode[enterprise]",
                    reason="and delegate the task to the controller (delegate_to: localhost) unless each host has it",
                ),
                exception=MISSING,
            )
        # The answer alone goes to standard output; nothing that may be a secret goes into a file after a crash.
        structlog.configure(logger_factory=lambda *name: structlog.PrintLogger(sys.stderr))
        forbid_core_dumps()
        try:
            with EnterpriseDirectory(self._settings()) as directory:
                result = self.work(directory)
        except EXPECTED as error:
            self.module.fail_json(msg=str(error))
        self.module.exit_json(**result)

    def work(self, directory):
        """Do it and return the results, ``changed`` among them."""
        raise NotImplementedError

    def target(self, directory, access=False):
        """The directory as plans see it; with the access lists of queues only when they are asked for."""
        return LdapTarget(directory, access=access)

    def warn_of(self, remarks):
        """Warn of each remark of a plan: an entry that has no effect."""
        for remark in remarks:
            self.module.warn(f"{remark.title}: {remark.note.value}")

    def _settings(self):
        given = self.module.params["directory"]
        if given is None:
            file = self.module.params["directory_file"]
            return load_settings(Path(file) if file else None)
        return settings_from({name: value for name, value in given.items() if value is not None})


class Observer:
    """Report the progress of an apply in the log of the host."""

    def __init__(self, module):
        self._module = module

    def waiting(self, holder):
        self._module.log(f"waiting for {holder}, who is applying a plan")

    def begin(self, total):
        self._module.log(f"{total} changes of the directory to be made")

    def step(self):
        """One more is done; the number of all of them is in the results."""
