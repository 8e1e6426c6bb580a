#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: survey_info
short_description: A survey of an estate of Windows Message Queuing
version_added: 0.1.0
description:
  - Reads directories, queue managers of Windows and files that Windows wrote, and changes nothing, as
    C(mqenterprise survey) does.
  - Machines that do not answer are named in the report, and do not stop it.
author: The qmnode authors (@qmnode)
options:
  name:
    description: The enterprise's name, which the directory does not hold.
    type: str
    default: Enterprise
  more_directory_files:
    description: YAML files of the settings of further directories, one for each further domain.
    type: list
    elements: path
    default: []
  exports:
    description: Get-MsmqQueue or Get-MsmqQueueACL as JSON, a CSV, or endpoints of NServiceBus.
    type: list
    elements: path
    default: []
  machines:
    description: Where machines are asked, if not at their DNS names, as C(host) or C(host:port), by name.
    type: dict
    default: {}
  user:
    description:
      - The account that looks at queue managers, C(DOMAIN\\USER) with a password, or C(USER@REALM) with tickets.
    type: str
    default: ""
  password_file:
    description: File with the password of O(user), mode 0600.
    type: path
  port:
    description: Port of the machines' endpoint mappers.
    type: int
    default: 135
  sample:
    description: Messages of each queue to look at; 0 for none.
    type: int
    default: 100
  timeout:
    description: Seconds for one machine.
    type: float
    default: 30
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.enterprise_info
"""

EXAMPLES = r"""
- name: The estate, before anything moves
  mqenterprise.fleet.survey_info:
    user: CONTOSO\surveyor
    password_file: surveyor.password
    exports: [winshop.json]
  delegate_to: localhost
  run_once: true
  register: found

- name: Machines that did not answer
  ansible.builtin.debug:
    msg: "{{ found.report.machines | rejectattr('answer', 'eq', 'answered') | map(attribute='name') | list }}"
"""

RETURN = r"""
report:
  description: The document that C(mqenterprise survey) writes as C(report.json).
  returned: success
  type: dict
declaration:
  description: The estate as a declaration, as YAML text. Comments say where it guesses.
  returned: success
  type: str
"""

from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule

try:
    from mqenterprise.directory.chosen_directory import load_settings
    from mqenterprise.survey.machines import Asking
    from mqenterprise.survey.run import Survey, options_of, survey
except ImportError:
    pass  # told by EnterpriseModule.run


class SurveyInfoModule(EnterpriseModule):
    options = {
        "name": {"type": "str", "default": "Enterprise"},
        "more_directory_files": {"type": "list", "elements": "path", "default": []},
        "exports": {"type": "list", "elements": "path", "default": []},
        "machines": {"type": "dict", "default": {}},
        "user": {"type": "str", "default": ""},
        "password_file": {"type": "path", "no_log": False},
        "port": {"type": "int", "default": 135},
        "sample": {"type": "int", "default": 100},
        "timeout": {"type": "float", "default": 30},
    }

    def work(self, directory):
        given = self.given
        password = Path(given["password_file"]) if given["password_file"] else None
        asking = Asking(
            options_of(given["user"], password, given["port"]), timeout=given["timeout"], sample=given["sample"]
        )
        found = survey(
            Survey(
                given["name"],
                [directory.connection.settings, *(load_settings(Path(one)) for one in given["more_directory_files"])],
                [Path(one) for one in given["exports"]],
                {name: str(host) for name, host in given["machines"].items()},
                asking,
            )
        )
        for machine in found.report["machines"]:
            if machine["reason"]:
                self.module.warn(f"{machine['name']}: {machine['reason']}")
        return {"changed": False, "report": found.report, "declaration": found.declaration}


def main():
    SurveyInfoModule.main()


if __name__ == "__main__":
    main()
