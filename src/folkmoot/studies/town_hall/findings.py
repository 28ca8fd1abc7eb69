"""What a town-hall run found: levels compared, vulnerable beside general residents."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from folkmoot.kit import coding
from folkmoot.kit.claims import (
    LEVELS,
    claim_lines,
    claims_finding,
    read_results,
    result_cells,
    say_claims,
)
from folkmoot.kit.exposure import exposure
from folkmoot.kit.findings import (
    Row,
    cells,
    change,
    estimate_of,
    found,
    intervals,
    known,
    listed,
    number,
    share,
    shares,
    signed,
    who_to_whom,
)
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.inference.claims import Claim, Result, Side, judge_families
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate, percent, plural
from folkmoot.measures.retest import Repeat
from folkmoot.measures.wording import ESTIMATES, EXPLORATORY
from folkmoot.storage.findings import Bars, Finding, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.options import CHANGES
from folkmoot.studies.town_hall.config import (
    GAP,
    INCLUSION,
    SATISFACTION,
    TownHallConfig,
    claims,
)
from folkmoot.studies.town_hall.measures import compare_levels
from folkmoot.studies.town_hall.quality import OfRun, counted, quality_of_run
from folkmoot.studies.town_hall.stages import CONCERN
from folkmoot.studies.town_hall.tables import GROUPS, SPECTRUM

SCORE = "weighted_inclusivity_score"
SAID_ALOUD = "weighted_inclusivity_score_said_aloud"
SCALE = "Weighted inclusivity score, 0 (ignored) to 4 (agreed with)"
INTERVALS = "Intervals, from five sets on: 95 %, t over sets, not adjusted for the number of rows."
GAPS = f"{EXPLORATORY} Intervals: 95 %, one by one, clustered by set."
NOT_PEOPLE = "Differences between levels are differences between ways of running models."
OUTCOMES = {
    "items_originated_per_resident": "items originated",
    "items_passed_per_resident": "items passed",
    "opinion_reflection_rate": "reflection rate",
    "concerns_in_final_per_resident": "concerns in the final text",
}

Json = Mapping[str, Any]  # a part of levels.json or quality.json
Levels = Mapping[str, Json]  # by level


def findings(run: RunFolder) -> list[Finding]:
    """All findings, the headline first."""
    compared = compare_levels(run)
    main, apart = compared["main"], compared["supplementary"]
    levels: Levels = main["levels"]
    results = read_results(run, TownHallConfig, claims)
    between = [r for r in results if {*r.claim.contrast} <= levels.keys()]
    # Supplementary levels are reported apart.
    reactions, rounds = (run.table(t).filter(part="main") for t in ("reactions", "rounds"))
    return found(
        inclusion(levels, results, compared["sets"]) if levels else None,
        steps(between, main["differences"], compared["sets"]),
        heard(run),
        spectrum(reactions),
        responses(reactions, run.table("residents")),
        [
            outcome(levels, compared["sets"]),
            satisfaction(levels, results, compared["sets"]),
            everything(levels, compared),
        ]
        if levels
        else None,
        replication(apart, levels, _between_parts(results, between), compared["sets"])
        if apart["levels"]
        else None,
        stances(rounds),
        reading(quality_of_run(run)) if run.has_table("quality") else None,
        coding.finding(run),
        exposure(run),
    )


def repeats(run: RunFolder) -> list[Repeat]:
    """Residents' satisfaction before the discussion, which the same model states for the same
    resident at several levels, and the satisfaction before and after a discussion."""
    seats = run.table("rounds").group_by("discussion_id", "agent_id", maintain_order=True)
    models = seats.agg(pl.col("seat_model").first())
    stated = run.table("satisfaction").join(
        models, on=["discussion_id", "agent_id"], how="left", maintain_order="left"
    )
    pairs = combinations(stated["level"].unique(maintain_order=True).to_list(), 2)
    before, after = (
        stated.with_columns(
            answer=pl.col(f"{when}_satisfaction").cast(pl.Float64), when=pl.lit(when)
        )
        for when in ("pre", "post")
    )
    by_level = before.with_columns(occasion="level")
    both = pl.concat([before, after]).with_columns(occasion="when")
    resident = ["set", "agent_id"]
    return [
        *pair_answers(by_level, pairs, [*resident, "seat_model"], unit=resident, untouched=True),
        *pair_answers(
            both,
            [("pre", "post")],
            ["discussion_id", "agent_id"],
            unit=["set"],
            question=["level"],
        ),
    ]


def _between_parts(results: Sequence[Result], between: Sequence[Result]) -> list[Result]:
    """The claims on a supplementary level and one of the main part."""
    return [r for r in results if r.claim.measure == GAP and r not in between]


def _within_level(results: Sequence[Result], measure: str, level: str) -> dict[str, Estimate]:
    """Group of residents ("gap": vulnerable beside general) → the estimate of a claim at a level;
    the groups of which the data hold nothing are left out."""
    groups: dict[object, str] = {(True,): "vulnerable", (False,): "general"}
    found = {}
    for result in results:
        where = dict(result.claim.where)
        if result.claim.measure == measure and where["level"] == (level,) and any(result.counts):
            group = where.get("is_vulnerable")
            found["gap" if group is None else groups[group]] = result.estimate
    return found


def _figure(summary: Json, figure: str) -> dict[str, Estimate]:
    """Group → the figure of a level, or the difference of two."""
    return {g: estimate_of(summary["figures"][figure][g], "sets") for g in GROUPS}


def _values(summary: Json, figure: str) -> dict[str, float | None]:
    return {group: known(e.value) for group, e in _figure(summary, figure).items()}


def inclusion(levels: Levels, results: Sequence[Result], sets: int) -> Finding:
    """The weighted inclusivity score at each level, with the gap."""
    own = {
        level: _figure(summary, SCORE) | _within_level(results, INCLUSION, level)
        for level, summary in levels.items()
    }
    # Runs of earlier versions counted only what was said aloud, and have one score.
    checked = all(SAID_ALOUD in summary["figures"] for summary in levels.values())
    aloud = {level: _figure(levels[level], SAID_ALOUD) if checked else {} for level in own}
    rows = [
        {
            "level": level,
            **_values(levels[level], SCORE),
            **cells(e["gap"], "gap"),
            **{f"{g}_said_aloud": known(a.value) for g, a in aloud[level].items()},
            "sets": e["gap"].clusters,
        }
        for level, e in own.items()
    ]
    says = [_scored(level, levels[level]["switches"], e) for level, e in own.items()]
    if checked:
        says.append(_compare_scores(own, aloud))
    if any(e["gap"].has_interval for e in own.values()):
        says.append("Gaps at one level are exploratory: nothing is concluded from them.")
    gaps = {f"level {level}": e["gap"] for level, e in own.items()}
    return Finding(
        "inclusion",
        "Who is heard",
        " ".join(says),
        Grid.of(rows, SCALE),
        intervals(gaps, "inclusion gap (vulnerable minus general)", zero=0.0),
        notes=(
            "Mean level over all possible reactions of others, from the second round on. "
            "References count as the speakers gave them.",
            "`said_aloud`: the same, of references alone whose words a rule finds in the "
            "statement. A check by another rule: it misses paraphrases and is fooled by "
            "shared words.",
            GAPS,
        ),
        headline=True,
        unit="set",
        units=sets,
    )


def _scored(level: str, switches: Json, e: Mapping[str, Estimate]) -> str:
    general = number(e["general"].value, 3)
    if not switches["vulnerable"] or known(e["vulnerable"].value) is None:
        return f"At level {level} no vulnerable residents were heard; the others scored {general}."
    who = "the vulnerable residents"
    if switches["labels"] == "shuffled":
        who = "those drawn as vulnerable by lot"
    placebo = " placebo" * (switches["labels"] == "shuffled")
    return (
        f"At level {level} {who} scored {number(e['vulnerable'].value, 3)} of 4 and the others "
        f"{general}: a{placebo} gap of {change(e['gap'])}."
    )


def _compare_scores(
    own: Mapping[str, Mapping[str, Estimate]], aloud: Mapping[str, Mapping[str, Estimate]]
) -> str:
    """The gaps of both scores side by side, and where their direction differs."""
    pairs = {level: (own[level]["gap"].value, aloud[level]["gap"].value) for level in own}
    both = {
        n: ab for n, ab in pairs.items() if known(ab[0]) is not None and known(ab[1]) is not None
    }
    if not both:
        return ""
    gaps = [
        f"{signed(b)} instead of {signed(a)} at level {n}"
        for n, (a, b) in both.items()
        if signed(a) != signed(b)
    ]
    if not gaps:
        return (
            "The gaps are equal to two decimals if only references count that a rule over words "
            "finds in the statement."
        )
    turned = [n for n, (a, b) in both.items() if a * b < 0]
    warning = f" The direction differs at level {listed(turned)}" if turned else ""
    return (
        "If only references count that a rule over words finds in the statement, the gaps are "
        f"{listed(gaps)}{warning}"
    )


def steps(results: Sequence[Result], differences: Sequence[Json], sets: int) -> Finding | None:
    """What the gap moves by between levels, within sets."""
    changes = [
        f"level {d['to']} − level {d['from']}: {', '.join(d['switches_changed'])}"
        for d in differences
        if d["consecutive"]
    ]
    return claims_finding(
        "steps",
        "What each step changes",
        results,
        axis="change of the inclusion gap",
        notes=(
            f"What changes: {listed(changes)}",
            "The same residents at both levels; sets are the clusters.",
            NOT_PEOPLE,
        ),
        units=sets,
    )


def replication(apart: Json, main: Levels, results: Sequence[Result], sets: int) -> Finding:
    """Supplementary levels, apart from the main comparison."""
    rows = [
        {"level": level, **_values(summary, SCORE), "part": part}
        for part, levels in (("supplementary", apart["levels"]), ("main", main))
        for level, summary in levels.items()
    ]
    names = ", ".join(apart["levels"])
    held = [r for r in results if r.counts != (0, 0)]
    gaps = f" {say_claims(held, 'Inclusion gap')}" if held else ""
    return Finding(
        "replication",
        "Replication on another model",
        f"Level {names} is reported apart from the main comparison.{gaps}",
        Grid.of(rows, "Weighted inclusivity score"),
        claim_lines(held, "difference of the inclusion gap"),
        section="Replication",
        headline=not main,
        unit="set",
        units=sets,
    )


def outcome(levels: Levels, sets: int) -> Finding:
    """What was carried into the ballot, the votes and the closing text."""
    rows = [
        {"figure": words, "level": level, **_values(summary, name)}
        for name, words in OUTCOMES.items()
        for level, summary in levels.items()
    ]
    rates = {level: _figure(s, "opinion_reflection_rate") for level, s in levels.items()}
    passed = {
        f"{group}, level {level}": of[group].within(0.0, 1.0)
        for group in ("vulnerable", "general")
        for level, of in rates.items()
    }
    says = [
        f"{share(e) if known(e.value) is not None else 'none (no such item)'} at {who[1]}"
        for who, e in ((label.split(", "), e) for label, e in passed.items())
        if who[0] == "vulnerable"
    ]
    return Finding(
        "outcome",
        "What is carried into the outcome",
        f"Of the items that vulnerable residents raised these shares passed, as a mean over sets: "
        f"{listed(says)}",
        Grid.of(rows, "Per resident, except for the rate; means over sets"),
        intervals(passed, "share of the items raised that passed", percent=True),
        notes=(
            "An item that several residents raised counts for each.",
            "Reflection rate: the share of the items raised that passed.",
            INTERVALS,
        ),
        headline=True,
        unit="set",
        units=sets,
    )


def satisfaction(levels: Levels, results: Sequence[Result], sets: int) -> Finding:
    """Satisfaction before and after."""
    claimed = {level: _within_level(results, SATISFACTION, level) for level in levels}
    unknown = Estimate(math.nan, math.nan, math.nan, 0)
    changes = {
        f"{group}, level {level}": claimed[level].get(group, unknown)
        for group in ("vulnerable", "general")
        for level in levels
    }
    rows = [
        {
            "level": level,
            "group": group,
            "before": _values(s, "pre_satisfaction")[group],
            "after": _values(s, "post_satisfaction")[group],
            **cells(changes[f"{group}, level {level}"], "change"),
        }
        for level, s in levels.items()
        for group in ("vulnerable", "general")
    ]
    says = [f"{change(changes[f'vulnerable, level {level}'])} at level {level}" for level in levels]
    return Finding(
        "satisfaction",
        "Satisfaction before and after",
        f"{ESTIMATES} the satisfaction of the vulnerable residents changed by {listed(says)}",
        Grid.of(rows, "Scale 1 to 10"),
        intervals(changes, "satisfaction after minus before", zero=0.0),
        notes=(GAPS,),
        unit="set",
        units=sets,
    )


def everything(levels: Levels, compared: Json) -> Finding:
    """Every figure at every level, with its gap."""
    meanings: Mapping[str, str] = compared["figures"]
    rows = []
    for name in meanings:
        for level, summary in levels.items():
            rows.append({"figure": name, "level": level, **_values(summary, name)})
    return Finding(
        "all_measures",
        "All measures",
        "Every measure for the vulnerable and for the general residents, and the gap.",
        Grid.of(rows),
        notes=(
            "Means over sets, for looking up. Gaps are differences of means, and nothing is tested "
            "here: the claims of the study are those of “What was tested”.",
            *(f"{name}: {words}" for name, words in meanings.items()),
        ),
        section="All measures",
        unit="set",
        units=compared["sets"],
    )


class Voiced(NamedTuple):
    """A resident's concern, as it was coded: code → the quote for it."""

    id: str
    level: str
    set_no: int
    group: str
    codes: Mapping[str, str]


