"""A process that asks about records until it is done or killed.

Usage: asking_process.py HOME TASK.yaml. Started by test_killed.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from longline.cli.commands.enrich import enrich_command

if __name__ == "__main__":
    home, task = map(Path, sys.argv[1:])
    enrich_command(["run", str(task), "--home", str(home), "--json"])
