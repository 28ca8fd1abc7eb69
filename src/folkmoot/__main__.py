"""Run the command line with `python -m folkmoot`, the same as `folkmoot`."""

from __future__ import annotations

from folkmoot.cli import main

main()
