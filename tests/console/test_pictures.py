"""The pictures of docs/console.md, in an enterprise with something to see.

``CONSOLE_PICTURES=docs/assets/console pytest -m soak tests/console/test_pictures.py`` makes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.browser import browser, person
from tests.console.test_page import filled

if TYPE_CHECKING:
    from tests.console.conftest import ConsoleLab

__all__ = ["filled"]
pytestmark = [pytest.mark.servers, pytest.mark.soak]

ORDERS = f"queues/ALPHA/{quote(chr(92).join(('ALPHA', 'private$', 'orders')), safe='')}"
PICTURES = {
    "map": ("", 1180, "light"),
    "map-dark": ("", 1180, "dark"),
    "queues": ("queues", 1180, "light"),
    "queue": (ORDERS, 1180, "light"),
    "failures": ("failures", 1180, "light"),
    "routes": ("routes?from=ALPHA&to=GAMMA", 1180, "light"),
    "phone": ("failures", 400, "dark"),
}
LARGEST = 100_000
"""Bytes of a picture."""


def test_the_pictures_of_the_documentation(filled: ConsoleLab, tmp_path: Path) -> None:
    folder = Path(os.environ.get("CONSOLE_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as window:
        for name, (place, width, scheme) in PICTURES.items():
            with person(filled, window, width=width, scheme=scheme) as someone:
                someone.page.set_viewport_size({"width": width, "height": 640 if width > 400 else 760})
                someone.go(place)
                expect(someone.page.get_by_role("heading", level=1)).to_be_visible()
                someone.page.wait_for_load_state("networkidle")
                someone.page.wait_for_timeout(3500)  # a refresh: nodes that are down are known by then
                path = folder / f"{name}.png"
                someone.page.screenshot(path=path)
                assert path.stat().st_size < LARGEST, name
