"""What a town-hall run found: levels compared, vulnerable beside general residents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from folkmoot.kit import coding
from folkmoot.kit.exposure import exposure
from folkmoot.kit.findings import (
    HOLM,
    adjusted,
    cells,
    chance,
    change,
    clustered_share,
    estimate_of,
    found,
    intervals,
    known,
    listed,
    number,
    p,
    points,
    shares,
    signed,
    verdict,
    who_to_whom,
)
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import Estimate, percent, plural
from folkmoot.storage.findings import Bars, Cell, Finding, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers import CHANGES
from folkmoot.studies.town_hall.measures import GROUPS, SPECTRUM
from folkmoot.studies.town_hall.stages import CONCERN

SCORE = "weighted_inclusivity_score"
SCALE = "Weighted inclusivity score, 0 (ignored) to 4 (agreed with)"
NOT_PEOPLE = "Differences between levels are differences between ways of running models."
OUTCOMES = {
    "items_originated_per_resident": "items originated",
    "items_passed_per_resident": "items passed",
    "opinion_reflection_rate": "reflection rate",
    "concerns_in_final_per_resident": "concerns in the final text",
}

Levels = Mapping[str, Mapping[str, Any]]  # level → its part of levels.json


def findings(run: RunFolder) -> list[Finding]:
    """All findings, the headline first."""
    compared = run.json("levels.json")
    main, apart = compared["main"], compared["supplementary"]
    levels: Levels = main["levels"]
    # Supplementary levels are reported apart.
    reactions, rounds = (run.table(t).filter(part="main") for t in ("reactions", "rounds"))
    return found(
        inclusion(levels, compared["sets"]) if levels else None,
        steps(main["differences"]) if main["differences"] else None,
        heard(run),
        spectrum(reactions),
        responses(reactions, run.table("residents")),
        [outcome(levels), satisfaction(levels), everything(levels, compared)] if levels else None,
        replication(apart, levels, compared["sets"]) if apart["levels"] else None,
        stances(rounds),
        reading(run.json("quality.json")),
        coding.finding(run),
        exposure(run),
    )


def _figure(summary: Mapping[str, Any], figure: str) -> dict[str, Estimate]:
    """Group → the figure of a level, or the difference of two."""
    return {g: estimate_of(summary["figures"][figure][g], "sets") for g in GROUPS}


def _values(summary: Mapping[str, Any], figure: str) -> dict[str, float | None]:
    return {group: known(e.value) for group, e in _figure(summary, figure).items()}


def inclusion(levels: Levels, sets: int) -> Finding:
    """The weighted inclusivity score at each level, with the gap."""
    own = {level: _figure(summary, SCORE) for level, summary in levels.items()}
    rows = [
        {
            "level": level,
            **_values(levels[level], SCORE),
            **cells(e["gap"], "gap"),
            "sets": e["gap"].clusters,
        }
        for level, e in own.items()
    ]
    says = [_scored(level, levels[level]["switches"], e) for level, e in own.items()]
    gaps = {f"level {level}": e["gap"] for level, e in own.items()}
    return Finding(
        "inclusion",
        "Who is heard",
        " ".join(says),
        Grid.of(rows, SCALE),
        intervals(gaps, "inclusion gap (vulnerable minus general)", zero=0.0),
        notes=(
            "Mean level over all possible reactions of others, from the second round on.",
            "Intervals: 95 %, t over sets.",
        ),
        headline=True,
        unit="set",
        units=sets,
    )


def _scored(level: str, switches: Mapping[str, Any], e: Mapping[str, Estimate]) -> str:
    general = number(e["general"].value)
    if not switches["vulnerable"] or known(e["vulnerable"].value) is None:
        return f"At level {level} no vulnerable residents were heard; the others scored {general}."
    who = "the vulnerable residents"
    if switches["labels"] == "shuffled":
        who = "those whom lot called vulnerable"
    placebo = " placebo" * (switches["labels"] == "shuffled")
    return (
        f"At level {level} {who} scored {number(e['vulnerable'].value)} of 4 and the others "
        f"{general}: a{placebo} gap of {change(e['gap'])}."
    )


def steps(differences: list[Mapping[str, Any]]) -> Finding:
    """Paired differences within sets, for the score of the vulnerable and for the gap."""
    gaps = {f"{d['from']} → {d['to']}": _figure(d, SCORE)["gap"] for d in differences}
    holm = adjusted(gaps)
    rows = [
        {
            "step": step,
            "vulnerable": _values(d, SCORE)["vulnerable"],
            **cells(gap, "gap"),
            "p": p(gap),
            "holm_p": known(holm[step]),
            "changes": ", ".join(d["switches_changed"]),
        }
        for (step, gap), d in zip(gaps.items(), differences, strict=True)
    ]
    says = [
        f"From level {d['from']} to {d['to']} ({', '.join(d['switches_changed'])}) the gap moved "
        f"by {change(gap, chance(gap, holm[step]))}."
        for (step, gap), d in zip(gaps.items(), differences, strict=True)
        if d["consecutive"]
    ]
    return Finding(
        "steps",
        "What each step changes",
        " ".join(says),
        Grid.of(rows, "Change of the weighted inclusivity score within sets"),
        intervals(gaps, "change of the inclusion gap", zero=0.0),
        notes=(
            "The same residents at both levels; sets are the clusters.",
            HOLM,
            NOT_PEOPLE,
        ),
        headline=True,
        unit="set",
        units=max(gap.units for gap in gaps.values()),
    )


def _judged(e: Estimate) -> str:
    """A difference and whether it is statistically significant."""
    return ", ".join(filter(None, (change(e), verdict(e))))


def replication(apart: Mapping[str, Any], main: Levels, sets: int) -> Finding:
    """Supplementary levels, apart from the main comparison."""
    rows = [
        {"level": level, **_values(summary, SCORE), "part": part}
        for part, levels in (("supplementary", apart["levels"]), ("main", main))
        for level, summary in levels.items()
    ]
    says = [
        f"Level {d['to']} minus level {d['from']}: gap {_judged(_figure(d, SCORE)['gap'])}."
        for d in apart["differences"]
        if d["switches_changed"] == ["models"]
    ]
    names = ", ".join(apart["levels"])
    return Finding(
        "replication",
        "Replication on another model",
        f"Level {names} is reported apart from the main comparison. {' '.join(says)}",
        Grid.of(rows, "Weighted inclusivity score"),
        section="Replication",
        headline=not main,
        unit="set",
        units=sets,
    )


def outcome(levels: Levels) -> Finding:
    """What was carried into the ballot, the votes and the closing text."""
    rows = [
        {"figure": words, "level": level, **_values(summary, name)}
        for name, words in OUTCOMES.items()
        for level, summary in levels.items()
    ]
    rates = {level: _values(s, "opinion_reflection_rate") for level, s in levels.items()}
    bars = [
        (f"level {level}", group, rate)
        for level, of in rates.items()
        for group in ("vulnerable", "general")
        if (rate := of[group]) is not None
    ]
    says = [f"{_rate(of['vulnerable'])} at level {level}" for level, of in rates.items()]
    return Finding(
        "outcome",
        "What is carried into the outcome",
        f"Items that go back to a vulnerable resident passed: {', '.join(says)}.",
        Grid.of(rows, "Per resident, but for the rate; means over sets"),
        Bars(tuple(bars), unit="passed of originated items", percent=True),
        notes=(
            "An item that goes back to several residents counts for each.",
            "Reflection rate: passed of originated.",
        ),
        headline=True,
    )


def _rate(value: float | None) -> str:
    return "none (no such item)" if value is None else percent(value)


def satisfaction(levels: Levels) -> Finding:
    """Satisfaction before and after."""
    columns = {"before": "pre_satisfaction", "after": "post_satisfaction"}
    columns["change"] = "satisfaction_delta"
    rows = [
        {
            "level": level,
            "group": group,
            **{column: _values(s, name)[group] for column, name in columns.items()},
        }
        for level, s in levels.items()
        for group in ("vulnerable", "general")
    ]
    says = [
        f"by {signed(_values(s, 'satisfaction_delta')['vulnerable'])} at level {level}"
        for level, s in levels.items()
    ]
    return Finding(
        "satisfaction",
        "Satisfaction before and after",
        f"The satisfaction of the vulnerable residents changed {', '.join(says)}.",
        Grid.of(rows, "Scale 1 to 10"),
    )


def everything(levels: Levels, compared: Mapping[str, Any]) -> Finding:
    """Every figure at every level, with the interval of its gap."""
    meanings: Mapping[str, str] = compared["figures"]
    rows = []
    for name in meanings:
        for level, summary in levels.items():
            gap = cells(_figure(summary, name)["gap"], "gap")
            bounds = {"gap_low": gap["low"], "gap_high": gap["high"]}
            rows.append({"figure": name, "level": level, **_values(summary, name), **bounds})
    return Finding(
        "all_measures",
        "All measures",
        "Every measure for the vulnerable and for the general residents, and the gap.",
        Grid.of(rows),
        notes=tuple(f"{name}: {words}" for name, words in meanings.items()),
        section="All measures",
        unit="set",
        units=compared["sets"],
    )


def _counted(rows: pl.DataFrame, by: tuple[str, ...], what: str) -> dict[Any, Counter[str]]:
    """Group → how often each value of a column stands in it, groups in order of first mention."""
    counts: dict[Any, Counter[str]] = {}
    for *group, value in rows.select(*by, what).iter_rows():
        counts.setdefault(tuple(group), Counter())[value] += 1
    return counts


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
    rows: list[dict[str, Any]] = []
    for text_id in read.texts:
        discussion, _, who = text_id.rpartition("/")
        if (codes := read.of(text_id)) is not None:
            level, number = levels[discussion]
            group = "vulnerable" if vulnerable[discussion, who] else "general"
            rows.append({"id": text_id, "level": level, "set": number, "group": group, "c": codes})
    if not rows:
        return []
    names = [c.name for c in read.book.codes]
    table: list[dict[str, Cell]] = []
    gaps: dict[str, Estimate] = {}
    for level in dict.fromkeys(r["level"] for r in rows):
        for code in names:
            own = [(r, code in r["c"]) for r in rows if r["level"] == level]
            shares = {
                g: clustered_share([x for r, x in of], [r["set"] for r, x in of])
                for g in ("vulnerable", "general")
                if (of := [(r, x) for r, x in own if r["group"] == g])
            }
            gap = _gap(own)
            gaps[f"level {level}, {code}"] = gap
            table.append(
                {
                    "level": level,
                    "code": code,
                    **{f"{g}_share": e.value for g, e in shares.items()},
                    **cells(gap, "gap"),
                    "concerns": len(own),
                }
            )
    says = [
        f"At level {row['level']} the concerns of vulnerable residents were {_aloud(row['code'])} "
        f"in {percent(share)} of cases: a gap of {points(gap)} to the others."
        for row, gap in zip(table, gaps.values(), strict=True)
        if isinstance(share := row.get("vulnerable_share"), float)
    ]
    return [
        Finding(
            "heard",
            "What became of concerns",
            " ".join(says),
            Grid.of(table, "Share of voiced concerns; gap: vulnerable minus general"),
            intervals(gaps, "gap in the share of concerns", zero=0.0, percent=True),
            notes=(
                read.note,
                "One concern a resident: the points that they made aloud. Who never spoke is left "
                "out. Intervals: 95 %, t over sets of the difference within sets.",
            ),
            headline=True,
            unit="set",
            units=len({r["set"] for r in rows}),
        ),
        _quotes(read, [r for r in rows if r["set"] == rows[0]["set"]]),
    ]


def _gap(own: Sequence[tuple[dict[str, Any], bool]]) -> Estimate:
    """Vulnerable minus general within sets, averaged over sets."""
    by_set: dict[int, dict[str, list[bool]]] = {}
    for row, given in own:
        by_set.setdefault(row["set"], {}).setdefault(row["group"], []).append(given)
    both = {n: g for n, g in by_set.items() if len(g) == 2}
    mean = {n: {k: sum(v) / len(v) for k, v in g.items()} for n, g in both.items()}
    return clustered_mean([m["vulnerable"] - m["general"] for m in mean.values()], list(mean))


def _quotes(read: coding.Codings, rows: Sequence[dict[str, Any]]) -> Finding:
    """The quotes of one set, so that codes can be judged by eye."""
    quoted: list[dict[str, Cell]] = [
        {
            "where": row["id"],
            "concern": json.loads(read.texts[row["id"]]["about"])["concern"],
            "became": _aloud(code),
            "quote": quote,
        }
        for row in rows
        for code, quote in (row["c"] or {"not heard": ""}).items()
    ]
    return Finding(
        "heard_quotes",
        "Concerns and the words that met them",
        f"Set {rows[0]['set']}: the quotes by which concerns were coded. The table codes has all.",
        Grid.of(quoted),
        notes=(read.note,),
        section="Concerns",
    )


def _aloud(code: Cell) -> str:
    return str(code).replace("_", " ")


def spectrum(reactions: pl.DataFrame) -> Finding | None:
    """The five-level reaction spectrum by level and group."""
    counts = _counted(reactions, ("level", "target_vulnerable"), "reaction")
    if not counts:
        return None
    rows: list[dict[str, Any]] = []
    bars = []
    for (level, vulnerable), own in sorted(counts.items(), key=lambda item: not item[0][1]):
        who = "vulnerable" if vulnerable else "general"
        part = shares({s: own[s] for s in SPECTRUM})
        columns = {f"{s}_share": value for s, value in part.items()}
        rows.append({"to": who, "level": level, **columns, "n": own.total()})
        bars += [(f"{who}, level {level}", s, v or 0.0) for s, v in part.items() if s != "ignore"]
    ignored = [
        f"{percent(r['ignore_share'])} at level {r['level']}"
        for r in rows
        if r["to"] == "vulnerable"
    ]
    return Finding(
        "spectrum",
        "How others react",
        f"The vulnerable residents got no reaction in these shares of cases: {listed(ignored)}",
        Grid.of(rows, "Share of possible reactions"),
        Bars(tuple(bars), unit="share of possible reactions", percent=True),
        notes=("Five-level reaction spectrum after Park & Lee (2016); no reference is `ignore`.",),
    )


def stances(rounds: pl.DataFrame) -> Finding | None:
    """How often stances moved between rounds."""
    moved = rounds.filter(pl.col("change_type").is_not_null())
    counts = _counted(moved, ("level",), "change_type")
    if not counts:
        return None
    rows: list[dict[str, Any]] = []
    for (level,), own in counts.items():
        part = shares({kind: own[kind] for kind in CHANGES})
        rows.append(
            {"level": level, **{f"{k}_share": v for k, v in part.items()}, "n": own.total()}
        )
    kept = [f"{percent(r['maintain_share'])} at level {r['level']}" for r in rows]
    return Finding(
        "stances",
        "How stances move between rounds",
        f"The share of reflections in which a stance was kept: {listed(kept)}",
        Grid.of(rows, "Share of reflections"),
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
        answered = mine.filter(pl.col("level") == level, pl.col("reaction") != "ignore")
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
                _responded(rows),
                Grid.of(rows, caption),
                who_to_whom(counts, names, "responses"),
                notes=(note,),
                section="Who responded to whom",
            )
        )
    return some


def _responded(rows: list[dict[str, Any]]) -> str:
    total = sum(row["given"] for row in rows)
    if not total:
        return "Nobody responded to anybody."
    most = max(rows, key=lambda row: row["received"])
    unheard = [row["who"] for row in rows if not row["received"]]
    rest = (
        f"{plural(len(unheard), 'resident')} got no response ({', '.join(unheard)})."
        if unheard
        else "Everybody got some response."
    )
    return (
        f"{plural(total, 'response')} between {plural(len(rows), 'resident')}, most of them to "
        f"{most['who']} ({most['received']}). {rest}"
    )


def reading(quality: Mapping[str, Any]) -> Finding:
    """How well answers could be read."""
    rows = [
        {
            "level": level,
            "answers": own["answers"],
            **{
                parse_step: own["parse_steps"].get(parse_step, 0)
                for parse_step in ("exact", "fenced", "repaired")
            },
            "asked again": own["reasks"],
            "minimal structures": own["minimal_structures"],
            "fields repaired": sum(own["repaired"].values()),
            "fields dropped": sum(own["dropped"].values()),
            "silent turns": own["silent_turns"],
            "votes uncast": own["votes_uncast"],
            "rounds split": own["rounds_split"],
        }
        for level, own in quality["levels"].items()
    ]
    total = quality["all"]
    dropped = sum(total["dropped"].values())
    return Finding(
        "quality",
        "How well answers could be read",
        f"Of {total['answers']:,} answers, {total['parse_steps'].get('exact', 0):,} could be read "
        f"as they came. {plural(total['reasks'], 're-ask')} followed; the minimal structure "
        f"replaced the answers of {plural(total['minimal_structures'], 'resident')}; "
        f"{plural(dropped, 'field')} had to be dropped (ids that do not exist, self-references, "
        "levels out of range).",
        Grid.of(rows),
        notes=(
            "Answers that could not be read are left out of the denominators and never counted "
            "as silence.",
            "`rounds split`: rounds of the shared session that took more than one call.",
        ),
        section="Quality",
    )
