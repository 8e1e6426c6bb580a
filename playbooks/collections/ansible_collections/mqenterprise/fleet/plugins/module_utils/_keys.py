# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Shared by the modules for keys: the chosen nodes, the access to their keys, and the times to wait."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule

try:
    from mqenterprise.keys.fleet import Fleet
    from mqenterprise.keys.life_cycle import Waiting
    from mqenterprise.keys.publication import Publication
    from mqenterprise.keys.report import rows_of
    from mqenterprise.keys.settings import key_settings_from, load_key_settings
except ImportError:
    pass  # told by EnterpriseModule.run

CHOOSING = {
    "computers": {"type": "list", "elements": "str"},
    "site": {"type": "str"},
    "keys_file": {"type": "path", "no_log": False},
    "keys": {"type": "dict", "no_log": False},
}


class Chosen:
    """The nodes that the options name."""

    def __init__(self, nodes, publication, waiting):
        self.nodes = nodes
        self.publication = publication
        self.waiting = waiting

    def fleet(self, nodes):
        return Fleet(nodes, self.publication, self.waiting)


class KeysModule(EnterpriseModule):
    """A module that looks at keys. The result never holds a part of a private key."""

    def chosen(self, directory):
        given, publication = self.given, Publication(directory)
        if given["keys"] is not None:
            settings = key_settings_from(given["keys"], "keys")
        else:
            settings = load_key_settings(Path(given["keys_file"]) if given["keys_file"] else None)
        nodes = publication.nodes(site=given["site"], computers=given["computers"] or ())
        longest = settings.longest_time_to_reach_queue
        waiting = Waiting(settings, publication.longest_time_to_reach_queue() if longest is None else longest)
        return Chosen(nodes, publication, waiting)

    def rows(self, outcome, chosen, destroyed=False):
        """The keys of all nodes. Each has every value, those that it has not as none."""
        now = time.time()
        found = [row for keys in outcome.done for row in rows_of(keys, chosen.waiting, now, destroyed=destroyed)]
        names = {name for row in found for name in row}
        return [dict.fromkeys(sorted(names)) | row for row in found]

    def told(self, failed):
        """Fail when a node did, with what to do about each."""
        if failed:
            self.module.fail_json(msg="\n".join(f"{name}: {sentence}" for name, sentence in sorted(failed.items())))
