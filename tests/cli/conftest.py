"""The command line's tests share the driver's small world and the records made for tests of comparing."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / "runner"), str(TESTS / "compare")]
