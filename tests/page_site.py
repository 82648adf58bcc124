"""The built page for tests, and what it is built with."""

import os
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from asking import REPOSITORY

sys.path[:0] = [str(REPOSITORY / "docs/page"), str(REPOSITORY / "tools")]
# Seconds to wait for another worker of pytest that builds the page.
PATIENCE = 300


def built_site(factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the page, which the first worker of pytest that needs it builds, or
    the one that ATTNCALC_PAGE_SITE names.

    Skips the test without node or npm, or if npm cannot install what the page is made of.
    """
    if "ATTNCALC_PAGE_SITE" in os.environ:
        return REPOSITORY / os.environ["ATTNCALC_PAGE_SITE"]
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the page cannot be built")
    own = factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    site, done = shared / "page", shared / "page.done"
    try:
        site.mkdir()
    except FileExistsError:
        end = time.monotonic() + PATIENCE
        while not done.exists() and time.monotonic() < end:
            time.sleep(0.2)
    else:
        try:
            _build(site)
            done.write_text("", encoding="utf-8")
        except BaseException as error:
            done.write_text(str(error) or type(error).__name__, encoding="utf-8")
            raise
    if problem := done.read_text(encoding="utf-8"):
        pytest.skip(problem)
    return site


def _build(site: Path) -> None:
    build_page = import_module("build_page")
    try:
        build_page.installed()
    except subprocess.CalledProcessError:
        pytest.skip("npm cannot install Pyodide: there is no network")
    build_page.build(site)
