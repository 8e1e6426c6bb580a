#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Several small files of a host at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Write folders, small files and links of a service at once
description:
  - Does for a whole set of files what C(ansible.builtin.file) and C(ansible.builtin.copy) do for one, in one
    connection, which matters on many hosts and slow lines.
  - Files are replaced as a whole, and each has its owner and mode before it has its content.
version_added: 0.1.0
author: The qmnode authors (@qmnode)
options:
  directories:
    description: Folders, in the order in which they are made.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The folder.
        type: path
        required: true
      owner:
        description: Its owner; left alone if not given.
        type: str
      group:
        description: Its group.
        type: str
      mode:
        description: Its mode.
        type: str
        default: "0755"
  files:
    description: Files with their contents.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      content:
        description: What is to be in it. A diff shows it unless O(files[].secret).
        type: str
        required: true
      owner:
        description: Its owner; left alone if not given.
        type: str
      group:
        description: Its group.
        type: str
      mode:
        description: Its mode.
        type: str
        default: "0644"
      secret:
        description: Whether a diff keeps silent about the content.
        type: bool
        default: false
  links:
    description: Symbolic links, by path, with their targets. They are replaced in one step.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Says what would be written.
    support: full
  diff_mode:
    description: Shows files before and after, but no secrets.
    support: full
"""

EXAMPLES = r"""
- name: Settings of the node
  msmq.enterprise.files:
    directories:
      - {path: /etc/qmnode, mode: "0750", group: qmnode}
    files:
      - {path: /etc/qmnode/node.yaml, content: "{{ settings | to_nice_yaml }}", group: qmnode, mode: "0640"}
      - {path: /etc/qmnode/key.pem, content: "{{ key }}", owner: qmnode, mode: "0600", secret: true}
    links:
      /opt/qmnode/current: releases/0.1.0-4f2a9c01d3be
  no_log: false
"""

RETURN = r"""
changes:
  description: What was changed, or would be.
  type: list
  elements: str
  returned: always
  sample: [/etc/qmnode/node.yaml]
"""

import grp
import os
import pwd
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

OWNERSHIP = {"owner": {"type": "str"}, "group": {"type": "str"}}


class Host:
    """The files of a host, and the changes made to them."""

    def __init__(self, module):
        self.module = module
        self.changes = []
        self.diffs = []

    def directory(self, wanted):
        """A folder with its owner and mode."""
        path = Path(wanted["path"])
        if not path.is_dir():
            self._note(path, "absent\n", "directory\n")
            if self.module.check_mode:
                return
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._attributes(path, wanted)

    def file(self, wanted):
        """A file with its content, owner and mode."""
        path, content = Path(wanted["path"]), wanted["content"].encode("utf-8")
        try:
            present = path.read_bytes()
        except FileNotFoundError:
            present = None
        if present != content:
            self._note(path, *self._shown(wanted, present))
            if self.module.check_mode:
                return
            self._replace(path, content, wanted)
        self._attributes(path, wanted)

    def link(self, path, target):
        """A link to a target."""
        path = Path(path)
        present = str(path.readlink()) if path.is_symlink() else None
        if present == target:
            return
        self._note(path, f"-> {present}\n" if present else "absent\n", f"-> {target}\n")
        if not self.module.check_mode:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{os.getpid()}")
            beside.symlink_to(target)
            beside.replace(path)

    def _shown(self, wanted, present):
        if wanted["secret"]:
            return "absent\n" if present is None else "a secret\n", "another secret\n"
        return (present or b"").decode("utf-8", "replace"), wanted["content"]

    def _replace(self, path, content, wanted):
        """Ownership first: at no time can somebody else read it, or read half of it."""
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                self._own(beside, wanted)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.chmod(int(wanted["mode"], 8))
            beside.replace(path)
        except BaseException:
            beside.unlink()
            raise

    def _attributes(self, path, wanted):
        found = path.stat()
        uid, gid = self._ids(wanted)
        if (uid, gid) != (-1, -1) and (uid not in (-1, found.st_uid) or gid not in (-1, found.st_gid)):
            self._note(path, f"owner {found.st_uid}:{found.st_gid}\n", f"owner {uid}:{gid}\n")
            if not self.module.check_mode:
                os.chown(path, uid, gid)
        if found.st_mode & 0o7777 != int(wanted["mode"], 8):
            self._note(path, f"mode {found.st_mode & 0o7777:04o}\n", f"mode {wanted['mode']}\n")
            if not self.module.check_mode:
                path.chmod(int(wanted["mode"], 8))

    def _own(self, path, wanted):
        uid, gid = self._ids(wanted)
        if (uid, gid) != (-1, -1):
            os.chown(path, uid, gid)

    def _ids(self, wanted):
        try:
            uid = pwd.getpwnam(wanted["owner"]).pw_uid if wanted["owner"] else -1
            gid = grp.getgrnam(wanted["group"]).gr_gid if wanted["group"] else -1
        except KeyError as error:
            if self.module.check_mode:  # a task before this one would have made the account
                return -1, -1
            self.module.fail_json(msg=f"{wanted['path']}: {error.args[0]}")
        return uid, gid

    def _note(self, place, before, after):
        path = str(place)
        if path not in self.changes:
            self.changes.append(path)
        self.diffs.append({"before": before, "after": after, "before_header": path, "after_header": path})


def main():
    """Run the module with the arguments that Ansible passes."""
    folder = {"path": {"type": "path", "required": True}, **OWNERSHIP, "mode": {"type": "str", "default": "0755"}}
    file = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True, "no_log": False},
        **OWNERSHIP,
        "mode": {"type": "str", "default": "0644"},
        "secret": {"type": "bool", "default": False, "no_log": False},
    }
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": folder},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file},
            "links": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    try:
        for wanted in module.params["directories"]:
            host.directory(wanted)
        for wanted in module.params["files"]:
            host.file(wanted)
        for path, target in module.params["links"].items():
            host.link(path, target)
    except OSError as error:
        module.fail_json(msg=f"{error.filename or 'a file'}: {error.strerror}", changes=host.changes)
    module.exit_json(changed=bool(host.changes), changes=host.changes, diff=host.diffs)


if __name__ == "__main__":
    main()
