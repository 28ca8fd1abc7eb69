"""Charts: labels, legends, ticks, and text alternatives."""

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


def read_texts(chart: Chart) -> list[str]:
    (svg,) = render_svgs(chart, "a picture")
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_long_options_are_broken_into_lines_without_overlap() -> None:
    long_option = "Youth job training programs"
    links = (
        ("arm", long_option, long_option, 40),
        ("arm", "b" * 60, long_option, 1),
        ("arm", "c", long_option, 1),
    )
    (svg,) = render_svgs(AlluvialChart(links), "flows")
    labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', svg)
    assert [text for _, _, text in labels if text.startswith(("Youth", "programs"))] == [
        *("Youth job training", "programs 40", "Youth job training", "programs 42")
    ]
    for side in {x for x, _, _ in labels[3:]}:
        ys = [float(y) for x, y, _ in labels[3:] if x == side]
        assert all(lower - upper >= 12.9 for upper, lower in pairwise(ys))
        assert max(ys) <= 230


@pytest.mark.parametrize("kind", ["differences", "options"])
def test_long_labels_are_shown_whole_on_two_lines(kind: str) -> None:
    names = ["level 4 (own sessions, 5 models, moderator)", "level 3 (own sessions, 5 models)"]
    chart: Chart = IntervalChart(
        ((" − ".join(names), 0.3, 0.1, 0.5), ("1 − 2", 0.1, 0.0, 0.2)),
        unit_values=(("1 − 2", 0.15),),
    )
    lines = [f"{names[0]} −", names[1], "1 −", "2"]
    if kind == "options":
        long_option = "Repair the old swimming pool and keep its entry free for all children"
        chart = BarChart(((long_option, "", 0.5), ("Park", "", 0.5)))
        lines = ["Repair the old swimming pool and keep its", "entry free for all children", "Park"]
    (svg,) = render_svgs(chart, "a picture")
    assert [line for line in re.findall(r">([^<>]+)</t", svg) if line in lines] == lines
    assert "…" not in svg


def test_panels_of_flows_have_one_width() -> None:
    links = (("few", "Park", "Park", 9), ("many", "Park", "Park", 60), ("many", "Jobs", "Park", 60))
    panels = render_svgs(AlluvialChart(links), "flows")
    assert len({re.search(r'viewBox="([^"]+)"', svg)[1] for svg in panels}) == 1  # type: ignore[index]


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
    labels = read_texts(chart)
    assert labels.count("one") == labels.count("two") == 1


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
def test_charts_follow_the_schema_of_vega_lite(chart: Chart) -> None:
    assert build_drawing(chart).to_dict(validate=True)["$schema"]


def test_nine_clusters_are_named_and_have_different_marks() -> None:
    groups = [f"cluster {i}" for i in range(9)]
    points = ScatterChart(tuple((i, i, group, f"p{i}") for i, group in enumerate(groups)))
    (svg,) = render_svgs(points, "map")
    assert [
        text for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg) if text in groups
    ] == groups
    marks = re.findall(r'aria-label="[^"]*group: (cluster \d)"[^>]*d="([^"]+)" fill="([^"]+)"', svg)
    assert len({(shape, colour) for _, shape, colour in marks}) == len(marks) == 9


def test_both_axes_of_a_matrix_have_the_same_order() -> None:
    names = [f"A{i:02d}" for i in range(1, 21)]
    cells = tuple((row, column, 1.0) for row in names for column in names if row != column)
    labels = [text for text in read_texts(Heatmap(cells)) if text in names]
    assert labels == names * 2 and len(labels) == 40


def test_small_shares_have_ticks_that_differ() -> None:
    labels = [
        text
        for text in read_texts(IntervalChart((("a", 0.01, 0.002, 0.02),), percent=True))
        if "%" in text
    ]
    assert len(labels) == len(set(labels)) > 2


def test_differences_of_shares_are_in_points() -> None:
    chart = IntervalChart((("a − b", 0.07, -0.1, 0.21),), "changed", 0.0, percent=True)
    labels = read_texts(chart)
    assert "changed, points" in labels and {"−10", "0", "+10"} <= {*labels}
    assert not any("%" in text for text in labels)


def test_charts_have_a_text_alternative_and_no_fixed_size() -> None:
    (svg,) = render_svgs(IntervalChart((("a", 1.0, 0.5, 1.5),)), 'says "this" & that')
    head = svg[: svg.index(">")]
    assert 'role="img"' in head and "says &quot;this&quot; &amp; that" in head
    assert "width=" not in head.replace("max-width:", "") and "currentColor" in svg


def test_neighbouring_colours_differ_in_luminance() -> None:
    def compute_luminance(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)

    shades = [compute_luminance(shade) for shade in COLOURS[:5]]
    assert all(max(first, blue) / min(first, blue) > 1.25 for first, blue in pairwise(shades)), (
        shades
    )


def test_prose_escapes_and_marks_code() -> None:
    assert format_prose("a < b, see `revote`") == "a &lt; b, see <code>revote</code>"


def test_a_column_of_mixed_cells_is_text() -> None:
    grid = ResultTable(("fact", "value", "n"), (("a", "x", 1), ("b", 2, None), ("c", "y", 2.5)))
    assert numeric_columns(grid) == [False, False, True]


def test_a_column_without_any_value_is_aligned_as_numbers() -> None:
    """Such as the bounds of intervals where there are too few units."""
    grid = ResultTable(("fact", "low"), (("a", None), ("b", None)))
    assert numeric_columns(grid) == [False, True]


def test_an_axis_of_shares_starts_at_zero_and_other_axes_at_the_data() -> None:
    share = IntervalChart((("a", 0.3, 0.25, 0.35),), "share", percent=True)
    assert "0%" in read_texts(share)
    gap = IntervalChart((("a", 1.3, 1.25, 1.35),), "mean")
    assert "0.0" not in read_texts(gap) and "0" not in read_texts(gap)


def test_cells_of_a_matrix_share_one_scale_and_legend() -> None:
    (svg,) = render_svgs(
        Heatmap((("a", "x", 0.2), ("a", "y", 0.4), ("b", "x", 0.2)), unit="share of it"), ""
    )
    cell = r'aria-label="column: (.); row: (.);[^"]*"[^>]*"rect mark"[^>]*fill="([^"]+)"'
    colours = {(row, column): colour for column, row, colour in re.findall(cell, svg)}
    assert colours["a", "x"] == colours["b", "x"] != colours["a", "y"]
    assert "share of it" in svg  # the title of the legend
    assert ">100%</text>" in svg  # the scale of shares always ends at 100 %


def test_ratios_have_a_logarithmic_axis_with_one_as_no_effect() -> None:
    chart = IntervalChart((("a", 2.0, 0.5, 8.0),), "odds ratio", 1.0, ratios=True)
    (svg,) = render_svgs(chart, "")
    assert {">0.5<", ">1<", ">2<", ">5<"} <= set(re.findall(r">[\d.]+<", svg))


def test_charts_show_keys_as_words_and_ids_unchanged() -> None:
    heatmap = Heatmap(
        (("elder_young", "travel_purpose", 1.0), ("p_0001", "C2", 0.5)), "group", "decision"
    )
    bars = BarChart((("room_type", "least_misery", 0.5),), "share")
    svg_text = "".join(render_svgs(heatmap, "Groups.") + render_svgs(bars, "Rules."))
    assert all(
        word in svg_text for word in ("elder young", "travel purpose", "room type", "p_0001")
    )
    assert not re.search("elder_young|travel_purpose|room_type|least_misery", svg_text)
