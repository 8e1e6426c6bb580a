#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: user_certificate_info
short_description: The certificates that users sign messages with
version_added: 0.1.0
description:
  - Says which certificates there are, and which are to be renewed.
author: The qmnode authors (@qmnode)
options:
  user:
    description: Only the certificates of this user; all when not given.
    type: str
  ahead:
    description: Days before it expires that a certificate is due.
    type: int
    default: 30
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.user_certificate
"""

EXAMPLES = r"""
- name: Certificates that expire within a quarter
  mqenterprise.fleet.user_certificate_info:
    ahead: 90
  delegate_to: localhost
  register: found

- name: Whose
  ansible.builtin.debug:
    msg: "{{ found.certificates | selectattr('is_due') | map(attribute='user') | unique }}"
"""

RETURN = r"""
certificates:
  description: The certificates, by user and expiry.
  returned: success
  type: list
  elements: dict
  contains:
    user:
      description: The user's account.
      type: str
      returned: always
    fingerprint:
      description: The certificate's fingerprint, SHA-256.
      type: str
      returned: always
    identifier:
      description: Its GUID in the user's list.
      type: str
      returned: always
    digest:
      description: Its MD5 digest, by which the directory finds it.
      type: str
      returned: always
    subject_key:
      description: What kind of key it is for.
      type: str
      returned: always
    not_before:
      description: From when on it is valid, in UTC.
      type: str
      returned: always
    not_after:
      description: Until when it is valid, in UTC.
      type: str
      returned: always
    state:
      description: Whether it can be used now, in words.
      type: str
      returned: always
    is_due:
      description: Whether it is to be renewed or revoked.
      type: bool
      returned: always
due:
  description: Whether one is to be renewed or revoked.
  returned: success
  type: bool
"""

import time

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule

try:
    from mqenterprise.certificates.registry import CertificateRegistry, row_of
except ImportError:
    pass  # told by EnterpriseModule.run


class CertificateInfoModule(EnterpriseModule):
    options = {"user": {"type": "str"}, "ahead": {"type": "int", "default": 30}}

    def work(self, directory):
        now = time.time()
        registered = CertificateRegistry(directory).list(self.given["user"])
        rows = [row_of(each, now, self.given["ahead"]) for each in registered]
        rows.sort(key=lambda row: (row["user"].casefold(), str(row["not_after"])))
        return {"changed": False, "certificates": rows, "due": any(row["is_due"] for row in rows)}


def main():
    CertificateInfoModule.main()


if __name__ == "__main__":
    main()
