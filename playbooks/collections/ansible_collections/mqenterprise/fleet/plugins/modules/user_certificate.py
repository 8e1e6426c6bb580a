#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: user_certificate
short_description: A certificate that a user signs messages with
version_added: 0.1.0
description:
  - Registers a certificate for a user in the directory, or revokes one.
  - A given certificate, or an internal one, whose private key is made and kept on the host of the task.
  - A user can have several; what is under way verifies with the old one until it is revoked.
author: The qmnode authors (@qmnode)
options:
  user:
    description: The user's account name. The directory must have the user.
    type: str
  state:
    description: Whether the certificate is to be there.
    type: str
    choices: [present, absent]
    default: present
  <<: &certificate
    certificate:
      description: PEM or DER file of the certificate, on the host of the task.
      type: path
    content:
      description: The certificate in PEM.
      type: str
    key_file:
      description:
        - The file of an internal certificate's private key. A key is made when there is no such file, and a
          certificate when none that is registered and valid is for the key.
      type: path
    fingerprint:
      description: The beginning of the fingerprint of the certificate to revoke.
      type: str
  days:
    description: For how long an internal certificate is valid.
    type: int
    default: 365
  bits:
    description: Length of an internal certificate's key.
    type: int
    default: 2048
  ahead:
    description: Days before it expires that an internal certificate gets a successor, for the same key.
    type: int
    default: 30
  exclusive:
    description: Revoke all other certificates of the user.
    type: bool
    default: false
  users:
    description:
      - A certificate for each of several users, over one connection. What the options O(state), O(days), O(bits),
        O(ahead) and O(exclusive) say holds for all of them.
    type: list
    elements: dict
    suboptions:
      user:
        description: The user's account name. The directory must have the user.
        type: str
        required: true
      <<: *certificate
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.user_certificate_info
  - module: mqenterprise.fleet.enterprise
"""

EXAMPLES = r"""
- name: An internal certificate, made and kept on the host that signs
  mqenterprise.fleet.user_certificate:
    user: Order Desk
    key_file: /etc/qmnode/order-desk.key

- name: One of the company's own authority
  mqenterprise.fleet.user_certificate:
    user: Warehouse
    content: "{{ lookup('ansible.builtin.file', 'warehouse.pem') }}"
  delegate_to: localhost

- name: Those of all users
  mqenterprise.fleet.user_certificate:
    users:
      - user: Warehouse
        content: "{{ lookup('ansible.builtin.file', 'warehouse.pem') }}"
      - user: Order Desk
        certificate: /etc/qmnode/order-desk.pem
  delegate_to: localhost

- name: A certificate that nobody uses any more
  mqenterprise.fleet.user_certificate:
    user: Warehouse
    fingerprint: 9b1f0c
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
certificate:
  description:
    - The certificate that was registered or revoked; none when there was none, and in check mode for one that
      would be made.
  returned: success, without O(users)
  type: dict
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
  sample:
    user: Order Desk
    fingerprint: 9b1f0c8a1d53c1e2b2a0aa3b5f0f8f3e6d0c4b8a79d1e2f30415263748596a7b
    state: valid
users:
  description: Each user with the C(certificate), and whether something C(changed), in the order of the list.
  returned: success, with O(users)
  type: list
  elements: dict