def heard(run: RunFolder) -> list[Finding]:
    """What became of concerns, by level and group; nothing where no real coder coded them."""
    read = coding.codings(run).get(CONCERN)
    if read is None or not read.supports:
        return []
    vulnerable = {
        (r["discussion_id"], r["agent_id"]): r["is_vulnerable"]
        for r in run.table("rounds").iter_rows(named=True)
    }
    levels = {
        r["discussion_id"]: (r["level"], r["set"])
        for r in run.table("discussions").iter_rows(named=True)
    }
    rows: list[Voiced] = []
    for text_id in read.texts:
        discussion, _, who = text_id.rpartition("/")
        if (codes := read.of(text_id)) is not None:
            level, number = levels[discussion]
            group = "vulnerable" if vulnerable[discussion, who] else "general"
            rows.append(Voiced(text_id, level, number, group, codes))
    if not rows:
        return []
    table: list[Row] = []
    says: dict[str, list[tuple[str, float, Result]]] = {}
    sides = {
        _concern_claim(level, code): _sides([r for r in rows if r.level == level], code)
        for level in dict.fromkeys(r.level for r in rows)
        for code in (c.name for c in read.book.codes)
    }
    results = judge_families(
        list(sides), lambda claim: (claim, *sides[claim]) if sides[claim][0].units else NO_SET
    )
    for result in results:
        level, code = (str(value) for _, (value,) in result.claim.where)
        own = [r for r in rows if r.level == level]
        groups = {
            group: fmean(code in r.codes for r in of)
            for group in ("vulnerable", "general")
            if (of := [r for r in own if r.group == group])
        }
        values: Row = {f"{group}_share": value for group, value in groups.items()}
        counted: Row = {"concerns": len(own)}
        about: Row = {"level": level, "code": code}
        table.append(about | values | result_cells(result, "gap_points", "_points") | counted)
        if "vulnerable" in groups:
            says.setdefault(level, []).append((code, groups["vulnerable"], result))
    gaps = {f"level {level}, {_aloud(code)}": r.estimate
            for level, of in says.items() for code, _, r in of}  # fmt: skip
    return [
        Finding(
            "heard",
            "What became of concerns",
            " ".join(
                f"At level {level}, of the concerns that vulnerable residents voiced, "
                + listed(
                    f"{percent(part)} were {_aloud(code)}" + _to_the_others(result)
                    for code, part, result in about_level
                )
                for level, about_level in says.items()
            ),
            Grid.of(table, "Share of voiced concerns; gap: vulnerable minus general"),
            intervals(gaps, "gap in the share of concerns", zero=0.0, percent=True),
            notes=(
                read.note,
                "One concern a resident: the points that they made aloud. Who never spoke is left "
                "out. Gaps are differences of means of sets that have both groups.",
                LEVELS,
                GAPS,
            ),
            headline=True,
            unit="set",
            units=len({r.set_no for r in rows}),
        ),
        _quotes(read, [r for r in rows if r.set_no == rows[0].set_no]),
    ]


