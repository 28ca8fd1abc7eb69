"""Occupations by the education that they usually ask for; for the sources that make people."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml


@lru_cache(maxsize=4)
def occupations(country: str = "us") -> dict[str, list[str]]:
    """Education → occupations, from `occupations_<country>.yaml`."""
    path = Path(__file__).parent / f"occupations_{country}.yaml"
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs: dict[str, list[str]] = data["occupations"]
    return jobs
