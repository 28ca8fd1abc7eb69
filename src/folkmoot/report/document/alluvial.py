"""Draw how votes moved from the first to the final choice, as ribbons."""
# Vega-Lite has no chart of this kind, so the module computes the geometry itself.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from folkmoot.report.document.style import COLOURS, FONT, INK
from folkmoot.storage.findings import AlluvialChart

# All lengths are pixels of the SVG.
HEIGHT = 230.0
TOP, BAR, GAP = 34.0, 14.0, 8.0
# Width of the ribbons between the two bars.
BETWEEN = 170.0
# Estimated width of a letter at font size 12, and the most letters in one line of a label. A reader
# without the fonts of the drawing may see a wider one.
LETTER, LONGEST = 7.0, 22
LINE = 13.0


@dataclass(frozen=True, slots=True)
class _Slot:
    # The vertical space of one option on a bar. `y` is the upper edge, in pixels.
    y: float
    height: float


def draw_alluvial(flow: AlluvialChart) -> list[str]:
    """Return one SVG for each panel of the chart."""
    # The order of options and their colours are the same in all panels.
    options = list(dict.fromkeys(name for link in flow.links for name in (link[1], link[2])))
    panels = list(dict.fromkeys(link[0] for link in flow.links))
    # Panels of one width have one scale on a page, so the labels of all panels count.
    votes: Counter[tuple[str, str, str]] = Counter()
    for panel, first, final, count in flow.links:
        votes.update({(panel, "first", first): count, (panel, "final", final): count})
    longest = max(
        (
            len(line)
            for (_, _, option), count in votes.items()
            for line in _draw_label(option, count)
        ),
        default=0,
    )
    side = BAR + 10 + LETTER * longest
    return [
        _draw_panel(panel, [link for link in flow.links if link[0] == panel], options, votes, side)
        for panel in panels
    ]


def _draw_panel(
    panel: str,
    links: Sequence[tuple[str, str, str, int]],
    options: Sequence[str],
    votes: Mapping[tuple[str, str, str], int],
    side: float,
) -> str:
    # `votes`: the votes by panel, vote (first or final) and option. `side`: the pixels for the
    # labels and the bar on each side.
    left, right = (
        {option: votes.get((panel, vote, option), 0) for option in options}
        for vote in ("first", "final")
    )
    width = 2 * side + BETWEEN
    total = sum(left.values())
    # Both stacks have one scale, so that equal heights are equal numbers of votes.
    scale = (HEIGHT - TOP - GAP * (len(options) - 1) - 6) / total if total else 0.0
    starts, ends = _stack_slots(left, scale), _stack_slots(right, scale)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{HEIGHT:g}" '
        f'viewBox="0 0 {width:g} {HEIGHT:g}" font-family="{FONT}" font-size="12" fill="{INK}">',
        f'<text x="0" y="14" font-weight="bold" font-size="13">{escape(panel)}</text>',
        f'<text x="{side:g}" y="28" text-anchor="middle" font-size="11">first</text>',
        f'<text x="{width - side:g}" y="28" text-anchor="middle" font-size="11">final</text>',
    ]
    parts += _draw_ribbons(links, options, starts, ends, scale, side)
    parts += _draw_bars(left, starts, side - BAR, "end", options)
    parts += _draw_bars(right, ends, width - side, "start", options)
    return "".join([*parts, "</svg>"])


def _stack_slots(counts: dict[str, int], scale: float) -> dict[str, _Slot]:
    slots: dict[str, _Slot] = {}
    y = TOP
    for option, n in counts.items():
        slots[option] = _Slot(y, n * scale)
        y += n * scale + GAP
    return slots


def _draw_ribbons(
    links: Sequence[tuple[str, str, str, int]],
    options: Sequence[str],
    starts: dict[str, _Slot],
    ends: dict[str, _Slot],
    scale: float,
    side: float,
) -> list[str]:
    used_left = dict.fromkeys(options, 0.0)
    used_right = dict.fromkeys(options, 0.0)
    counts = {(arm, b): n for _, arm, b, n in links}
    x0, x1 = side, side + BETWEEN
    middle = (x0 + x1) / 2
    parts = []
    for option in options:
        for b in options:
            n = counts.get((option, b), 0)
            if not n:
                continue
            thick = n * scale
            y0 = starts[option].y + used_left[option]
            y1 = ends[b].y + used_right[b]
            used_left[option] += thick
            used_right[b] += thick
            colour = COLOURS[options.index(option) % len(COLOURS)]
            # Ribbons of participants who kept their choice are pale, so that changes are visible.
            opacity = 0.25 if option == b else 0.75
            parts.append(
                f'<path d="M{x0:.1f} {y0:.1f} C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} '
                f"{x1:.1f} {y1:.1f} L{x1:.1f} {y1 + thick:.1f} C{middle:.1f} {y1 + thick:.1f} "
                f'{middle:.1f} {y0 + thick:.1f} {x0:.1f} {y0 + thick:.1f} Z" fill="{colour}" '
                f'fill-opacity="{opacity}">'
                f"<title>{escape(option)} to {escape(b)}: {n}</title></path>"
            )
    return parts


def _draw_bars(
    counts: dict[str, int],
    slots: dict[str, _Slot],
    left: float,
    anchor: str,
    options: Sequence[str],
) -> list[str]:
    labels = {option: _draw_label(option, counts[option]) for option in slots}
    middles = _separate_labels(
        [slots[slot].y + slots[slot].height / 2 for slot in slots],
        [LINE * len(labels[slot]) for slot in slots],
    )
    at = left - 5 if anchor == "end" else left + BAR + 5
    parts = []
    for (option, slot), middle in zip(slots.items(), middles, strict=True):
        colour = COLOURS[list(options).index(option) % len(COLOURS)]
        parts.append(
            f'<rect x="{left:.1f}" y="{slot.y:.1f}" width="{BAR}" '
            f'height="{max(slot.height, 0.5):.1f}" fill="{colour}"/>'
        )
        lines = labels[option]
        first = middle + 4 - LINE * (len(lines) - 1) / 2
        parts += [
            f'<text x="{at:.1f}" y="{first + LINE * i:.1f}" text-anchor="{anchor}">'
            f"{escape(line)}</text>"
            for i, line in enumerate(lines)
        ]
    return parts


def _separate_labels(middles: Sequence[float], heights: Sequence[float]) -> list[float]:
    found = list(middles)
    for i in range(1, len(found)):
        found[i] = max(found[i], found[i - 1] + (heights[i - 1] + heights[i]) / 2)
    # The first pass moves labels down. This pass moves them up again where the last ones would
    # leave the drawing.
    below = HEIGHT
    for i in reversed(range(len(found))):
        found[i] = min(found[i], below - heights[i] / 2)
        below = found[i] - heights[i] / 2
    return found


def _draw_label(option: str, count: int) -> list[str]:
    short = option if len(option) <= 2 * LONGEST else option[: 2 * LONGEST - 1].rstrip() + "…"
    return wrap(f"{short} {count}", LONGEST)
