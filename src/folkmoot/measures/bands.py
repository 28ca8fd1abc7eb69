"""Human ranges beside simulated values: what people have been seen to do, and in which design.

All figures and their sources are in `human_bands.json`, one entry per figure. The words state both
values and the design of the human studies, and give no verdict: a figure from days of deliberation
is no norm for minutes of reading. The checks that do compare (`diagnostics.shrinking_variance`)
take a band as their margin and say so.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from folkmoot.errors import FolkmootError


@dataclass(frozen=True, slots=True)
class Band:
    """A human range. `low` and `high` are NaN where only the centre is known.

    `design`: what was asked of these people, and when; `range`: what low and high span; `n` people
    behind it; `source`: author, year, title, DOI, what was measured, and where the data are;
    `verified`: recomputed from those data.
    """

    key: str
    label: str
    design: str
    low: float
    high: float
    centre: float
    unit: str
    n: int
    range: str
    source: str
    caveat: str
    verified: bool = True

    @property
    def has_range(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


@cache
def human_bands() -> dict[str, Band]:
    """All bands by key, as the data file has them."""
    raw = json.loads(files("folkmoot.measures").joinpath("human_bands.json").read_text("utf-8"))
    sources = raw["sources"]
    return {b["key"]: _read_band(b, sources) for b in raw["bands"]}


def human_band(key: str) -> Band:
    """The band of that key, to be compared with. FolkmootError for a key that the data file does
    not have, or whose figures could not be verified."""
    bands = human_bands()
    if key not in bands:
        raise FolkmootError(f"no human band {key!r}; known: {', '.join(bands)}")
    if not bands[key].verified:
        raise FolkmootError(f"the human band {key!r} is not verified and enters no comparison")
    return bands[key]


def sentence(what: str, value: float, band: Band) -> str:
    """In words: "Simple passive: 16 %; people: 32 % to 91 % (design of the human studies)"."""
    people = (
        f"{show(band.low, band)} to {show(band.high, band)}"
        if band.has_range
        else show(band.centre, band)
    )
    return f"{what}: {show(value, band)}; people: {people} ({band.design})."


def show(value: float, band: Band) -> str:
    """A value in the unit of its band."""
    if not math.isfinite(value):
        return "unknown"
    if band.unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _read_band(raw: dict[str, object], sources: dict[str, dict[str, object]]) -> Band:
    def read_number(key: str) -> float:
        value = raw[key]
        return float(value) if isinstance(value, (int, float)) else math.nan

    source = sources[str(raw["source"])]
    return Band(
        str(raw["key"]),
        str(raw["label"]),
        str(raw["design"]),
        read_number("low"),
        read_number("high"),
        read_number("centre"),
        str(raw["unit"]),
        int(read_number("n")),
        str(raw["range"]),
        _format_citation(source),
        str(raw["caveat"]),
        bool(source["verified"]),
    )


def _format_citation(source: dict[str, object]) -> str:
    """A source in one sentence."""
    return (
        f"{source['author']} ({source['year']}), {source['title']}, doi:{source['doi']}; "
        f"{source['measured']}; computed from the {source['data']}"
    )