NO_SET = "no set has concerns of both groups"


def _to_the_others(result: Result) -> str:
    e = result.estimate
    if not math.isfinite(e.value):
        return ""
    return f", a gap to the others of {result.claim.signed(e.value)} ({result.span})"


def _concern_claim(level: str, code: str) -> Claim:
    """The exploratory claim that at a level concerns of vulnerable residents meet with a response
    otherwise than those of the others."""
    return Claim(
        "codes.code",
        ("vulnerable", "general"),
        unit="set",
        estimand=(
            "Among simulated sets of residents like those drawn for this run: the share of voiced "
            f"concerns that were {_aloud(code)}, of vulnerable minus that of general residents at "
            f"level {level}, within sets; independent unit: set."
        ),
        where=(("level", (level,)), ("code", (code,))),
        outcome=f"concerns {_aloud(code)} at level {level}",
    )


def _sides(own: Sequence[Voiced], code: str) -> tuple[Side, Side]:
    """The concerns of both groups, of the sets that have both."""
    both = set.intersection(
        *({r.set_no for r in own if r.group == group} for group in ("vulnerable", "general"))
    )
    vulnerable, general = (
        Side.of([code in r.codes for r in of], [r.set_no for r in of])
        for group in ("vulnerable", "general")
        for of in [[r for r in own if r.group == group and r.set_no in both]]
    )
    return vulnerable, general


