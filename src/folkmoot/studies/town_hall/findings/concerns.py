"""The findings on what became of the coded concerns of residents."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from statistics import fmean

from folkmoot.kit import coding
from folkmoot.kit.claims import (
    LEVELS,
    result_cells,
)
from folkmoot.kit.findings import (
    Row,
    interval_chart,
    join_clauses,
)
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.estimates import format_percent
from folkmoot.measures.inference.families import judge_families
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.findings.levels import GAPS
from folkmoot.studies.town_hall.measures import (
    CodedConcern,
    concern_sides,
    read_coded_concerns,
)
from folkmoot.studies.town_hall.recording import CONCERN


def concerns_finding(run: RunFolder) -> list[Finding]:
    """Build the findings on how the closing text treats residents' concerns.

    The result is empty if no concern was coded.
    """
    # Codes of the embedded respondent do not count.
    codings = coding.read_codings(run).get(CONCERN)
    if codings is None or not codings.supports_findings:
        return []
    concerns = read_coded_concerns(run, codings)
    if not concerns:
        return []
    table: list[Row] = []
    shares_by_level: dict[str, list[tuple[str, float, Result]]] = {}
    sides = {
        _concern_claim(level, code): concern_sides(
            [concern for concern in concerns if concern.level == level], code
        )
        for level in dict.fromkeys(concern.level for concern in concerns)
        for code in (code.name for code in codings.book.codes)
    }
    results = judge_families(
        list(sides), lambda claim: (claim, *sides[claim]) if sides[claim][0].units else NO_SET
    )
    for result in results:
        level, code = (str(value) for _, (value,) in result.claim.where)
        level_concerns = [concern for concern in concerns if concern.level == level]
        groups = {
            group: fmean(code in concern.codes for concern in group_concerns)
            for group in ("vulnerable", "general")
            if (group_concerns := [concern for concern in level_concerns if concern.group == group])
        }
        values: Row = {f"{group}_share": value for group, value in groups.items()}
        count_cells: Row = {"concerns": len(level_concerns)}
        labels: Row = {"level": level, "code": code}
        table.append(labels | values | result_cells(result, "gap_points", "_points") | count_cells)
        if "vulnerable" in groups:
            shares_by_level.setdefault(level, []).append((code, groups["vulnerable"], result))
    gaps = {
        f"level {level}, {_describe_code(code)}": result.estimate
        for level, level_shares in shares_by_level.items()
        for code, _, result in level_shares
    }
    return [
        Finding(
            "heard",
            "What became of concerns",
            " ".join(
                f"At level {level}, of the concerns that vulnerable residents voiced, "
                + join_clauses(
                    f"{format_percent(share)} were {_describe_code(code)}" + _gap_to_others(result)
                    for code, share, result in level_shares
                )
                for level, level_shares in shares_by_level.items()
            ),
            ResultTable.from_records(
                table, "Share of voiced concerns; gap: vulnerable minus general"
            ),
            interval_chart(gaps, "gap in the share of concerns", zero=0.0, percent=True),
            notes=(
                codings.note,
                "Each resident has one concern: the points of the resident's public statements. "
                "Residents who never spoke are left out. Gaps are differences of means over sets "
                "that have both groups.",
                LEVELS,
                GAPS,
            ),
            headline=True,
            unit="set",
            units=len({concern.set_no for concern in concerns}),
        ),
        _quotes_finding(
            codings,
            [concern for concern in concerns if concern.set_no == concerns[0].set_no],
        ),
    ]


NO_SET = "no set has concerns of both groups"


def _gap_to_others(result: Result) -> str:
    if not math.isfinite(result.estimate.value):
        return ""
    return f", a gap to the others of {result.value_text} ({result.interval_text})"


def _concern_claim(level: str, code: str) -> Claim:
    return Claim(
        "codes.code",
        ("vulnerable", "general"),
        unit="set",
        estimand=(
            "Among simulated sets of residents like those drawn for this run: the share of voiced "
            f"concerns that were {_describe_code(code)}, of vulnerable minus that of general "
            "residents at "
            f"level {level}, within sets; independent unit: set."
        ),
        where=(("level", (level,)), ("code", (code,))),
        outcome=f"concerns {_describe_code(code)} at level {level}",
        outcome_says_rows=True,
    )


def _quotes_finding(read: coding.CodebookResults, rows: Sequence[CodedConcern]) -> Finding:
    # Researchers check the codes by these quotes.
    quoted: list[Row] = [
        {
            "where": coded_concern.id,
            "concern": json.loads(read.texts[coded_concern.id]["about"])["concern"],
            "became": _describe_code(code),
            "quote": quote,
        }
        for coded_concern in rows
        for code, quote in (coded_concern.codes or {"not heard": ""}).items()
    ]
    return Finding(
        "heard_quotes",
        "Concerns and the quotes that respond to them",
        f"The quotes on which the codes of set {rows[0].set_no} are based. The table codes has the "
        "quotes of all sets.",
        ResultTable.from_records(quoted),
        notes=(read.note,),
        section="Concerns",
    )


def _describe_code(code: str) -> str:
    return code.replace("_", " ")
