"""Sizes and quotas of ``node.yaml`` have units, and numbers keep their meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.settings.node import ConfigurationError, NodeSettings, read_settings
from qmnode.settings.sizes import UNLIMITED, quota_text, quota_value


def settings(folder: Path, text: str) -> NodeSettings:
    file = folder / "node.yaml"
    file.write_text(text)
    return read_settings(file)


@pytest.mark.parametrize(
    ("written", "kilobytes"),
    [
        ("2048", 2048),
        ("'2048'", 2048),
        ("0", 0),
        ("0MB", 0),
        ("10MB", 10_240),
        ("10 mib", 10_240),
        ("1.5 GiB", 1_572_864),
        ("3TB", 3 * 1024**3),
        ("512K", 512),
        ("none", UNLIMITED),
        ("4294967295", UNLIMITED),
        ("", UNLIMITED),
    ],
)
def test_a_quota_is_a_number_of_kilobytes_or_a_size(tmp_path: Path, written: str, kilobytes: int) -> None:
    made = settings(tmp_path, f"quotas: {{queue_manager_quota: {written}, journal_quota: {written}}}")

    assert made.quotas.queue_manager_quota == made.quotas.journal_quota == kilobytes


def test_other_sizes_are_numbers_of_bytes_or_have_a_unit(tmp_path: Path) -> None:
    made = settings(
        tmp_path,
        "storage: {low_space: 1GB, write_buffer: 33554432}\nread_ahead: {queue_bytes: 0.5KB}\n"
        "quotas: {notices: 256MB, notices_per_neighbour: none}\ntransfer: {unknown_machine_bytes: 8 MB}\n"
        "bodies: {octets: 1.5MB}\nremote_read: {held_bytes: 64KB}\ntransport: {incomplete_bytes: '2097152'}\n",
    )

    assert (made.storage.low_space, made.storage.write_buffer) == (1 << 30, 32 << 20)
    assert (made.read_ahead.queue_bytes, made.remote_read.held_bytes) == (512, 65_536)
    assert made.transport.incomplete_bytes == 2 << 20
    assert (made.quotas.notices, made.quotas.notices_per_neighbour) == (262_144, UNLIMITED)
    assert (made.transfer.unknown_machine_bytes, made.bodies.octets) == (8 << 20, 3 << 19)


def test_the_environment_has_units_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMNODE_QUOTAS", '{"queue_manager_quota": "10MB"}')

    assert settings(tmp_path, "").quotas.queue_manager_quota == 10_240


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quotas: {queue_manager_quota: lots}", "'lots' is not 'none' and no size such as 10MB"),
        ("quotas: {queue_manager_quota: 10 QB}", "the units are KB, MB, GB and TB"),
        ("quotas: {queue_manager_quota: -1MB}", "'-1MB' is not 'none' and no size"),
        ("quotas: {queue_manager_quota: 0.1KB}", "no whole number of KB"),
        ("quotas: {queue_manager_quota: 4TB}", "more than 4294967294 KB, the largest quota"),
        ("quotas: {queue_manager_quota: '4294967296'}", "less than or equal to 4294967295"),
        ("quotas: {queue_manager_quota: ''}", "no size such as 10MB"),
        ("quotas: {queue_manager_quota: [1MB]}", "valid integer"),
        ("storage: {low_space: '1.5'}", "'1.5' has no unit: write one, such as 1.5MB"),
        ("storage: {low_space: '1.0 '}", "has no unit"),
        ("quotas: {notices: -1MB}", "'-1MB' is not 'none' and no size"),
        ("transfer: {unknown_machine_bytes: 0KB}", "greater than or equal to 1"),
        ("bodies: {octets: 65MB}", "less than or equal to 67108864"),
        ("storage: {low_space: none}", "'none' is no size such as 10MB"),
        ("storage: {low_space: 0.0001KB}", "no whole number of bytes"),
        ("storage: {write_buffer: 1KB}", "greater than or equal to 1048576"),
    ],
)
def test_what_is_no_size_is_refused_at_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings(tmp_path, text)

    assert str(raised.value).startswith(f"{tmp_path}/node.yaml:1: ")
    assert told in str(raised.value)
    assert "Value error" not in str(raised.value)


@given(st.integers(0, UNLIMITED))
def test_a_quota_that_is_shown_is_read_as_the_same(quota: int) -> None:
    assert quota_value(quota_text(quota)) == quota
