"""The style of all charts."""
# The colours can be told apart in greyscale and by colour-blind readers.

from __future__ import annotations

import vl_convert

# Okabe & Ito (2008), ordered so that neighbours also differ in lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#8C6D31", "#7A7A7A")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
BAND = "#B0B0B0"
# A placeholder colour that no chart uses. It is replaced by `currentColor`, which follows the light
# or dark theme of the page.
INK = "#010203"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

# Dots for each pixel of the drawing: 300 dpi if a chart of 500 pixels is printed 5 inches wide.
PNG_SCALE = 3


def svg_to_png(svg: str) -> bytes:
    """Return a complete SVG file as a PNG image."""
    image: bytes = vl_convert.svg_to_png(svg, scale=PNG_SCALE)
    return image


def chart_theme() -> dict[str, object]:
    """Return the Vega-Lite config of every chart."""
    return {
        # A transparent background lets the theme of the page show through.
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "domainColor": INK,
            "tickColor": INK,
            "gridColor": "#9A9A9A",
            "gridOpacity": 0.25,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 260,
            "labelFlush": False,
        },
        # Wide labels of a reader's font would run into the title.
        "axisY": {"titlePadding": 14},
        "axisQuantitative": {"tickCount": 7, "labelOverlap": "greedy"},
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "labelLimit": 260,
            "orient": "bottom",
            "columns": 2,
            # The reader's font may be wider than the font with which the renderer measured.
            "columnPadding": 36,
        },
        "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12},
        "title": {"color": INK, "fontSize": 13, "anchor": "start", "fontWeight": "bold"},
        "range": {"category": list(COLOURS), "heatmap": {"scheme": "viridis"}},
    }
