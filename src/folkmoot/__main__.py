"""`python -m folkmoot` is the same as `folkmoot`."""

from __future__ import annotations

from folkmoot.cli import main

main()