def _quotes(read: coding.Codings, rows: Sequence[Voiced]) -> Finding:
    """The quotes of one set, so that codes can be judged by eye."""
    quoted: list[Row] = [
        {
            "where": r.id,
            "concern": json.loads(read.texts[r.id]["about"])["concern"],
            "became": _aloud(code),
            "quote": quote,
        }
        for r in rows
        for code, quote in (r.codes or {"not heard": ""}).items()
    ]
    return Finding(
        "heard_quotes",
        "Concerns and the words that met them",
        f"Set {rows[0].set_no}: the quotes by which concerns were coded. The table codes has all.",
        Grid.of(quoted),
        notes=(read.note,),
        section="Concerns",
    )


def _aloud(code: str) -> str:
    return code.replace("_", " ")


def spectrum(reactions: pl.DataFrame) -> Finding | None:
    """The five-level reaction spectrum by level and group."""
    reactions = reactions.filter(pl.col("reaction").is_not_null())
    if reactions.is_empty():
        return None
    rows: list[Row] = []
    bars, ignored = [], []
    parts = reactions.group_by("target_vulnerable", "level", maintain_order=True)
    for (vulnerable, level), own in sorted(parts, key=lambda part: not part[0][0]):
        who = "vulnerable" if vulnerable else "general"
        counts = Counter(own["reaction"].to_list())
        part = shares({s: counts[s] for s in SPECTRUM})
        columns: Row = {f"{s}_share": value for s, value in part.items()}
        e = clustered_share((own["reaction"] == "ignore").to_list(), own["set"].to_list())
        about: Row = {"to": who, "level": str(level)}
        bounds = {k: v for k, v in cells(e, "ignore", "_share").items() if k != "ignore"}
        rows.append({**about, **columns, **bounds, "n": own.height})
        bars += [(f"{who}, level {level}", s, v or 0.0) for s, v in part.items() if s != "ignore"]
        ignored += [f"{share(e)} at level {level}"] * bool(vulnerable)
    return Finding(
        "spectrum",
        "How others react",
        f"The vulnerable residents got no reaction in these shares of cases: {listed(ignored)}",
        Grid.of(rows, "Share of possible reactions; low and high: of those ignored"),
        Bars(tuple(bars), unit="share of possible reactions", percent=True),
        notes=(
            "Five-level reaction spectrum after Park & Lee (2016); no reference is `ignore`.",
            INTERVALS,
        ),
        unit="set",
        units=reactions["set"].n_unique(),
    )


