# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The configuration of a directory server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slapd_configuration
short_description: Configuration of slapd for an enterprise's directory
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Makes what C(slapadd -n 0) takes on a Debian host, from the same source as C(mqenterprise directory up) - schema,
    indexes, rights, TLS, and, with several providers, replication between all of them.
  - The same input makes the same text.
options:
  _input:
    description: The distinguished name of the directory's root.
    type: str
    required: true
  state:
    description: Folder of the server on the host.
    type: str
    required: true
  password:
    description: The administrator's password. It is in the text, in clear if there are several providers.
    type: str
    required: true
  host:
    description: The host that the configuration is for.
    type: str
    required: true
  urls:
    description: URLs of all providers by host, in an order that stays.
    type: dict
    required: true
  durable:
    description: Whether each write is on the disk before it is answered.
    type: bool
    default: true
  schema:
    description: The host's folder of OpenLDAP's own schema.
    type: str
    default: /etc/ldap/schema
  modules:
    description: The host's folder of OpenLDAP's modules.
    type: str
    default: /usr/lib/ldap
"""

EXAMPLES = r"""
- name: Configuration of the server
  ansible.builtin.copy:
    content: "{{ 'dc=contoso,dc=com' | mqenterprise.fleet.slapd_configuration(
      '/var/lib/msmq-directory', password, inventory_hostname, urls) }}"
    dest: /var/lib/msmq-directory/config.ldif
    mode: "0600"
  no_log: true
"""

RETURN = r"""
_value:
  description: LDIF.
  type: str
"""

from pathlib import Path

from ansible.errors import AnsibleFilterError

try:
    from mqenterprise.directory.errors import DirectoryError
    from mqenterprise.directory.slapd_configuration import Installation, Replication, SlapdPaths, configuration_ldif

    MISSING = None
except ImportError as error:
    MISSING = error


def slapd_configuration(
    root, state, password, host, urls, durable=True, schema="/etc/ldap/schema", modules="/usr/lib/ldap"
):
    """Return the text of slapd's configuration."""
    if MISSING is not None:
        raise AnsibleFilterError("qmnode[enterprise] is not installed on the controller") from MISSING
    numbers = {name: number for number, name in enumerate(urls, start=1)}
    others = {numbers[name]: str(url) for name, url in urls.items() if name != host}
    replication = Replication(number=numbers[host], others=others) if others else None
    paths = SlapdPaths(state=Path(state))
    try:
        return configuration_ldif(
            paths,
            str(root),
            str(password),
            (),
            durable=durable,
            installation=Installation(Path(schema), Path(modules)),
            replication=replication,
        )
    except DirectoryError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"slapd_configuration": slapd_configuration}
