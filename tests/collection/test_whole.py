"""The modules for the whole enterprise, users' certificates and keys, against both directory servers."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.collection.conftest import ModuleFailed, Modules
from tests.security.messages import certificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory

    Names = Callable[[str], str]

pytestmark = pytest.mark.servers


def pem(number: int) -> str:
    """A certificate that no test of another suite registers: a directory has each once."""
    return x509.load_der_x509_certificate(certificate(1024, 40 + number)).public_bytes(Encoding.PEM).decode()


@pytest.mark.usefixtures("in_process")
def test_an_enterprise_without_a_directory_is_told_so_before_a_directory_is_looked_for(tmp_path: Path) -> None:
    fleet = {"enterprise": {"name": "Fleet"}, "directory": "none"}
    with pytest.raises(ModuleFailed, match="Fleet has no directory; 'mqenterprise document FILE MACHINE'"):
        Modules(directory_file=str(tmp_path / "nothing.yaml")).run("enterprise", content=fleet)


class TestEnterprise:
    @pytest.fixture
    def declared(self, modules: Modules, fresh_name: Names) -> dict[str, Any]:
        """What is there already, and two sites more."""
        data = yaml.safe_load(modules.run("enterprise_info", name="Lab")["declaration"])
        first, second, machine = fresh_name("One"), fresh_name("Two"), fresh_name("host")
        data["sites"] = [*data.get("sites", []), {"name": first}, {"name": second}]
        data.setdefault("routing_links", []).append({"sites": [first, second], "cost": 7})
        data.setdefault("machines", []).append({"name": machine, "sites": [first], "roles": ["routing_server"]})
        return data

    def test_it_is_made_as_declared_and_pruned(
        self, modules: Modules, declared: dict[str, Any], tmp_path: Path, fresh_name: Names
    ) -> None:
        file = tmp_path / "enterprise.yaml"
        file.write_text(yaml.safe_dump(declared, allow_unicode=True), "utf-8")

        done = modules.settle("enterprise", declared=str(file))

        # A list of another test may have a member that is gone: the export leaves it out.
        assert [(step["action"], step["kind"]) for step in done["steps"] if step["kind"] != "distribution list"] == [
            ("create", "site"),
            ("create", "site"),
            ("create", "machine"),
            ("create", "routing link"),
        ]
        assert done["done"] == len(done["steps"])
        assert modules.run("enterprise_info", declared=str(file))["steps"] == []
        site = declared["sites"].pop()["name"]
        declared["routing_links"].pop()
        pruned = modules.settle("enterprise", content=declared, prune=True)
        assert {step["action"] for step in pruned["steps"]} == {"delete"}
        assert site in [step["name"][0] for step in pruned["steps"]]

    def test_all_mistakes_are_told_at_once(self, modules: Modules, tmp_path: Path) -> None:
        file = tmp_path / "wrong.yaml"
        file.write_text("enterprise: {name: Lab}\nrouting_links:\n  - {sites: [A, B], cost: 0}\n", "utf-8")

        with pytest.raises(ModuleFailed) as failed:
            modules.run("enterprise", declared=str(file), check=True)

        assert f"{file}:3" in str(failed.value)
        assert "there is no site 'A'" in str(failed.value)
        assert "0 is out of range" in str(failed.value)

    def test_what_was_changed_by_hand_is_told(self, modules: Modules, declared: dict[str, Any], tmp_path: Path) -> None:
        file = tmp_path / "enterprise.yaml"
        file.write_text(yaml.safe_dump(declared, allow_unicode=True), "utf-8")
        modules.run("enterprise", declared=str(file))
        machine = declared["machines"][-1]["name"]
        modules.run("queue_manager", name=machine, quota=17)

        (step,) = modules.run("enterprise_info", declared=str(file))["steps"]

        assert (step["name"], step["before"]) == ([machine], {"quota": 17})


class TestSurvey:
    def test_an_estate_is_read_with_what_windows_exported(
        self, modules: Modules, fresh_name: Names, tmp_path: Path
    ) -> None:
        site, machine = fresh_name("Site"), fresh_name("host")
        modules.run("site", name=site)
        modules.run("queue_manager", name=machine, sites=[site], dns_name="127.0.0.1")
        modules.run("queue", machine=machine, name="open")
        file = tmp_path / "export.json"
        queue = {"QueueName": "private$\\hidden", "MachineName": machine, "Label": "Hidden", "Transactional": True}
        file.write_text(json.dumps(queue), "utf-16")

        found = modules.run("survey_info", exports=[str(file)], port=9, timeout=2.0)

        assert found["changed"] is False
        shown = next(one for one in found["report"]["machines"] if one["name"].casefold() == machine.casefold())
        assert (shown["answer"], shown["sites"]) == ("unavailable", [site])
        paths = {one["path"].casefold() for one in found["report"]["queues"]}
        assert paths >= {f"{machine}\\open".casefold(), f"{machine}\\private$\\hidden".casefold()}
        (hidden,) = (one for one in yaml.safe_load(found["declaration"])["queues"] if one["name"] == "hidden")
        assert (hidden["label"], hidden["transactional"], hidden["private"]) == ("Hidden", True, True)
        with pytest.raises(ModuleFailed, match="cannot be read: No such file"):
            modules.run("survey_info", exports=[str(tmp_path / "none.json")])


class TestUserCertificate:
    @pytest.fixture
    def user(self, modules: Modules, fresh_name: Names) -> str:
        name = fresh_name("signer")
        data = yaml.safe_load(modules.run("enterprise_info")["declaration"])
        data.setdefault("users", []).append({"name": name})
        modules.run("enterprise", content=data)
        return name

    def test_a_given_one_is_registered_and_revoked(self, modules: Modules, user: str, tmp_path: Path) -> None:
        file = tmp_path / "two.pem"
        file.write_text(pem(2))

        first = modules.settle("user_certificate", user=user, content=pem(1))["certificate"]
        modules.settle("user_certificate", user=user, certificate=str(file))
        found = modules.run("user_certificate_info", user=user)["certificates"]
        assert len(found) == 2
        modules.settle("user_certificate", user=user, fingerprint=first["fingerprint"][:10], state="absent")
        modules.settle("user_certificate", user=user, certificate=str(file), state="absent")
        assert modules.run("user_certificate_info", user=user)["certificates"] == []

    def test_an_internal_one_is_made_with_a_key_that_stays(self, modules: Modules, user: str, tmp_path: Path) -> None:
        modules.run("user_certificate", user=user, content=pem(3))
        file = tmp_path / "signer.key"
        options = {"user": user, "key_file": str(file), "exclusive": True}

        checked = modules.run("user_certificate", check=True, **options)
        assert not file.exists()
        done = modules.run("user_certificate", **options)
        again = modules.run("user_certificate", **options)

        assert (checked["changed"], done["changed"], again["changed"]) == (True, True, False)
        assert "+" not in json.dumps(checked["certificate"]) and "(a new certificate)" in checked["diff"]["after"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        (found,) = modules.run("user_certificate_info", user=user)["certificates"]
        assert found["fingerprint"] == done["certificate"]["fingerprint"] == again["certificate"]["fingerprint"]
        # Long before it expires it gets a successor, for the key that is there.
        renewed = modules.run("user_certificate", user=user, key_file=str(file), ahead=400, days=800)
        assert renewed["changed"]
        assert len(modules.run("user_certificate_info", user=user)["certificates"]) == 2

    def test_several_users_get_theirs(self, modules: Modules, user: str, fresh_name: Names) -> None:
        users = [{"user": user, "content": pem(4)}]
        (done,) = modules.settle("user_certificate", users=users)["users"]
        assert (done["user"], done["changed"], done["certificate"]["user"]) == (user, True, user)
        nobody = {"user": fresh_name("nobody"), "content": pem(5)}
        with pytest.raises(ModuleFailed, match=f"{nobody['user']}: there is no user named"):
            modules.run("user_certificate", users=[*users, nobody])
        for wrong, sentence in (
            ({"users": users, "user": user}, "mutually exclusive"),
            ({"users": [{"user": user}]}, "one of the following is required"),
            ({"content": pem(4)}, "one of the following is required: user, users"),
        ):
            with pytest.raises(ModuleFailed, match=sentence):
                modules.run("user_certificate", **wrong)
        modules.settle("user_certificate", users=users, state="absent")

    def test_nobody_gets_none(self, modules: Modules, fresh_name: Names) -> None:
        with pytest.raises(ModuleFailed, match="there is no user named"):
            modules.run("user_certificate", user=fresh_name("nobody"), content=pem(1))


class TestKeyRotation:
    @pytest.fixture
    def options(self, modules: Modules, site: str, fresh_name: Names, tmp_path: Path) -> dict[str, Any]:
        name = fresh_name("keys")
        modules.run("queue_manager", name=name, sites=[site])
        (tmp_path / name).mkdir()  # the node's own, which keeps its keys there
        short = {"replication_delay": 0, "offline_cache_age": 0, "longest_time_to_reach_queue": 0}
        life = {"public_key_lifetime": 1, "symmetric_key_short_lifetime": 1, "clock_skew": 0}
        keys = {"directory": f"{tmp_path}/{{computer}}", "reload_interval": 0, **short, "security": life}
        return {"computers": [name], "keys": keys}

    def test_keys_are_made_replaced_rolled_back_and_put_away(
        self, modules: Modules, options: dict[str, Any], directory: EnterpriseDirectory
    ) -> None:
        first = self._settle(modules, **options, maximum_age=3600)
        assert {row["state"] for row in first["keys"]} == {"current"}
        assert all(row["shown"] for row in first["keys"])

        second = modules.run("key_rotation", **options)  # without an age, each run rotates
        assert second["changed"]
        states = {row["state"]: row["fingerprint"] for row in second["keys"] if row["purpose"] == "encryption"}
        assert states.keys() == {"current", "previous"}
        back = modules.run("key_rotation", **options, state="rolled_back")
        assert states["previous"] in {row["fingerprint"] for row in back["keys"] if row["state"] == "current"}
        self._settle(modules, **options, state="retired")
        info = modules.run("key_rotation_info", **options)
        assert "PRIVATE" not in json.dumps(info)

    def _settle(self, modules: Modules, **options: Any) -> dict[str, Any]:
        checked = modules.run("key_rotation", check=True, **options)
        done = modules.run("key_rotation", **options)
        again = modules.run("key_rotation", **options)
        assert (checked["changed"], done["changed"], again["changed"]) == (True, True, False)
        assert checked["diff"] == done["diff"] != again["diff"]
        return done

    def test_an_unknown_node_is_told(self, modules: Modules, fresh_name: Names) -> None:
        with pytest.raises(ModuleFailed, match="no queue manager of the enterprise is named"):
            modules.run("key_rotation_info", computers=[fresh_name("none")])

    def test_settings_that_are_none_are_explained(self, modules: Modules) -> None:
        with pytest.raises(ModuleFailed, match="keys: reload_intervall: Extra inputs"):
            modules.run("key_rotation", keys={"reload_intervall": 1}, check=True)