def stances(rounds: pl.DataFrame) -> Finding | None:
    """How often stances moved between rounds."""
    moved = rounds.filter(pl.col("change_type").is_not_null())
    if moved.is_empty():
        return None
    rows: list[Row] = []
    kept = []
    for (level,), own in moved.group_by("level", maintain_order=True):
        counts = Counter(own["change_type"].to_list())
        part = shares({kind: counts[kind] for kind in CHANGES})
        columns: Row = {f"{kind}_share": value for kind, value in part.items()}
        e = clustered_share((own["change_type"] == "maintain").to_list(), own["set"].to_list())
        bounds = {k: v for k, v in cells(e, "maintain", "_share").items() if k != "maintain"}
        rows.append({"level": str(level), **columns, **bounds, "n": own.height})
        kept.append(f"{share(e)} at level {level}")
    return Finding(
        "stances",
        "How stances move between rounds",
        f"The share of reflections in which a stance was kept: {listed(kept)}",
        Grid.of(rows, "Share of reflections; low and high: of those kept"),
        notes=(INTERVALS,),
        unit="set",
        units=moved["set"].n_unique(),
    )


def responses(reactions: pl.DataFrame, residents: pl.DataFrame) -> list[Finding]:
    """Who responded to whom in the first set, one map a level.

    A response is any reaction but `ignore`; who was heard is the column.
    """
    if reactions.is_empty():
        return []
    first = min(reactions["set"].to_list())
    mine = reactions.filter(set=first)
    names = {
        row["id"]: f"{row['id']}*" if row["is_vulnerable"] else row["id"]
        for row in residents.filter(set=first).sort("id").iter_rows(named=True)
    }
    note = (
        f"* vulnerable resident. The discussion of set {first}; the table reactions has those of "
        "all sets. A response refutes, asks, cites or agrees."
    )
    some = []
    for level in sorted(mine["level"].unique()):
        # A reference in an unknown way is a response, too.
        some_response = (pl.col("reaction") != "ignore").fill_null(True)
        answered = mine.filter(pl.col("level") == level, some_response)
        counts = Counter(answered.select("speaker", "target").iter_rows())
        rows = [
            {
                "who": names[a],
                **{names[b]: None if a == b else counts[a, b] for b in names},
                "given": sum(counts[a, b] for b in names),
                "received": sum(counts[b, a] for b in names),
            }
            for a in names
        ]
        caption = "Responses over all rounds: rows respond, columns are responded to"
        some.append(
            Finding(
                f"who_responded_{level}",
                f"Who responded to whom, level {level}",
                _responded(counts, names),
                Grid.of(rows, caption),
                who_to_whom(counts, names, "responses"),
                notes=(note,),
                section="Who responded to whom",
            )
        )
    return some


