"""Human ranges beside simulated values: where people's figures are known, inside or outside?

All figures and their sources live in `human_bands.json`, one entry per figure. A value outside
its band is no error, and one inside is no proof: the bands say what people have been seen to do.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from folkmoot.errors import FolkmootError

Place = Literal["inside", "below", "above", "no range"]


@dataclass(frozen=True, slots=True)
class Band:
    """A human range. `low` and `high` are NaN where only the centre is known.

    `range`: what low and high span; `n` people behind it; `source`: author, year, title, DOI, what
    was measured, and where the data are; `verified`: recomputed from those data.
    """

    key: str
    label: str
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
    return {b["key"]: _band(b, sources) for b in raw["bands"]}


def human_band(key: str) -> Band:
    """The band of that key, to be compared with. FolkmootError for a key that the data file does
    not have, or whose figures could not be verified."""
    bands = human_bands()
    if key not in bands:
        raise FolkmootError(f"no human band {key!r}; known: {', '.join(bands)}")
    if not bands[key].verified:
        raise FolkmootError(f"the human band {key!r} is not verified and enters no comparison")
    return bands[key]


def place(value: float, band: Band) -> Place:
    """Where a value lies; the limits themselves are inside."""
    if not band.has_range or not math.isfinite(value):
        return "no range"
    if value < band.low:
        return "below"
    return "above" if value > band.high else "inside"


def place_interval(low: float, high: float, band: Band) -> Place:
    """Where an interval lies: below or above only if all of it does, else inside."""
    if not band.has_range or not (math.isfinite(low) and math.isfinite(high)):
        return "no range"
    if high < band.low:
        return "below"
    return "above" if low > band.high else "inside"


def sentence(what: str, value: float, band: Band) -> str:
    """In words: "Simple passive: .16, outside the human range .32 to .91 (below)"."""
    found = place(value, band)
    if found == "no range":
        return f"{what}: {show(value, band)}; people: {show(band.centre, band)} ({band.range})."
    where = "inside" if found == "inside" else "outside"
    side = "" if found == "inside" else f" ({found})"
    span = f"{show(band.low, band)} to {show(band.high, band)}"
    return f"{what}: {show(value, band)}, {where} the human range of {span}{side}."


def show(value: float, band: Band) -> str:
    """A value in the unit of its band."""
    if not math.isfinite(value):
        return "unknown"
    if band.unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def variance_collapse(ratio: float, band: Band) -> bool:
    """Whether answers spread much less than people's: the ratio falls below the whole band."""
    return place(ratio, band) == "below"


def _band(raw: dict[str, object], sources: dict[str, dict[str, object]]) -> Band:
    def number(key: str) -> float:
        value = raw[key]
        return float(value) if isinstance(value, (int, float)) else math.nan

    source = sources[str(raw["source"])]
    return Band(
        str(raw["key"]),
        str(raw["label"]),
        number("low"),
        number("high"),
        number("centre"),
        str(raw["unit"]),
        int(number("n")),
        str(raw["range"]),
        _cited(source),
        str(raw["caveat"]),
        bool(source["verified"]),
    )


def _cited(source: dict[str, object]) -> str:
    """A source in one sentence."""
    return (
        f"{source['author']} ({source['year']}), {source['title']}, doi:{source['doi']}; "
        f"{source['measured']}; computed from the {source['data']}"
    )
