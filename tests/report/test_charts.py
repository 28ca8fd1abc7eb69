"""Drawings: whole labels, one legend, whole ticks, names for those who cannot see them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from folkmoot.report.document.charts import build_drawing, render_svgs
from folkmoot.report.document.html import format_prose
from folkmoot.report.document.style import COLOURS
from folkmoot.storage.findings import (
    AlluvialChart,
    BarChart,
    Chart,
    Heatmap,
    IntervalChart,
    LineChart,
    ResultTable,
    ScatterChart,
    numeric_columns,
)


def texts(chart: Chart) -> list[str]:
    (svg,) = render_svgs(chart, "a picture")
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_long_options_are_broken_into_lines_that_do_not_stand_on_each_other() -> None:
    long = "Youth job training programs"
    links = (("arm", long, long, 40), ("arm", "b" * 60, long, 1), ("arm", "c", long, 1))
    (svg,) = render_svgs(AlluvialChart(links), "flows")
    said = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', svg)
    assert [t for _, _, t in said if t.startswith(("Youth", "programs"))] == [
        *("Youth job training", "programs 40", "Youth job training", "programs 42")
    ]
    for side in {x for x, _, _ in said[3:]}:
        ys = [float(y) for x, y, _ in said[3:] if x == side]
        assert all(b - a >= 12.9 for a, b in pairwise(ys))
        assert max(ys) <= 230


@pytest.mark.parametrize(
    "chart",
    [
        LineChart(
            (("one", 1, 0.2), ("one", 2, 0.5), ("two", 1, 0.3), ("two", 2, 0.1)), "round", "y"
        ),
        ScatterChart(((0.0, 0.0, "one", "p1"), (1.0, 1.0, "two", "p2"))),
    ],
)
def test_colour_and_shape_share_one_legend(chart: Chart) -> None:
    said = texts(chart)
    assert said.count("one") == said.count("two") == 1


@pytest.mark.parametrize(
    "chart",
    [
        IntervalChart((("one", 0.2, 0.1, 0.3), ("two", 0.3, 0.2, 0.5)), "share"),
        BarChart((("one", "x", 2), ("two", "y", 3)), "count"),
        LineChart((("one", 1, 0.2), ("one", 2, 0.5)), "round", "y"),
        Heatmap((("a", "b", 0.5), ("b", "a", 0.25)), "row", "column", "share"),
        ScatterChart(((0.0, 0.0, "one", "p1"), (1.0, 1.0, "two", "p2"))),
    ],
)
def test_a_drawing_follows_the_schema_of_vega_lite(chart: Chart) -> None:
    assert build_drawing(chart).to_dict(validate=True)["$schema"]


def test_nine_clusters_are_all_named_and_no_two_are_drawn_alike() -> None:
    groups = [f"cluster {i}" for i in range(9)]
    points = ScatterChart(tuple((i, i, g, f"p{i}") for i, g in enumerate(groups)))
    (svg,) = render_svgs(points, "map")
    assert [t for t in re.findall(r"<text[^>]*>([^<]+)</text>", svg) if t in groups] == groups
    drawn = re.findall(r'aria-label="[^"]*group: (cluster \d)"[^>]*d="([^"]+)" fill="([^"]+)"', svg)
    assert len({(shape, colour) for _, shape, colour in drawn}) == len(drawn) == 9


def test_people_stand_in_the_same_order_on_both_sides_of_a_square() -> None:
    names = [f"A{i:02d}" for i in range(1, 21)]
    cells = tuple((a, b, 1.0) for a in names for b in names if a != b)
    said = [t for t in texts(Heatmap(cells)) if t in names]
    assert said == names * 2 and len(said) == 40


def test_small_shares_have_ticks_that_differ() -> None:
    said = [t for t in texts(IntervalChart((("a", 0.01, 0.002, 0.02),), percent=True)) if "%" in t]
    assert len(said) == len(set(said)) > 2


def test_a_difference_of_shares_is_drawn_in_points() -> None:
    chart = IntervalChart((("a − b", 0.07, -0.1, 0.21),), "changed", 0.0, percent=True)
    said = texts(chart)
    assert "changed, points" in said and {"−10", "0", "+10"} <= {*said}
    assert not any("%" in text for text in said)


def test_every_drawing_has_a_name_and_no_size_of_its_own() -> None:
    (svg,) = render_svgs(IntervalChart((("a", 1.0, 0.5, 1.5),)), 'says "this" & that')
    head = svg[: svg.index(">")]
    assert 'role="img"' in head and "says &quot;this&quot; &amp; that" in head
    assert "width=" not in head.replace("max-width:", "") and "currentColor" in svg


def test_neighbouring_colours_differ_in_grey() -> None:
    def grey(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return float(0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2)

    shades = [grey(c) for c in COLOURS[:5]]
    assert all(max(a, b) / min(a, b) > 1.25 for a, b in pairwise(shades)), shades


def test_prose_escapes_and_marks_code() -> None:
    assert format_prose("a < b, see `revote`") == "a &lt; b, see <code>revote</code>"


def test_a_column_of_mixed_cells_is_text() -> None:
    grid = ResultTable(("fact", "value", "n"), (("a", "x", 1), ("b", 2, None), ("c", "y", 2.5)))
    assert numeric_columns(grid) == [False, False, True]


def test_an_axis_of_shares_starts_at_nothing_and_one_of_differences_where_they_are() -> None:
    share = IntervalChart((("a", 0.3, 0.25, 0.35),), "share", percent=True)
    assert "0%" in texts(share)
    gap = IntervalChart((("a", 1.3, 1.25, 1.35),), "mean")
    assert "0.0" not in texts(gap) and "0" not in texts(gap)


def test_cells_of_a_matrix_share_one_scale_and_its_legend() -> None:
    (svg,) = render_svgs(
        Heatmap((("a", "x", 0.2), ("a", "y", 0.4), ("b", "x", 0.2)), unit="share of it"), ""
    )
    cell = r'aria-label="column: (.); row: (.);[^"]*"[^>]*"rect mark"[^>]*fill="([^"]+)"'
    shown = {(row, column): colour for column, row, colour in re.findall(cell, svg)}
    assert shown["a", "x"] == shown["b", "x"] != shown["a", "y"]
    assert "share of it" in svg  # the title of the legend
    assert ">100%</text>" in svg  # shares end at 100 %, whatever the largest of them


def test_ratios_stand_on_their_own_axis_with_one_as_no_effect() -> None:
    chart = IntervalChart((("a", 2.0, 0.5, 8.0),), "odds ratio", 1.0, ratios=True)
    (svg,) = render_svgs(chart, "")
    assert {">0.5<", ">1<", ">2<", ">5<"} <= set(re.findall(r">[\d.]+<", svg))


def test_keys_of_data_stand_in_a_drawing_as_words_and_ids_as_they_are() -> None:
    heat = Heatmap(
        (("elder_young", "travel_purpose", 1.0), ("p_0001", "C2", 0.5)), "group", "decision"
    )
    bars = BarChart((("room_type", "least_misery", 0.5),), "share")
    drawn = "".join(render_svgs(heat, "Groups.") + render_svgs(bars, "Rules."))
    assert all(word in drawn for word in ("elder young", "travel purpose", "room type", "p_0001"))
    assert not re.search("elder_young|travel_purpose|room_type|least_misery", drawn)
