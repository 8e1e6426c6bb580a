# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Declarations and plans as modules take and return them."""

from __future__ import annotations

import json

try:
    from mqenterprise.topology.check import load
    from mqenterprise.topology.plan import to_json
    from mqenterprise.topology.problems import DeclarationError, Problem
except ImportError:
    pass  # told by EnterpriseModule.run


def loaded(start):
    """A declaration that holds together. Raises DeclarationError with all that is wrong with it."""
    if not start.exists():
        raise DeclarationError(
            [Problem(str(start), 0, "", "there is no such file or directory on the host of the task")]
        )
    return load(start, for_directory=True)


def told(plan):
    """A plan as the results of a module, with one difference for each of its steps."""
    data = to_json(plan)
    steps = [{name: step[name] for name in ("action", "kind", "name", "before", "after")} for step in data["steps"]]
    return {
        "changed": bool(steps),
        "steps": steps,
        "remarks": [f"{remark.title}: {remark.note.value}" for remark in plan.remarks],
        "done": 0,
        "diff": [
            {
                "before_header": step.title,
                "after_header": step.title,
                "before": _text(shown["before"]),
                "after": _text(shown["after"]),
            }
            for step, shown in zip(plan.steps, steps, strict=True)
        ],
    }


def _text(values):
    return json.dumps(values, ensure_ascii=False, indent=2, sort_keys=True) + "\n" if values else ""
