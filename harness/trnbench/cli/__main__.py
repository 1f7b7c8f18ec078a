"""`python -m trnbench.cli`: the command line without the installed script."""

from __future__ import annotations

import sys

from trnbench.cli.app import main

sys.exit(main())
