"""Occupations by the education that they usually ask for; for the sources that make people."""

from __future__ import annotations

from functools import lru_cache

from folkmoot.files import packaged_yaml


@lru_cache(maxsize=4)
def occupations(country: str = "us") -> dict[str, list[str]]:
    """Education → occupations, from `occupations_<country>.yaml`."""
    jobs: dict[str, list[str]] = packaged_yaml(__file__, f"occupations_{country}.yaml")[
        "occupations"
    ]
    return jobs
