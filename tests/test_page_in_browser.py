"""The page in a real browser: questions, links, files, the hub, errors, and without a network."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from page_site import built_site


def test_page_in_a_browser(tmp_path_factory: pytest.TempPathFactory) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium: Debian's package is chromium")
    site = built_site(tmp_path_factory)
    driver = import_module("build_page").installed() / "playwright-core/index.js"
    answered = subprocess.run(
        ["node", str(Path(__file__).parent / "page/browser.mjs"), str(site), str(driver), browser],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    wrong = {name: problem for name, problem in json.loads(answered.stdout).items() if problem}
    assert wrong == {}
