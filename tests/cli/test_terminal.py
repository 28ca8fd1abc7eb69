"""The display of findings and progress: numbers, missing cells, lines without a terminal."""

from __future__ import annotations

import errno
import io
import re

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from folkmoot.cli.console import with_error_handling
from folkmoot.cli.run import TerminalProgress
from folkmoot.cli.tables import GridView, finding_view, print_findings
from folkmoot.engine.calls.progress import (
    AnswerMissing,
    CallDone,
    CallRetried,
    ItemDone,
    Notice,
    StageStarted,
)
from folkmoot.storage.findings import Finding, Points, ResultTable, format_cell, format_number


def render_text(renderable: object, *, terminal: bool = False) -> str:
    file = io.StringIO()
    Console(file=file, width=90, force_terminal=terminal).print(renderable)
    return file.getvalue()


def test_numbers_have_three_significant_digits() -> None:
    formatted = [
        format_number(x) for x in (0.0, 1.0, 0.12345, -2.0, 123.456, 0.0123, 12345.6, 1e-7)
    ]
    assert formatted == ["0", "1.00", "0.123", "-2.00", "123", "0.0123", "12,346", "1.00e-07"]
    # Numbers that rounding makes longer, and ties.
    formatted = [format_number(x) for x in (999.5, -999.7, 99.96, 9.996, 0.9996, 1.125, 0.00099996)]
    assert formatted == ["1,000", "-1,000", "100", "10.0", "1.00", "1.13", "0.00100"]


def test_cells_are_formatted_by_kind() -> None:
    assert format_cell(None) == "–"
    assert format_cell(True) == "yes"
    assert format_cell(12345) == "12,345"
    assert format_cell(0.159, "position_changed_rate") == "15.9 %"
    assert format_cell(0.159, "changed_rate_low") == "15.9 %"
    assert format_cell(0.9996, "position_changed_rate") == "99.96 %"
    assert format_cell(0.0625, "changed_points") == "+6.3"
    assert format_cell(0.159, "kappa") == "0.159"
    # A difference has a sign, a distance has none.
    assert format_cell(0.033, "difference_points") == "+3.3"
    assert format_cell(0.033, "total_variation_distance_points") == "3.3"
    negative = [
        (-12345, "count"),
        (-0.159, "kappa"),
        (-0.159, "explained_share"),
        (-0.2, "gap_points"),
    ]
    assert [format_cell(*cell) for cell in negative] == ["−12,345", "−0.159", "−15.9 %", "−20.0"]
    # The opposite of zero is zero.
    zeros = [(-0.0, "joint_low_points"), (Points(-0.0), "joint_low"), (-0.0, "changed_share")]
    assert [format_cell(*cell) for cell in zeros] == ["+0.0", "+0.0 points", "0.0 %"]
    finding = Finding("k", "t", "s", ResultTable(("a",), (("b\x1b[31mc",),)))
    assert "b[31mc" in render_text(finding_view(finding))


def test_a_finding_has_title_sentence_table_and_caveats() -> None:
    rows = [{"condition": f"arm {i}", "changed_rate": i / 100} for i in range(50)]
    finding = Finding(
        "k", "Who changed", "Some did.", ResultTable.from_records(rows), notes=("A caveat.",)
    )
    text = render_text(finding_view(finding))
    for part in ("Who changed", "Some did.", "changed rate", "3.0 %", "A caveat.", "and 10 more"):
        assert part in text
    assert render_text(finding_view(Finding("k", "Empty", "Nothing.", ResultTable((), ()))))


@given(
    st.lists(
        st.tuples(st.text("abc d", max_size=30), st.integers(0, 10**9)), min_size=1, max_size=5
    ),
    st.integers(20, 100),
)
def test_numbers_are_not_cut_in_narrow_terminals(rows: list[tuple[str, int]], width: int) -> None:
    grid = ResultTable(
        ("who", "how_many_in_all", "changed_rate"), tuple((name, n, n / 1e9) for name, n in rows)
    )
    file = io.StringIO()
    print_findings(Console(file=file, width=width), [Finding("k", "t", "s", grid)])
    words = file.getvalue().split()
    assert all(f"{n:,}" in words for _, n in rows)


def test_condition_names_are_not_broken_at_80_columns() -> None:
    conditions = ("Adversarial (ACP)", "Clarified passive", "Simple voting")
    rows = tuple(
        (first, second, "exploratory", 0.127, 0.061, 0.192, 1e-4, 2e-4, 0.046, 0.206)
        for first in conditions
        for second in conditions
    )
    columns = (
        *("first", "second", "family", "difference_points", "low_points", "high_points"),
        *("p", "adjusted_p", "joint_low_points", "joint_high_points"),
    )
    file = io.StringIO()
    grid = GridView(ResultTable(columns, rows))
    Console(file=file, width=80).print(grid)
    lines = file.getvalue().splitlines()
    words = {word for line in lines for word in line.split()}
    assert {"Adversarial", "(ACP)", "Clarified", "Simple", "exploratory", "difference"} <= words
    # One table, and not one list for each row. An interval is broken before its upper bound.
    assert sum("difference" in line for line in lines) == 1
    assert {"+6.1", "+19.2", "+20.6"} <= words
    assert max(map(len, lines)) <= 80


def test_tables_may_be_empty_or_have_wide_characters() -> None:
    assert "who" in render_text(GridView(ResultTable(("who", "n"), ())))
    rows = (("서울특별시민 모임", "강남구주민 대표", 1), ("a", "b", 2))
    file = io.StringIO()
    Console(file=file, width=26).print(GridView(ResultTable(("first", "second", "n"), rows)))
    assert {"서울특별시민", "강남구주민", "모임", "대표"} <= set(file.getvalue().split())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_without_a_terminal_is_plain_lines() -> None:
    clock, file = Clock(), io.StringIO()
    with TerminalProgress(Console(file=file, width=200), every=5.0, clock=clock) as progress:
        progress(StageStarted("vote", 100))
        for _ in range(12):
            clock.now += 1.0
            progress(CallDone("m", cost_usd=0.01))
            progress(CallRetried("m", "429", 1.0))
            progress(ItemDone("vote"))
        progress(Notice("[careful]", "warning"))
    stamped_lines = [line.split(" ", 1) for line in file.getvalue().splitlines()]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", time) for time, _ in stamped_lines)
    lines = [text for _, text in stamped_lines]
    assert lines[0] == "vote: started (100 items)"
    assert lines[1].startswith("vote: 4 of 100 · 2 min 00 s left · 5 calls (1/s) · $0.05")
    assert lines[-1] == "[careful]"
    assert len(lines) == 4
    assert "\x1b" not in file.getvalue()


def test_progress_in_a_terminal_is_a_live_table() -> None:
    file = io.StringIO()
    with TerminalProgress(Console(file=file, width=100, force_terminal=True)) as progress:
        progress(StageStarted("vote", 4))
        progress(CallDone("m", cost_usd=None))
        progress(ItemDone("vote"))
        progress(AnswerMissing("vote/p_1/ask0"))
        progress(Notice("look"))
        text = render_text(progress.render_progress())
    assert "1/4" in text
    assert "cost unknown" in text
    assert "1 missing" in text
    assert "look" in file.getvalue()


def test_a_full_disk_for_the_output_is_no_internal_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`folkmoot run … > results.txt` on a full disk. The run itself is complete."""

    @with_error_handling
    def print_results() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(typer.Exit) as ended:
        print_results()
    assert ended.value.exit_code == 2
    assert "Error: the output of the command: the disk is full" in capsys.readouterr().err
