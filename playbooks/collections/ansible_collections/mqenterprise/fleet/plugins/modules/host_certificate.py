#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Certificates of hosts and users from the enterprise's own authority."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_certificate
short_description: Issue and renew the certificate of a host or a user from the enterprise's own authority
description:
  - Keeps a certificate authority in a folder of the controller, made when it is first needed, and issues certificates
    that hosts prove themselves with, to browsers of the management API, to other nodes and to the directory.
  - Issues certificates for users too, who log in with them to AMQP doors (SASL EXTERNAL). Their extended key usage
    permits clients alone, so no server and no queue manager can show one. A door takes no host's certificate that names
    a queue manager for a user's.
  - A certificate is issued anew when there is none, when it expires soon, when the host's names have changed, when
    it is for another kind of holder, and when it does not fit its key or the authority.
version_added: 0.1.0
author: The qmnode authors (@qmnode)
options:
  name:
    description: The host or the user, as the certificate's common name.
    type: str
    required: true
  holder:
    description: Whom the certificate is for.
    type: str
    choices: [host, user]
    default: host
  names:
    description:
      - All host names and addresses that the host is reached under. Required for a host; a user has none.
      - C(urn:uuid:) and the GUID of its queue manager bind the certificate to that.
    type: list
    elements: str
  authority:
    description: Folder of the authority, C(ca.pem) and C(ca.key). Whoever reads it can issue certificates.
    type: path
    required: true
  authority_name:
    description: What the authority is called when it is made.
    type: str
    default: Message Queuing enterprise
  certificate:
    description: File of the certificate.
    type: path
    required: true
  private_key:
    description: File of its private key, which only its owner can read.
    type: path
    required: true
  renew_before:
    description: Days before a certificate expires that it is issued anew.
    type: int
    default: 30
attributes:
  check_mode:
    description: Says whether and why one would be issued.
    support: full
  diff_mode:
    description: Certificates are not shown; RV(reason) says why.
    support: none
notes:
  - Run it on the controller (C(delegate_to=localhost)), where C(mqenterprise) can be imported.
"""

EXAMPLES = r"""
- name: Certificate of the host
  mqenterprise.fleet.host_certificate:
    name: "{{ inventory_hostname }}"
    names: ["{{ inventory_hostname }}", "{{ ansible_host }}"]
    authority: /var/lib/mqenterprise/authority
    certificate: "/var/lib/mqenterprise/hosts/{{ inventory_hostname }}/certificate.pem"
    private_key: "/var/lib/mqenterprise/hosts/{{ inventory_hostname }}/key.pem"
  delegate_to: localhost

- name: Certificate of a program that uses AMQP doors
  mqenterprise.fleet.host_certificate:
    name: billing
    holder: user
    authority: /var/lib/mqenterprise/authority
    certificate: /var/lib/mqenterprise/users/billing/certificate.pem
    private_key: /var/lib/mqenterprise/users/billing/key.pem
  delegate_to: localhost
"""

RETURN = r"""
reason:
  description: Why a certificate was issued, or would be.
  type: str
  returned: when it was, or would be
  sample: it expires on 2027-01-31
"""

import datetime
import fcntl
import traceback
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mqenterprise.certificates.hosts import Authority, Holder, issue_for_host, issue_for_user, why_due
    from mqenterprise.certificates.registry import CertificateError

    EXPECTED = (CertificateError, OSError)
    MISSING = None
except ImportError:
    EXPECTED = ()
    MISSING = traceback.format_exc()


SPEC = {
    "name": {"type": "str", "required": True},
    "holder": {"type": "str", "choices": ["host", "user"], "default": "host"},
    "names": {"type": "list", "elements": "str"},
    "authority": {"type": "path", "required": True},
    "authority_name": {"type": "str", "default": "Message Queuing enterprise"},
    "certificate": {"type": "path", "required": True},
    "private_key": {"type": "path", "required": True, "no_log": False},
    "renew_before": {"type": "int", "default": 30},
}
REQUIRED_IF = [("holder", "host", ["names"])]


def work(given, check_mode):
    """Issue one if it is due; why it was."""
    if given["holder"] == "user" and given["names"]:
        raise CertificateError("a user's certificate has no names beside the user's own: leave out names")
    authority = Authority(Path(given["authority"]))
    certificate, key = Path(given["certificate"]), Path(given["private_key"])
    ahead = datetime.timedelta(days=given["renew_before"])
    holder, names = Holder(given["holder"]), given["names"] or []

    def due(now):
        return why_due(authority, certificate, key, names, now, ahead, holder)

    reason = due(datetime.datetime.now(datetime.UTC))
    if reason is None or check_mode:
        return reason
    authority.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Many hosts ask at a time: the first makes the authority, and the certificate of a user that several need.
    with (authority.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now = datetime.datetime.now(datetime.UTC)
        if not authority.exists:
            authority.create(given["authority_name"], now)
        reason = due(now)
        if reason is not None and holder is Holder.USER:
            issue_for_user(authority, certificate, key, given["name"], now)
        elif reason is not None:
            issue_for_host(authority, certificate, key, given["name"], names, now)
    return reason


def main():
    """Run the module with the arguments that Ansible passes."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True, required_if=REQUIRED_IF)
    if MISSING is not None:
        module.fail_json(msg=missing_required_lib("qmnode[enterprise]"), exception=MISSING)
    try:
        reason = work(module.params, module.check_mode)
    except EXPECTED as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=reason is not None, **({"reason": reason} if reason else {}))


if __name__ == "__main__":
    main()
