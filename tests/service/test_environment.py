"""Settings of the environment."""

from pathlib import Path

import pytest

from qmnode.settings.node import ConfigurationError, read_settings


def test_environment_wins_over_the_file_setting_by_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("computer_name: FILE\nsession: {window_size: 8}\ntransport: {port: 1900}\nlog: {level: error}\n")
    monkeypatch.setenv("QMNODE_SOCKET", "/of/the/commands")
    monkeypatch.setenv("QMNODE_COMPUTER_NAME", "SHELL")
    monkeypatch.setenv("qmnode_transport__ENABLED", "false")
    monkeypatch.setenv("QMNODE_OTHER_NAMES", '["A", "B"]')
    monkeypatch.setenv("QMNODE_LOG", '{"format": "console"}')
    found = read_settings(path)
    assert (found.computer_name, found.other_names) == ("SHELL", ("A", "B"))
    assert (found.transport.enabled, found.transport.port) == (False, 1900)
    assert (found.log.level, found.log.format) == ("error", "console")
    assert found.session.of_routing_server().cleanup_interval == 120.0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [("OTHER_NAMES", "[", "other_names"), ("TRANSPORT__PORT", "none", "transport.port"), ("LOG__NOTHING", "1", "log.")],
)
def test_environment_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(f"QMNODE_{variable}", value)
    with pytest.raises(ConfigurationError, match=said) as raised:
        read_settings(None)
    assert str(raised.value).startswith("environment: ")
