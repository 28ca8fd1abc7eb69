"""Run the command line with `python -m folkmoot`, which works like `folkmoot`."""

from __future__ import annotations

from folkmoot.cli import main

main()