def _responded(counts: Counter[tuple[str, str]], names: Mapping[str, str]) -> str:
    if not counts:
        return "Nobody responded to anybody."
    if not names:
        return f"{plural(counts.total(), 'response')} between residents who are not on record."
    received = {name: sum(counts[b, a] for b in names) for a, name in names.items()}
    most = max(received, key=lambda name: received[name])
    unheard = [name for name, n in received.items() if not n]
    rest = (
        f"{plural(len(unheard), 'resident')} got no response ({', '.join(unheard)})."
        if unheard
        else "Everybody got some response."
    )
    return (
        f"{plural(counts.total(), 'response')} between {plural(len(names), 'resident')}, most of "
        f"them to {most} ({received[most]}). {rest}"
    )


def reading(quality: OfRun) -> Finding:
    """How well answers could be read."""
    rows: list[Row] = [
        {
            "level": level,
            "answers": counted(own, "answers"),
            **{step: counted(own, "parse_steps", step) for step in ("exact", "fenced", "repaired")},
            "asked again": counted(own, "reasks"),
            "minimal structures": counted(own, "minimal_structures"),
            "fields repaired": counted(own, "repaired"),
            "fields dropped": counted(own, "dropped"),
            "silent turns": counted(own, "silent_turns"),
            "ways out": counted(own, "ways_out"),
            "votes uncast": counted(own, "votes_uncast"),
            "rounds split": counted(own, "rounds_split"),
        }
        for level, own in quality["levels"].items()
    ]
    total = partial(counted, quality["all"])
    return Finding(
        "quality",
        "How well answers could be read",
        f"Of {total('answers'):,} answers, {total('parse_steps', 'exact'):,} could be read "
        f"as they came. {plural(total('reasks'), 're-ask')} followed; the minimal structure "
        f"replaced the answers of {plural(total('minimal_structures'), 'resident')}; "
        f"{plural(total('dropped'), 'field')} had to be dropped (ids that do not exist, "
        "self-references, levels out of range).",
        Grid.of(rows),
        notes=(
            "Answers that could not be read are left out of the denominators and never counted "
            "as silence.",
            "`rounds split`: rounds of the shared session that took more calls than planned.",
            "`ways out`: stances, agreements, votes and ratings answered with none of these, "
            "declined or cannot say; they count as no option.",
        ),
        section="Quality",
    )
