"""Secrets of AWS Secrets Manager as texts, for what a node shows to others: the passwords of bridges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from qmnode.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS: Final = frozenset({"region", "endpoint_url"})


def read_secret(name: str, settings: Mapping[str, str]) -> str:
    """The text of the current version of a secret (entry point ``aws``). Blocks. ConfigurationError.

    Settings: ``region``, ``endpoint_url``. Needs secretsmanager:GetSecretValue.
    """
    unknown = sorted(set(settings) - _SETTINGS)
    if unknown:
        raise ConfigurationError(f"the secret {name}: the store aws has no settings {', '.join(unknown)}")
    config = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2, "mode": "standard"})
    try:
        client: Any = boto3.session.Session().client(
            "secretsmanager",
            region_name=settings.get("region"),
            endpoint_url=settings.get("endpoint_url"),
            config=config,
        )
        answer = client.get_secret_value(SecretId=name)
    except (BotoCoreError, ClientError, ValueError) as error:
        raise ConfigurationError(f"the secret {name} in AWS Secrets Manager cannot be read: {error}") from None
    if "SecretString" not in answer:
        raise ConfigurationError(f"the secret {name} in AWS Secrets Manager is binary: store the password as text")
    return str(answer["SecretString"])
