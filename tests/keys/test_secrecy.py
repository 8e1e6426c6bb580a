"""No part of a private key in a log, an error, an answer or what a command prints: everything is kept and searched."""

from __future__ import annotations

import asyncio
import logging
import pprint
import traceback
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import structlog
from botocore.exceptions import ClientError, ParamValidationError

from mqenterprise.keys.aws import AwsKeyStore
from mqenterprise.keys.fleet import Fleet
from mqenterprise.keys.report import rows_of
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import KeyPair
from tests.keys.lab import NEEDED_FOR, NODE, WAITING, Bench


def secrets_of(pair: KeyPair) -> list[str]:
    """The private numbers of a pair, and its encoding, in the forms in which they could show."""
    assert pair.private_key is not None
    numbers = pair.private_key.signing_key.private_numbers()
    found = []
    for value in (numbers.d, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp):
        raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
        found += [str(value), f"{value:x}", raw.hex(), repr(raw)[2:-1], repr(raw[::-1])[2:-1], b64encode(raw).decode()]
    encoded = pair.private_key.to_der()
    return [*found, encoded.hex(), b64encode(encoded).decode(), repr(encoded)[2:-1]]


class Refusing:
    """A client of AWS of which every call fails with what it was given."""

    def __getattr__(self, name: str) -> Any:
        def fail(**request: Any) -> Any:
            if name == "get_secret_value":
                raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": repr(request)}}, name)
            if "SecretBinary" in request:
                raise ParamValidationError(report=repr(request))
            raise ClientError({"Error": {"Code": "InternalServiceError", "Message": repr(request)}}, name)

        return fail


async def test_a_rotation_says_nothing_of_private_keys(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench = Bench(tmp_path)
    with structlog.testing.capture_logs() as logged:
        await bench.rotate()
        bench.clock.now += 1000
        await bench.rotate()
        await bench.roll_back()
        secrets = [secret for pair in (await bench.store.read()).pairs for secret in secrets_of(pair)]
        looked = await bench.rotation.look()
        rows = list(rows_of(looked, WAITING, bench.clock.now, destroyed=True))
        bench.clock.now += NEEDED_FOR
        await bench.rotation.retire()
        fleet = await Fleet([NODE], bench.lists, WAITING, stores=lambda *_: bench.store).status()
    errors = []
    aws = AwsKeyStore(Refusing(), "qmnode/node")
    for attempt in (aws.replace(looked.pairs, expected_version=0), aws.replace((), expected_version=0)):
        try:
            await attempt
        except KeyStoreError as error:
            errors.append("".join(traceback.format_exception(error)))
    assert len(errors) == 2
    written = capfd.readouterr()
    shown = [
        *(pprint.pformat(each) for each in (logged, looked, rows, fleet, bench.store, aws, bench.lists)),
        *errors,
        caplog.text,
        written.out,
        written.err,
    ]
    assert len(secrets) > 100
    assert logged
    assert not [secret for secret in secrets for text in shown if secret in text]


def test_a_private_key_is_where_it_should_be_only(tmp_path: Path) -> None:
    """What the test above searches for is what a key store holds: the search would find it."""
    bench = Bench(tmp_path)
    asyncio.run(bench.rotate())
    (pair, *_) = bench.file.read_now().pairs
    stored = (tmp_path / "keys").read_text("ascii")
    assert any(secret in stored for secret in secrets_of(pair))
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077] == []
