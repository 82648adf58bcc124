"""Run test files and record which lines each test reaches: `python tools/mutants/record.py FOLDER TEST_FILES...`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from reach import Recorder

if __name__ == "__main__":
    folder, root = Path(sys.argv[1]), Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests")]
    pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Recorder(folder, root)])