"""

import time
from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EXPECTED, EnterpriseModule
from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import STATE

try:
    from mqenterprise.certificates.files import (
        certificate_in,
        internal_for,
        make_internal,
        read_certificate,
        read_private,
    )
    from mqenterprise.certificates.registry import DAY, CertificateError, CertificateRegistry, fingerprint_of, row_of
    from qmnode.security.sender_identity import parse_certificate
except ImportError:
    pass  # told by EnterpriseModule.run

A_NEW_ONE = "(a new certificate)"


OPTIONS = {
    "certificate": {"type": "path"},
    "content": {"type": "str", "no_log": True},  # a file of a certificate may hold its key as well
    "key_file": {"type": "path", "no_log": False},
    "fingerprint": {"type": "str"},
}
WAYS = tuple(OPTIONS)
RULES = {"mutually_exclusive": [WAYS], "required_one_of": [WAYS]}
COMMON = {
    "days": {"type": "int", "default": 365},
    "bits": {"type": "int", "default": 2048},
    "ahead": {"type": "int", "default": 30},
    "exclusive": {"type": "bool", "default": False},
}


class CertificateModule(EnterpriseModule):
    options = {
        "user": {"type": "str"},
        **OPTIONS,
        **COMMON,
        "users": {
            "type": "list",
            "elements": "dict",
            "options": {"user": {"type": "str", "required": True}, **OPTIONS},
            **RULES,
        },
        **STATE,
    }
    rules = {
        "mutually_exclusive": [WAYS, *(("users", name) for name in ("user", *WAYS))],
        "required_one_of": [("user", "users"), ("users", *WAYS)],
        "required_by": {name: ["user"] for name in WAYS},
    }

    def work(self, directory):
        self.now = time.time()
        self.registry = CertificateRegistry(directory)
        common = self.given
        if common["users"] is None:
            return self._one()
        done = []
        for item in common["users"]:
            self.given = common | item
            try:
                done.append(self._one() | {"user": item["user"]})
            except EXPECTED as error:
                self.module.fail_json(msg=f"{item['user']}: {error}", changed=any(one["changed"] for one in done))
        return {
            "changed": any(one["changed"] for one in done),
            "users": [{name: one[name] for name in ("user", "changed", "certificate")} for one in done],
            "diff": [one["diff"] for one in done if one["changed"]],
        }

    def _one(self):
        self.user = self.given["user"]
        self.present = list(self.registry.list(self.user))
        before = [fingerprint_of(each) for each in self.present]
        if self.given["state"] == "absent":
            chosen, after = self._revoked(before)
        else:
            chosen, after = self._registered(before)
        return {
            "changed": sorted(before) != sorted(after),
            "certificate": None if chosen is None else row_of(chosen, self.now, self.given["ahead"]),
            "diff": {
                "before_header": f"certificates of {self.user}",
                "after_header": f"certificates of {self.user}",
                "before": "".join(f"{each}\n" for each in sorted(before)),
                "after": "".join(f"{each}\n" for each in sorted(after)),
            },
        }

    def _registered(self, before):
        if self.given["fingerprint"]:
            raise CertificateError(
                "fingerprint names what to revoke (state: absent); give certificate, content or key_file"
            )
        if self.given["key_file"]:
            chosen, encoded = self._internal(Path(self.given["key_file"]))
        else:
            encoded = self._encoded()
            chosen = self._known(encoded)
        if chosen is None and encoded is not None and not self.module.check_mode:
            chosen = self.registry.register(self.user, encoded)
        kept = fingerprint_of(chosen) if chosen else self._name_of(encoded)
        others = [name for name in before if name != kept]
        if not self.given["exclusive"]:
            return chosen, [*others, kept]
        if not self.module.check_mode:
            for name in others:
                self.registry.revoke(self.user, name)
        return chosen, [kept]

    @staticmethod
    def _name_of(encoded):
        """Return the fingerprint that a certificate will have once it is registered."""
        if encoded is None:
            return A_NEW_ONE
        try:
            return parse_certificate(encoded).fingerprint.removeprefix("SHA256:")
        except ValueError as error:
            raise CertificateError(f"this cannot be registered: {error}") from None

    def _internal(self, key_file):
        """The registered certificate for the key in the file, or a new one; in check mode none is made."""
        if not key_file.exists():
            if self.module.check_mode:
                return None, None
            bits, days = self.given["bits"], self.given["days"]
            return None, make_internal(self.user, key_file, self.now, days, bits).encoded
        public_key = read_private(key_file).public_key
        for each in self.present:
            certificate = each.certificate
            if certificate is None or certificate.public_key.public_numbers() != public_key.public_numbers():
                continue
            if certificate.not_after - self.given["ahead"] * DAY > self.now:
                return each, None
        if self.module.check_mode:
            return None, None
        return None, internal_for(self.user, key_file, self.now, self.given["days"]).encoded

    def _revoked(self, before):
        if self.given["key_file"]:
            raise CertificateError("name what to revoke by fingerprint, certificate or content")
        wanted = self.given["fingerprint"]
        if wanted:
            known = any(name.startswith(wanted.removeprefix("SHA256:").lower()) for name in before)
            gone = self.registry.find(self.user, wanted) if known else None
        else:
            gone = self._known(self._encoded())
        if gone is None:
            return None, before
        if not self.module.check_mode:
            self.registry.revoke(self.user, fingerprint_of(gone))
        return gone, [name for name in before if name != fingerprint_of(gone)]

    def _encoded(self):
        if self.given["content"]:
            return certificate_in(self.given["content"].encode(), "content")
        return read_certificate(Path(self.given["certificate"]))

    def _known(self, encoded):
        own = (each for each in self.present if each.certificate is not None and each.certificate.encoded == encoded)
        return next(own, None)


def main():
    CertificateModule.main()


if __name__ == "__main__":
    main()
