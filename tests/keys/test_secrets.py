"""Passwords of bridges in AWS Secrets Manager."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from qmnode.amqp import bridges
from qmnode.errors import ConfigurationError
from qmnode.settings.bridges import BridgeSettings
from tests.lab.aws import ENVIRONMENT

if TYPE_CHECKING:
    from tests.lab.aws import Moto

pytestmark = pytest.mark.servers
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]
    group = bridges.ENTRY_POINT_GROUP
    points = [EntryPoint(name, value, group) for name, value in declared[group].items()]
    monkeypatch.setattr(bridges, "entry_points", lambda group: points)


def bridge(name: str, store: str = "aws", **settings: str) -> BridgeSettings:
    return BridgeSettings.model_validate(
        {
            "direction": "out", "queue": "orders", "peer": "amqps://broker", "address": "orders", "user": "shop",
            "password_secret": {"name": name, "store": store, "settings": settings},
        }
    )  # fmt: skip


def test_a_password_is_read_anew_each_time_and_not_shown(moto: Moto) -> None:
    client = boto3.client("secretsmanager", endpoint_url=moto.url, region_name="eu-central-1")
    client.create_secret(Name="bridges/broker", SecretString="first")
    settings = bridge("bridges/broker", endpoint_url=moto.url, region="eu-central-1")
    login = bridges.login_of(settings)
    assert (login.mechanism, login.user, login.password) == ("PLAIN", "shop", "first")
    assert "first" not in repr(login)
    client.put_secret_value(SecretId="bridges/broker", SecretString="second")
    assert bridges.login_of(settings).password == "second"


@pytest.mark.parametrize(
    ("name", "store", "more", "sentence"),
    [
        ("missing", "aws", {}, "the secret missing in AWS Secrets Manager cannot be read"),
        ("any", "vault", {}, "no store of secrets named 'vault' is installed \\(known: aws\\)"),
        ("any", "aws", {"reigon": "x"}, "the store aws has no settings reigon"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named(
    moto: Moto, name: str, store: str, more: dict[str, str], sentence: str
) -> None:
    settings = bridge(name, store, **{"endpoint_url": moto.url, "region": "eu-central-1", **more})
    with pytest.raises(ConfigurationError, match=sentence):
        bridges.login_of(settings)
