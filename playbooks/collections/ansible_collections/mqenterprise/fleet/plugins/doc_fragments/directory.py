# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The documentation that all modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that name the directory."""

    DOCUMENTATION = r"""
options:
  directory_file:
    description:
      - YAML file of the directory's settings, as C(mqenterprise --directory) takes it.
      - When neither this nor O(directory) is given, the environment variable E(MQENTERPRISE_DIRECTORY) names
        the file, and
        without it the private directory of this machine is used, which C(mqenterprise directory up) creates.
    type: path
  directory:
    description:
      - The directory's settings in place of a file.
      - Set them for all modules at once with C(module_defaults) and the group C(group/mqenterprise.fleet.directory).
    type: dict
    suboptions:
      servers:
        description:
          - URLs in the order to try, C(ldaps://host[:port]), C(ldap://) (StartTLS is used then) or
            C(ldapi://%2Fpath).
        type: list
        elements: str
      domain:
        description: A DNS domain whose servers are looked up (SRV records) when O(directory.servers) is not given.
        type: str
      site:
        description: The site whose SRV records are preferred.
        type: str
      nameservers:
        description: Name servers to ask for SRV records, C(address) or C(address:port); the system's when not given.
        type: list
        elements: str
      root:
        description: The distinguished name of the directory's root; the server's own when not given.
        type: str
      kind:
        description: Which product answers; V(auto), the default, asks it.
        type: str
        choices: [auto, openldap, active-directory]
      bind:
        description: How we say who we are; the default is V(simple).
        type: str
        choices: [anonymous, simple, external, gssapi]
      user:
        description: A distinguished name, or on Active Directory also C(user@REALM).
        type: str
      password:
        description: The password of a simple bind.
        type: str
      password_file:
        description: A file with the password of a simple bind.
        type: path
      start_tls:
        description: Whether an C(ldap://) connection is secured before anything else is said; the default is V(true).
        type: bool
      verify:
        description: Whether the server's certificate is verified; the default is V(true).
        type: bool
      ca_file:
        description: PEM certificates that are trusted; the system's when not given.
        type: path
      tls_name:
        description: The server's name in its certificate, when it is not the host of the URL.
        type: str
      client_certificate:
        description: PEM certificate of an external bind.
        type: path
      client_key:
        description: PEM key of O(directory.client_certificate).
        type: path
      connect_timeout:
        description: Seconds for one server to accept a connection and secure it; the default is 5.
        type: float
      operation_timeout:
        description: Seconds for one answer; the default is 30.
        type: float
requirements:
  - qmnode[enterprise], in the Python that runs the module
notes:
  - The module runs where mqenterprise is installed. That is mostly the controller, with C(delegate_to=localhost) or
    C(connection=local), and C(ansible_python_interpreter) set to C(ansible_playbook_python) when Ansible and
    mqenterprise share a virtual environment.
"""

    STATE = r"""
options:
  state:
    description: Whether the object is to be there.
    type: str
    choices: [present, absent]
    default: present
"""

    WAITING = r"""
options:
  wait:
    description: Seconds to wait for another change of the enterprise to end; only one is under way at a time.
    type: float
    default: 60.0
"""

    WRITING = r"""
attributes:
  check_mode:
    description: Can run in check mode and says truly what it would change, without changing it.
    support: full
  diff_mode:
    description: Returns the object before and after, also in check mode.
    support: full
"""

    READING = r"""
attributes:
  check_mode:
    description: Reads only, and does the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to compare.
    support: none
"""
