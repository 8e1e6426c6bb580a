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
  - Symbolic links on the way to a file or folder are followed only if they are root's or the caller's own, in a folder
    that is. An account to which a folder was given cannot lead root elsewhere.
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
    description: Files with their contents, which the log of the host never has.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      content:
        description: What is to be in it. Diffs and results show it unless O(files[].secret).
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
        description: Whether diffs and results, also those of C(-vvv), keep silent about the content.
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
  mqenterprise.fleet.files:
    directories:
      - {path: /etc/qmnode, mode: "0750", group: qmnode}
    files:
      - {path: /etc/qmnode/node.yaml, content: "{{ settings | to_nice_yaml }}", group: qmnode, mode: "0640"}
      - {path: /etc/qmnode/key.pem, content: "{{ key }}", owner: qmnode, mode: "0600", secret: true}
    links:
      /opt/qmnode/current: releases/0.1.0-4f2a9c01d3be
"""

RETURN = r"""
changes:
  description: What was changed, or would be.
  type: list
  elements: str
  returned: always
  sample: [/etc/qmnode/node.yaml]
"""

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

CONCEALED = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
"""As Ansible writes it."""
OWNERSHIP = {"owner": {"type": "str"}, "group": {"type": "str"}}


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
MOST_LINKS = 40


@contextlib.contextmanager
def closing(opened):
    """Close a descriptor afterwards."""
    try:
        yield opened
    finally:
        os.close(opened)


def opened_folder(path, make=False):
    """A folder, reached over no link that somebody else could have put there; the way to it is made if it is to be."""
    left = list(reversed(Path(path).absolute().parts[1:]))
    links = 0
    here = os.open("/", FOLDER)
    try:
        while left:
            name = left.pop()
            try:
                target = own_link(here, name, path)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(name, 0o777 if left else 0o700, dir_fd=here)
                target = None
            links += target is not None
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target is not None:
                left.extend(reversed([each for each in Path(target).parts if each != "/"]))
            if target is None or target.startswith("/"):
                following = os.open("/" if target else name, FOLDER, dir_fd=here)
                os.close(here)
                here = following
    except BaseException:
        os.close(here)
        raise
    return here


def own_link(folder, name, path):
    """Where a link leads; None for what is no link. OSError for one that is not ours in a folder that is not ours."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        return None
    if {found.st_uid, os.fstat(folder).st_uid} - {0, os.geteuid()}:
        raise OSError(errno.ELOOP, f"{name} is a link of another user, and is not followed", str(path))
    return os.readlink(name, dir_fd=folder)


def content_of(folder, name):
    """The content of a file; None when there is none, or when a link or anything but a file has its name."""
    try:
        opened = os.open(name, READING, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise
    with closing(opened):
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        with os.fdopen(os.dup(opened), "rb") as file:
            return file.read()


class Host:
    """The files of a host, and the changes made to them."""

    def __init__(self, module):
        self.module = module
        self.changes = []
        self.diffs = []

    def directory(self, wanted):
        """A folder with its owner and mode."""
        path = Path(wanted["path"])
        try:
            opened = opened_folder(path)
        except FileNotFoundError:
            self._note(path, "absent\n", "directory\n")
            if self.module.check_mode:
                return
            opened = opened_folder(path, make=True)
        with closing(opened):
            self._attributes(opened, wanted)

    def file(self, wanted):
        """A file with its content, owner and mode."""
        path, content = Path(wanted["path"]), wanted["content"].encode("utf-8")
        try:
            folder = opened_folder(path.parent)
        except FileNotFoundError:
            if not self.module.check_mode:
                raise
            self._note(path, *self._shown(wanted, None))
            return
        with closing(folder):
            present = content_of(folder, path.name)
            if present != content:
                self._note(path, *self._shown(wanted, present))
                if self.module.check_mode:
                    return
                self._replace(folder, path.name, content, wanted)
            opened = os.open(path.name, READING, dir_fd=folder)
            with closing(opened):
                self._attributes(opened, wanted)

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

    def _replace(self, folder, name, content, wanted):
        """Ownership first: at no time can somebody else read it, or read half of it."""
        beside = f".new-{secrets.token_hex(8)}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                uid, gid = self._ids(wanted)
                if (uid, gid) != (-1, -1):
                    os.fchown(descriptor, uid, gid)
                file.write(content)
                file.flush()
                os.fchmod(descriptor, int(wanted["mode"], 8))
                os.fsync(descriptor)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
            raise

    def _attributes(self, opened, wanted):
        path, found = wanted["path"], os.fstat(opened)
        uid, gid = self._ids(wanted)
        if (uid, gid) != (-1, -1) and (uid not in (-1, found.st_uid) or gid not in (-1, found.st_gid)):
            self._note(path, f"owner {found.st_uid}:{found.st_gid}\n", f"owner {uid}:{gid}\n")
            if not self.module.check_mode:
                os.fchown(opened, uid, gid)
        if found.st_mode & 0o7777 != int(wanted["mode"], 8):
            self._note(path, f"mode {found.st_mode & 0o7777:04o}\n", f"mode {wanted['mode']}\n")
            if not self.module.check_mode:
                os.fchmod(opened, int(wanted["mode"], 8))

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


def taken(module):
    """Take the files from the arguments, which the module returns, and leave no secret in those.

    The option is ``no_log``, since Ansible logs a list as Python writes it, and finds no secret of several lines in
    that. It also masks each word of such an option in the results; paths and other contents are shown, though.
    """
    files = module.params["files"]
    module.no_log_values.clear()
    module.params["files"] = [{**file, "content": CONCEALED} if file["secret"] else file for file in files]
    return files


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
            "files": {"type": "list", "elements": "dict", "default": [], "options": file, "no_log": True},
            "links": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    host, files = Host(module), taken(module)
    try:
        for wanted in module.params["directories"]:
            host.directory(wanted)
        for wanted in files:
            host.file(wanted)
        for path, target in module.params["links"].items():
            host.link(path, target)
    except OSError as error:
        module.fail_json(msg=f"{error.filename or 'a file'}: {error.strerror}", changes=host.changes)
    module.exit_json(changed=bool(host.changes), changes=host.changes, diff=host.diffs)


if __name__ == "__main__":
    main()
