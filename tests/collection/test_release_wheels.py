"""The wheels of a release: with the optional extras where they can be had, and without them elsewhere."""

import importlib.util
from pathlib import Path

import pytest

MODULE = (
    Path(__file__).resolve().parents[2]
    / "playbooks/collections/ansible_collections/mqenterprise/fleet/plugins/modules/release.py"
)


class FakeModule:
    """An Ansible module whose pip finds no wheel of what is missing."""

    def __init__(self, missing: str) -> None:
        self.params = {"extras": ["enterprise"], "optional_extras": ["uvloop"]}
        self.missing = missing
        self.asked: list[str] = []
        self.warnings: list[str] = []

    def run_command(self, command: list[str]) -> tuple[int, str, str]:
        self.asked.append(command[-2])
        failed = bool(self.missing) and self.missing in command[-2]
        return int(failed), "", f"no wheel for {self.missing}" if failed else ""

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


@pytest.mark.parametrize(
    ("missing", "asked", "outcome", "warnings"),
    [
        ("", ["/src[enterprise,uvloop]"], 0, 0),
        ("uvloop", ["/src[enterprise,uvloop]", "/src[enterprise]"], 0, 1),
        ("enterprise", ["/src[enterprise,uvloop]", "/src[enterprise]"], 1, 0),
    ],
)
def test_an_optional_extra_without_a_wheel_is_left_out(
    missing: str, asked: list[str], outcome: int, warnings: int
) -> None:
    specification = importlib.util.spec_from_file_location("release", MODULE)
    assert specification is not None
    assert specification.loader is not None
    release = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(release)
    module = FakeModule(missing)

    code, _ = release.make_wheels(module, ["pip"], Path("/src"))

    assert module.asked == asked
    assert (code, len(module.warnings)) == (outcome, warnings)
