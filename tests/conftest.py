"""Test helpers are imported by their plain names; Hypothesis keeps no clock."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("attncalc", deadline=None, max_examples=80, derandomize=True)
settings.load_profile("attncalc")
