"""Human benchmarks: ranges of values that human studies have measured, with the studies' designs.

All numbers and their sources are in `human_bands.json`, one entry per benchmark.
"""

# Sentences give the simulated and the human values without a verdict. In most human studies people
# deliberated for days. Their values are no norm for a participant who only reads a text. Only three
# checks in `diagnostics` give a verdict by a benchmark: the spread of votes, the spread of ratings,
# and the stability of repeated numbers.

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from folkmoot.errors import FolkmootError
from folkmoot.hints import capitalise
from folkmoot.measures.inference.estimates import format_percent
from folkmoot.measures.wording import Sentence, word


@dataclass(frozen=True, slots=True)
class Band:
    """A human benchmark: values that human studies have measured for one quantity."""

    key: str
    label: str
    # What the people of these studies were asked, and when.
    design: str
    # The range, or NaN if only the centre is known (`low`, `high`).
    low: float
    high: float
    centre: float
    unit: str
    # Number of people.
    n: int
    # The meaning of the range, such as quantiles over studies.
    range: str
    # Author, year, title, DOI, measured quantity, and where the data are.
    source: str
    caveat: str
    # True if the values were recomputed from the data of the source.
    verified: bool = True

    @property
    def has_range(self) -> bool:
        """True if the benchmark has a range and not only a centre."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@cache
def human_bands() -> dict[str, Band]:
    """Return all human benchmarks, as a map from key to benchmark."""
    raw = json.loads(files("folkmoot.measures").joinpath("human_bands.json").read_text("utf-8"))
    sources = raw["sources"]
    return {b["key"]: _read_band(b, sources) for b in raw["bands"]}


def human_band(key: str) -> Band:
    """Return the human benchmark with this key.

    Raises FolkmootError if there is no such benchmark, or if its values are not verified.
    """
    bands = human_bands()
    if key not in bands:
        raise FolkmootError(f"no human band {key!r}; known: {', '.join(bands)}")
    if not bands[key].verified:
        raise FolkmootError(f"the human band {key!r} is not verified and enters no comparison")
    return bands[key]


def sentence(values_by_run: Mapping[str, Mapping[str, float]], band: Band) -> Sentence:
    """Return a sentence that lists values beside a human benchmark.

    - `values_by_run`: the values of each run, such as one for each condition.

    Example: "Changed their choice: 32 % to 91 % in people (design of the human studies); in this
    run Simple passive 16 %."
    """
    people = (
        f"{show(band.low, band)} to {show(band.high, band)}"
        if band.has_range
        else show(band.centre, band)
    )
    return word(
        "description",
        "beside humans",
        what=capitalise(band.label),
        people=people,
        design=band.design,
        values="; ".join(
            f"{run} {', '.join(f'{name} {show(value, band)}' for name, value in values.items())}"
            for run, values in values_by_run.items()
        ),
    )


def show(value: float, band: Band) -> str:
    """Return a value as text, in the unit of the human benchmark `band`."""
    if not math.isfinite(value):
        return "unknown"
    if band.unit == "share":
        return format_percent(value)
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
    return (
        f"{source['author']} ({source['year']}), {source['title']}, doi:{source['doi']}; "
        f"{source['measured']}; computed from the {source['data']}"
    )
