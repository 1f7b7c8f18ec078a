"""The command line. Importing it loads neither torch nor pandas: refusing an absent accelerator must be quick."""

from __future__ import annotations

from trnbench.cli.app import main

__all__ = ["main"]
