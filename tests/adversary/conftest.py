"""ALICE and BOB, who are honest, at addresses of their own; a hostile peer has another."""

from __future__ import annotations

import pytest

from tests.console.conftest import lab as console_lab
from tests.transport.conftest import loopback_address, pair

__all__ = ["console_lab", "pair"]


@pytest.fixture
async def own() -> str:
    """The attacker's address."""
    return loopback_address()
