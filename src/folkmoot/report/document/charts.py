"""Draw the charts of findings as SVG without scripts, for both HTML and PDF."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from folkmoot.hidden_characters import without_hidden
from folkmoot.report.document.alluvial import draw_alluvial
from folkmoot.report.document.style import BAND, COLOURS, INK, SHAPES, chart_theme
from folkmoot.storage.findings import (
    AlluvialChart,
    BarChart,
    Chart,
    Heatmap,
    IntervalChart,
    LineChart,
    ScatterChart,
    column_heading,
)

# To Altair, channels are given as objects: it spends 10 ms on each that is written as text.

# A chart with its labels is about this wide in pixels, which is still readable on a phone.
WIDTH = 500
# If a chart has more series, they are drawn thin and without a legend.
MOST_NAMED = 8
# In a scatter chart, readers can distinguish this many combinations of colour and shape.
MOST_GROUPS = 24
# The renderer cuts lines of labels that are longer.
MOST_CHARACTERS = 45
# The height of a line in pixels. The expression splits a label into the lines of `_break_label`.
LINE_HEIGHT = 13
LINES = "split(datum.label, '\\n')"
# Pixels of extra room for each character of a label.
WIDER = 0.8
# This format has enough decimals to keep two ticks distinct.
PERCENT = "~%"
# Axis labels of a difference of shares, which is given in percentage points.
POINTS = "datum.value ? format(100 * datum.value, '+~g') : '0'"
# A legend of a colour scale has at most this many ticks.
MOST_TICKS = 6


def render_svgs(chart: Chart, description: str) -> list[str]:
    """Draw a chart as one SVG or as several panels.

    - `description`: the text alternative for screen readers.

    The list is empty for a board of cards.
    """
    chart = _word_keys(chart)
    if isinstance(chart, AlluvialChart):
        return [_add_accessible_name(svg, description) for svg in draw_alluvial(chart)]
    drawing = build_drawing(chart)
    return (
        []
        if drawing is None
        else [_add_accessible_name(_render_svg(drawing, _left_labels(chart)), description)]
    )


def build_drawing(chart: Chart) -> Any:
    """Return the Altair chart of a finding.

    Returns None for a kind of chart that Altair does not draw.
    """
    draw = _DRAW.get(type(chart))
    if draw is None:
        return None
    # Altair would validate each part when it is made. A test validates each kind of chart as a
    # whole.
    with debug_mode(False):
        return draw(chart)


def _render_svg(chart: Any, labels: list[str]) -> str:
    # Validation would take a sixth of the time of a report.
    spec = _remove_unprintable(chart.to_dict(validate=False))
    spec["config"] = chart_theme()
    # The reader's font may be wider than the font with which the renderer measured the labels.
    # A side that is not named has no padding, and letters of the axis title would be cut below.
    left = 5 + WIDER * max(map(len, labels), default=0)
    # Its digits may be taller as well, and the topmost label of an axis would be cut above.
    spec["padding"] = {"left": left, "right": 12, "top": 8, "bottom": 5}
    return _convert_to_svg(json.dumps(spec))


# The page, the PDF and the saved figures of a run show the same charts, and each takes 50 ms.
@lru_cache(maxsize=128)
def _convert_to_svg(spec_json: str) -> str:
    # The renderer reads JSON more strictly than an object: it refuses a NaN.
    return str(vl_convert.vegalite_to_svg(json.loads(spec_json)))


def _word_keys(chart: Any) -> Any:
    texts = ("items", "unit_values", "bands", "links", "unit", "x", "y", "row", "column")
    named = [name for name in texts if hasattr(chart, name)]
    return replace(chart, **{name: _readable_words(getattr(chart, name)) for name in named})


def _readable_words(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_readable_words, value))
    return column_heading(value) if isinstance(value, str) and _KEY.fullmatch(value) else value


_KEY = re.compile(r"[a-z]+(?:_[a-z]+)+")


def _left_labels(chart: Any) -> list[str]:
    # Each line counts as a label.
    labels: list[str] = []
    if isinstance(chart, Heatmap):
        labels = _values_in_order(chart.items, 0)
    elif isinstance(chart, IntervalChart | BarChart):
        labels = [*_lines_by_label(chart.items).values()]
    return [line[:MOST_CHARACTERS] for label in labels for line in label.split("\n")]


def _lines_by_label(items: tuple[Any, ...]) -> dict[str, str]:
    # If a label is too long, all get a second line if they can: differences after the minus, other
    # labels between words.
    labels = _values_in_order(items, 0)
    fits = max(map(len, labels), default=0) < MOST_CHARACTERS
    return {label: label if fits else _break_label(label) for label in labels}


def _with_lines(items: tuple[Any, ...], lines_by_label: dict[str, str]) -> tuple[Any, ...]:
    return tuple((lines_by_label[str(label)], *rest) for label, *rest in items)


def _break_label(label: str) -> str:
    first, minus, second = label.partition(" − ")
    if minus and " − " not in second:
        return f"{first} −\n{second}"
    start = textwrap.shorten(label, MOST_CHARACTERS - 1, placeholder="")
    is_cut = label.startswith(f"{start} ") and start
    return f"{start}\n{label[len(start) + 1 :]}" if is_cut else label


def _label_axis(lines_by_label: dict[str, str]) -> Any:
    # The axis puts the first line at the tick.
    line_counts = {lines.count("\n") for lines in lines_by_label.values()}
    offset = -LINE_HEIGHT / 2 if line_counts == {1} else 0
    return alt.Axis(labelExpr=LINES, labelOffset=offset) if 1 in line_counts else alt.Axis()


def _remove_unprintable(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {_remove_unprintable(key): _remove_unprintable(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [_remove_unprintable(value) for value in spec]
    return without_hidden(spec) if isinstance(spec, str) else spec


def _add_accessible_name(svg: str, description: str) -> str:
    # Without width and height, a drawing fills its column and keeps its proportions.
    svg, description = svg.replace(INK, "currentColor"), without_hidden(description)
    head = re.match(r"<svg[^>]*>", svg)
    assert head is not None
    old = head[0]
    width = re.search(r'width="([\d.]+)"', old)
    new = re.sub(r'\s(?:width|height|aria-label|role|class)="[^"]*"', "", old)
    style = f' style="max-width:{float(width[1]):.0f}px"' if width else ""
    label = escape(description, quote=True)
    new = new.replace("<svg", f'<svg role="img" aria-label="{label}"{style}', 1)
    return f"{new}<title>{escape(description)}</title>{svg[len(old) :]}"


def _inline_data(names: tuple[str, ...], items: tuple[Any, ...]) -> Any:
    # Altair copies lists whenever something is added to a chart, but not tuples.
    return alt.InlineData(values=tuple(dict(zip(names, item, strict=True)) for item in items))


def _values_in_order(items: tuple[Any, ...], index: int) -> list[str]:
    return list(dict.fromkeys(str(item[index]) for item in items))


def _interval_spec(chart: IntervalChart) -> Any:
    lines = _lines_by_label((*chart.items, *chart.unit_values))
    data = _inline_data(("label", "value", "low", "high"), _with_lines(chart.items, lines))
    axis = alt.Axis(format=PERCENT) if chart.percent else alt.Axis()
    y = alt.Y("label:N", sort=[*lines.values()], title=None, axis=_label_axis(lines))
    title = chart.unit or None
    if chart.percent and chart.reference_line is not None:
        axis = alt.Axis(labelExpr=POINTS)
        title = f"{chart.unit}, points".removeprefix(", ")
    # The axis of shares starts at 0 %, so that readers can compare lengths. Other measures have no
    # such zero.
    scale = alt.Scale(zero=chart.percent and chart.reference_line is None)
    if chart.ratios:
        axis, scale = _ratio_axis(chart), alt.Scale(type="log", nice=False)
    x = alt.X("value:Q", title=title, axis=axis, scale=scale)
    layers = []
    if chart.bands:
        bands = _inline_data(("name", "low", "high"), chart.bands)
        layers.append(
            alt.Chart(bands)
            .mark_rect(color=BAND, opacity=0.35)
            .encode(x=alt.X("low:Q", title=title, axis=axis), x2=alt.X2("high:Q"))
        )
        layers.append(
            alt.Chart(bands)
            .mark_text(color=INK, align="left", dy=-3, baseline="bottom", fontSize=11)
            .encode(x=alt.X("low:Q"), y=alt.value(0), text=alt.Text("name:N"))
        )
    if chart.reference_line is not None:
        zero = alt.InlineData(values=[{"zero": chart.reference_line}])
        layers.append(
            alt.Chart(zero).mark_rule(color=INK, strokeDash=[4, 3]).encode(x=alt.X("zero:Q"))
        )
    if chart.margins:
        margins = alt.InlineData(values=[{"margin": margin} for margin in chart.margins])
        layers.append(
            alt.Chart(margins).mark_rule(color=INK, strokeDash=[1, 3]).encode(x=alt.X("margin:Q"))
        )
    base = alt.Chart(data)
    layers.append(
        base.mark_rule(color=COLOURS[0], strokeWidth=2).encode(
            x=alt.X("low:Q", title=title, axis=axis), x2=alt.X2("high:Q"), y=y
        )
    )
    layers.append(
        base.mark_point(color=COLOURS[0], filled=True, size=70, opacity=1).encode(x=x, y=y)
    )
    if chart.unit_values:
        each = _inline_data(("label", "value"), _with_lines(chart.unit_values, lines))
        dots = alt.Chart(each).mark_point(color=INK, filled=False, size=50, opacity=1)
        layers.append(dots.encode(x=x, y=y))
    height = 34 * max(1, len(chart.items)) + (18 if chart.bands else 0)
    return alt.layer(*layers).properties(width=WIDTH - 180, height=height)


def _ratio_axis(chart: IntervalChart) -> alt.Axis:
    ends = [end for _, _, *both in chart.items for end in both if end > 0]
    powers = range(math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends))) + 1)
    return alt.Axis(values=[n * 10.0**power for power in powers for n in (1, 2, 5)], format="~g")


def _bar_spec(chart: BarChart) -> Any:
    series = _values_in_order(chart.items, 1)
    lines = _lines_by_label(chart.items)
    categories = [*lines.values()]
    counts = all(float(item[2]).is_integer() for item in chart.items)
    axis = alt.Axis(format=PERCENT) if chart.percent else alt.Axis()
    title = chart.unit or None
    if counts and not chart.percent:
        axis = _category_axis([0.0, *(item[2] for item in chart.items)])
    # Shares cannot be negative, so these are changes of shares.
    if chart.percent and any(item[2] < 0 for item in chart.items):
        axis, title = alt.Axis(labelExpr=POINTS), f"{chart.unit}, points".removeprefix(", ")
    several = len(series) > 1
    encoding: dict[str, Any] = {
        "y": alt.Y("category:N", sort=categories, title=None, axis=_label_axis(lines)),
        "x": alt.X("value:Q", title=title, axis=axis, stack=None),
        "color": alt.Color(
            "series:N", sort=series, title=None, legend=alt.Legend() if several else None
        ),
    }
    if several:
        encoding["yOffset"] = alt.YOffset("series:N", sort=series)
    data = _inline_data(("category", "series", "value"), _with_lines(chart.items, lines))
    has_breaks = any("\n" in category for category in categories)
    step = max(14 * len(series) + 12, 2.5 * LINE_HEIGHT if has_breaks else 0)
    height = max(60, len(categories) * step)
    return (
        alt.Chart(data).mark_bar().encode(**encoding).properties(width=WIDTH - 180, height=height)
    )


def _line_spec(chart: LineChart) -> Any:
    series = _values_in_order(chart.items, 0)
    data = _inline_data(("series", "x", "y"), chart.items)
    named = len(series) <= MOST_NAMED
    colour = _colour_encoding("series", series) if named else alt.ColorValue(COLOURS[0])
    base = alt.Chart(data).encode(
        x=alt.X(
            "x:Q", title=chart.x or None, axis=_whole_tick_axis(chart), scale=alt.Scale(zero=False)
        ),
        y=alt.Y("y:Q", title=chart.y or None, scale=alt.Scale(zero=False)),
        color=colour,
        detail=alt.Detail("series:N"),
    )
    if not named:
        line = base.mark_line(strokeWidth=1, opacity=0.45)
        return line.properties(width=WIDTH - 90, height=240)
    line = base.mark_line(strokeWidth=2)
    dots = base.mark_point(filled=True, size=45, opacity=1).encode(
        shape=_shape_encoding("series", series)
    )
    both = alt.layer(line, dots)
    return both.properties(width=WIDTH - 90, height=240)


def _colour_encoding(field: str, values: list[str], shown: bool = True) -> alt.Color:
    scale = alt.Scale(domain=values, range=[COLOURS[i % len(COLOURS)] for i in range(len(values))])
    legend = alt.Legend() if shown else None
    return alt.Color(f"{field}:N", scale=scale, title=None, legend=legend)


def _shape_encoding(field: str, values: list[str], shown: bool = True) -> alt.Shape:
    scale = alt.Scale(domain=values, range=[SHAPES[i % len(SHAPES)] for i in range(len(values))])
    legend = alt.Legend() if shown else None
    return alt.Shape(f"{field}:N", scale=scale, title=None, legend=legend)


def _whole_tick_axis(chart: LineChart) -> alt.Axis:
    values = [float(x) for _, x, _ in chart.items]
    return _category_axis(values) if all(x.is_integer() for x in values) else alt.Axis()


def _category_axis(values: list[float]) -> alt.Axis:
    low, high = int(min(values)), int(max(values))
    if high - low <= 12:
        return alt.Axis(values=list(range(low, high + 1)), format="d")
    return alt.Axis(tickMinStep=1, format="d")


def _heatmap_spec(chart: Heatmap) -> Any:
    rows, columns = _values_in_order(chart.items, 0), _values_in_order(chart.items, 1)
    if set(rows) == set(columns):
        # If rows and columns are the same items, a common order puts the diagonal on one line.
        columns = rows
    values = [item[2] for item in chart.items]
    low, high = _colour_scale_ends(chart, values)
    number = ".0%" if _holds_shares(chart, values) else ".3~g"
    data = _inline_data(("row", "column", "value"), chart.items)
    base = alt.Chart(data).encode(
        y=alt.Y("row:N", sort=rows, title=chart.row or None, axis=alt.Axis(labelOverlap=False)),
        x=alt.X(
            "column:N",
            sort=columns,
            title=chart.column or None,
            axis=alt.Axis(labelAngle=-40, labelOverlap=False),
        ),
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "value:Q",
            title=chart.unit or "value",
            scale=alt.Scale(scheme="cividis", domain=[low, high]),
            # The legend uses squares instead of a gradient: all drawings of a page would share the
            # id of the gradient.
            legend=alt.Legend(
                type="symbol",
                symbolType="square",
                symbolStrokeWidth=0,
                values=round_ticks(low, high, whole=all(float(x).is_integer() for x in values)),
                format=PERCENT if number == ".0%" else "~g",
                columns=MOST_TICKS,
            ),
        )
    )
    size = min(30.0, 480 / max(1, len(columns)))
    layers = [cells]
    if size >= 18:
        text = base.mark_text(fontSize=10).encode(
            text=alt.Text("value:Q", format=number),
            color=alt.condition(
                alt.datum.value > (low + high) / 2, alt.value("#000000"), alt.value("#ffffff")
            ),
        )
        layers.append(text)
    return alt.layer(*layers).properties(
        width=max(120, size * len(columns)), height=max(40, min(size, 26) * len(rows))
    )


def _colour_scale_ends(chart: Heatmap, values: list[float]) -> tuple[float, float]:
    # Shares have the scale 0 to 1. Any other scale begins at 0, or at a negative minimum.
    if not values:
        return 0.0, 1.0
    if _holds_shares(chart, values):
        return 0.0, 1.0
    low = min(0.0, *values)
    # A scale needs a width, also if no value is above its low end.
    return low, max(values) if max(values) > low else low + 1


def _holds_shares(chart: Heatmap, values: list[float]) -> bool:
    return "share" in chart.unit and all(0 <= value <= 1 for value in values)


def round_ticks(low: float, high: float, *, whole: bool) -> list[float]:
    """Return up to six round numbers from `low` to `high`.

    `whole`: only whole numbers, for values that are counts.
    """
    # Multiples of 1, 2, 2.5 or 5 × 10ⁿ.
    power = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    steps = [factor * power * tens for tens in (1, 10, 100) for factor in (1, 2, 2.5, 5)]
    for step in steps:
        if whole and not step.is_integer():
            continue
        # The division leaves a tiny error, which must not lose a tick at the end of the scale.
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < MOST_TICKS:
            # Fifteen digits remove the error of the multiplication, such as 0.6000000000000001.
            return [float(f"{step * number:.15g}") for number in range(first, last + 1)]
    return [low, high]


def _scatter_plot(chart: ScatterChart) -> Any:
    groups = _values_in_order(chart.items, 2)
    data = _inline_data(("x", "y", "group", "label"), chart.items)
    named = len(groups) <= MOST_GROUPS
    return (
        alt.Chart(data)
        .mark_point(filled=True, size=28, opacity=0.75)
        .encode(
            x=alt.X("x:Q", title=chart.x or None),
            y=alt.Y("y:Q", title=chart.y or None),
            color=_colour_encoding("group", groups, named),
            shape=_shape_encoding("group", groups, named),
        )
        .properties(width=WIDTH - 90, height=320)
    )


_DRAW: dict[type, Callable[[Any], Any]] = {
    IntervalChart: _interval_spec,
    BarChart: _bar_spec,
    LineChart: _line_spec,
    Heatmap: _heatmap_spec,
    ScatterChart: _scatter_plot,
}
