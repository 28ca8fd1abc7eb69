"""The findings of a focus group, computed from its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from folkmoot.kit.claims import claims_finding, read_results
from folkmoot.kit.coding import CodebookResults, read_codings
from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.findings import (
    Row,
    category_shares,
    collect_findings,
    estimate_cells,
    format_mean,
    format_mean_value,
    format_share,
    format_signed,
    interaction_matrix,
    join_clauses,
    known,
    split_address,
)
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.measures.retest import Repeat
from folkmoot.storage.findings import BarChart, Finding, LineChart, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import sycophancy
from folkmoot.studies.focus_group.config import (
    INTENT,
    LIKELY,
    POSITION,
    DiscussionConfig,
    declare_claims,
    parse_amount,
)
from folkmoot.studies.focus_group.discussion import INTENTS, InterviewTime
from folkmoot.studies.focus_group.positions import (
    MOST_LINES,
    PERSON,
    TALK,
    carry_positions_forward,
    has_moved,
    mean_position_by_question,
    position_pairs,
)
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.reading import STANDS, kind_and_name

INTERVALS = (
    "Intervals, from five groups on: 95 %, groups as units, not adjusted for the number of rows."
)
WITHHELD_REMARKS = "Objections, needs and themes, by how many people raised them, with quotes,"
# Krippendorff's customary limits for conclusions and for tentative conclusions.
GOOD, FAIR = 0.8, 0.667
# A position closer to zero than this is neither for nor against.
NEUTRAL = 0.05


@dataclass(frozen=True)
class Concept:
    """The tables of all groups about one concept.

    `single`: one group discussed it, so participants are shown, not group means. `several`: the
    study has several concepts, so keys and titles name the concept.
    """

    name: str
    said: pl.DataFrame
    opinions: pl.DataFrame
    people: pl.DataFrame
    statements: pl.DataFrame
    intents: pl.DataFrame
    codes: Mapping[str, CodebookResults]
    single: bool
    several: bool
    results: tuple[Result, ...] = ()
    control: str | None = None

    def finding(self, key: str, title: str, *about: Any, **more: Any) -> Finding:
        """Return a finding with groups as units. It names the concept if there are several."""
        if self.several:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        more |= {"unit": "group", "units": self.said["group"].n_unique()}
        return Finding(key, title, *about, **more)

    def measure_result(self, measure: str) -> Result | None:
        """Return the claim that a measure moved with this discussion, or None without data."""
        own = ("stimulus", (self.name,))
        found = (
            result
            for result in self.results
            if result.claim.measure == measure and own in result.claim.where
        )
        return next((result for result in found if result.counts != (0, 0)), None)

    def withheld_finding(self, key: str, title: str, says: str, section: str) -> Finding:
        """Return a finding that says that the codes do not support this result."""
        if self.several:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        return Finding(key, title, says, ResultTable((), ()), section=section)

    @property
    def answers(self) -> pl.DataFrame:
        """The utterances of participants."""
        return self.said.filter(pl.col("speaker_role") == "participant")


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings, concept by concept. The comparison of concepts comes first."""
    if not run.has_table("utterances"):
        return []
    said, opinions, stated = (
        read_talk(run),
        run.read_table("opinions"),
        run.read_table("statements"),
    )
    stimuli = said["stimulus"].unique(maintain_order=True).to_list()

    codes = read_codings(run)
    results = tuple(read_results(run, DiscussionConfig, declare_claims))
    concepts = [
        Concept(
            stimulus,
            said.filter(pl.col("stimulus") == stimulus),
            opinions.filter(pl.col("stimulus") == stimulus),
            run.read_table("personas"),
            run.read_table("statements").filter(pl.col("stimulus") == stimulus),
            run.read_table("intents").filter(pl.col("stimulus") == stimulus),
            codes,
            single=said.select(TALK).unique().height == 1,
            several=len(stimuli) > 1,
            results=results,
            control=run.config.get("control"),
        )
        for stimulus in stimuli
    ]
    return collect_findings(
        compare_stimuli(stated, stimuli, results) if len(stimuli) > 1 else None,
        *(
            (
                purchase_intent(concept),
                demand_finding(concept),
                position_finding(concept),
                words_and_positions(concept),
                coded_themes(concept),
                reply_finding(concept) if concept.single else None,
                talk_time(concept),
                out_of_character(concept),
                sycophancy_finding(concept),
            )
            for concept in concepts
        ),
        exposure_finding(run),
    )


def repeated_positions(run: RunFolder) -> list[Repeat]:
    """Return private answers given twice: before the discussion, and before and after it."""
    stated = run.read_table("statements").filter(~pl.col("planted"))
    stated = stated.rename({"position": "answer", "when": "occasion"})
    intents = run.read_table("intents").rename({"when": "occasion"})
    who, talk = (
        ["stimulus", "group", "persona_id"],
        [(InterviewTime.BEFORE.value, InterviewTime.AFTER.value)],
    )
    retest = [(InterviewTime.BEFORE.value, InterviewTime.RETEST.value)]
    alone, asked = ["group", "persona_id"], ["stimulus", "price"]
    return [
        *pair_answers(stated, retest, who, unit=alone, question=["stimulus"], untouched=True),
        *pair_answers(stated, talk, who, unit=["group"], question=["stimulus"]),
        *pair_answers(intents, talk, [*who, "price"], unit=["group"], question=asked),
    ]


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """Return `intents` with the excluded answers blanked."""
    asked = set()
    intent = (pl.col("kind") == "choice") & pl.col("address").str.contains("/intent/")
    for address in excluded.filter(intent)["address"]:
        # Addresses end in `group/concept/when/who/intent/ask0`, with a ladder price before `ask0`.
        _, group, concept, when, who, _, *price, _ask = split_address(address)
        asked.add((group, concept, when, who, *price))
    intents = run.read_table("intents")
    keys = intents.select(*TALK, "when", "persona_id", "ladder", "price").iter_rows()
    left_out = pl.Series(
        [
            (*key, f"{parse_amount(price):g}") in asked if ladder else tuple(key) in asked
            for *key, ladder, price in keys
        ],
        dtype=pl.Boolean,
    )
    kept = pl.when(~pl.lit(left_out)).then(pl.col("answer", "score"))
    return {"intents": intents.lazy().with_columns(kept)}


def purchase_intent(concept: Concept) -> Finding | None:
    """Return the purchase intent before and after the discussion, or None without the latter."""
    asked = concept.intents.filter(~pl.col("ladder"))
    own = asked.filter(pl.col("answer").is_not_null())
    parts = {when: own.filter(pl.col("when") == when) for when in own["when"].unique()}
    after = parts.get("after", own.clear())
    missing = asked.filter((pl.col("when") == "after") & pl.col("answer").is_null())["missing"]
    unanswered = describe_missing(missing)
    title = "Would they buy it?"
    if after.is_empty():
        if not unanswered:
            return None
        return concept.finding(
            "purchase_intent",
            title,
            f"Nobody said whether they would buy it: {unanswered}.",
            ResultTable((), ()),
            section="Purchase intent",
            headline=True,
        )
    likely = clustered_share((after["score"] >= LIKELY).to_list(), after["group"].to_list())
    moved = concept.measure_result(INTENT)
    price = after["price"][0]
    groups = after["group"].n_unique()
    counts = {
        when: {intent: part.filter(pl.col("answer") == intent).height for intent in INTENTS}
        for when, part in sorted(
            parts.items(), key=lambda item: list(InterviewTime).index(InterviewTime(item[0]))
        )
    }
    said = (
        f"{format_share(likely)} would definitely or probably buy "
        f"it{f' at {price}' if price else ''}, "
        f"asked in private after the talk; {after.height} people in "
        f"{'one group' if groups == 1 else format_count(groups, 'group')}."
    )
    if unanswered:
        said += f" Not counted: {unanswered}."
    if moved is not None:
        said += f" {_result_sentence(moved)}"
    return concept.finding(
        "purchase_intent",
        title,
        said,
        ResultTable.from_records(
            [
                {"answer": intent}
                | {f"{when}_share": category_shares(of)[intent] for when, of in counts.items()}
                | {f"people {when}": of[intent] for when, of in counts.items()}
                for intent in INTENTS
            ]
        ),
        BarChart(
            tuple(
                (intent, when, float(of[intent]))
                for when, of in counts.items()
                for intent in INTENTS
            ),
            unit="people",
        ),
        notes=("Stated intent overstates what people buy; use it to compare concepts.",),
        section="Purchase intent",
        headline=True,
        conclusion=_conclude_intent(likely, moved),
        primary=_is_primary(moved),
    )


def _is_primary(result: Result | None) -> bool:
    return result is not None and result.claim.family == "primary"


def _conclude_intent(likely: Estimate, moved: Result | None) -> str:
    """Return on which side of one half the intent lies, and the verdict on its movement."""
    side = "most would buy it" if likely.value > 0.5 else "at most half would buy it"
    return f"{side}; {moved.verdict_phrase}" if moved is not None else side


def _result_sentence(result: Result) -> str:
    """Return a claim in one sentence, with its conclusion if it is primary, else as an estimate."""
    told = f"{result.describe_estimate}, exploratory"
    if _is_primary(result):
        told = result.describe_conclusion
    return f"{told[0].upper()}{told[1:]}."


def demand_finding(concept: Concept) -> Finding | None:
    """Return the share that would buy at each price of the ladder, or None without a ladder."""
    asked = concept.intents.filter(pl.col("answer").is_not_null() & pl.col("price").is_not_null())
    if asked["price"].n_unique() < 2:
        return None
    rows: list[Row] = []
    curves: dict[str, list[tuple[str, Estimate]]] = {}
    for price in sorted(asked["price"].unique(), key=parse_amount):
        for when in InterviewTime:
            at = asked.filter((pl.col("price") == price) & (pl.col("when") == when.value))
            if at.is_empty():
                continue
            estimate = clustered_share((at["score"] >= LIKELY).to_list(), at["group"].to_list())
            curves.setdefault(when.value, []).append((price, estimate))
            about: Row = {"price": price, "when": when.value, "people": estimate.n}
            rows.append(about | estimate_cells(estimate, "would_buy_share", "_share"))
    last = "after" if "after" in curves else next(iter(curves))
    told = ", ".join(
        f"{format_share(estimate)} would buy it at {price}" for price, estimate in curves[last]
    )
    rising = [
        f"{when} the talk at {dear} more than at {cheap}"
        for when, curve in curves.items()
        for (cheap, estimate), (dear, b) in pairwise(curve)
        if b.value > estimate.value
    ]
    return concept.finding(
        "demand",
        "What would they pay?",
        f"{last.capitalize()} the talk {told}."
        + (f" Demand rises with the price in places ({'; '.join(rising)})." if rising else ""),
        ResultTable.from_records(
            rows, "Definitely or probably would buy, asked in private at each price"
        ),
        LineChart(
            tuple(
                (when, parse_amount(price), round(estimate.value, 4))
                for when, curve in curves.items()
                for price, estimate in curve
            ),
            "price",
            "share that would buy",
        ),
        notes=(
            "Each price was asked by itself, without knowledge of the others. A curve that rises "
            "with the price is noise, or people who take the price for quality.",
            INTERVALS,
        ),
        section="Purchase intent",
        headline=True,
    )


def position_finding(concept: Concept) -> Finding | None:
    """Return how positions moved: by participant with one group, by group mean with several."""
    path = position_pairs(concept.statements)
    asked = concept.statements.filter(pl.col("when").is_in(["before", "after"]))
    unknown = describe_missing(asked.filter(pl.col("position").is_null())["missing"])
    if path.is_empty() and not unknown:
        return None
    if path.is_empty():
        return concept.finding(
            "positions",
            "What moved?",
            f"Nobody's position is known both before and after the talk ({unknown}).",
            ResultTable((), ()),
            section="Positions",
            headline=True,
        )
    moved = concept.measure_result(POSITION)
    movers = sum(has_moved(*pair) for pair in path.select("before", "after").iter_rows())
    said = f"{movers} of {path.height} people changed their position."
    if moved is not None:
        said += f" On a scale from −1 to 1: {_result_sentence(moved)}"
    again = position_pairs(concept.statements, InterviewTime.RETEST)
    if not again.is_empty():
        wavered = sum(has_moved(*pair) for pair in again.select("before", "after").iter_rows())
        said += (
            f" When the same question was merely asked again before the talk, {wavered} of "
            f"{again.height} gave another position; no comparison of the two counts is made."
        )
    if unknown:
        said += f" Statements without a position, not counted: {unknown}."
    shifts = concept.opinions.group_by(PERSON).agg(shifts=pl.col("changed").sum())
    path = path.join(shifts, on=PERSON, how="left", maintain_order="left")
    if concept.single:
        rows = path.select(pl.col("name").alias("person"), "before", "after", "shifts")
        lines = LineChart(
            tuple(carry_positions_forward(concept.opinions)),
            "turn",
            "position (−1 against, 1 in favor)",
        )
    else:
        rows = path.group_by("group", maintain_order=True).agg(
            pl.col("before").mean().alias("mean before"),
            pl.col("after").mean().alias("mean after"),
            pl.col("shifts").sum(),
        )
        lines = LineChart(
            tuple(mean_position_by_question(concept.opinions)),
            "question",
            "mean position of the group",
        )
    planted = bool(concept.statements["planted"].any())
    return concept.finding(
        "positions",
        "What moved?",
        said + (" The positions before the talk were planted, not asked." if planted else ""),
        ResultTable.from_records(rows.to_dicts()),
        lines,
        notes=(
            "Positions after the talk are those that the coder read last: nobody was asked."
            if planted
            else "Positions before and after are each person's own, stated in private; the path "
            "between them is a coder's reading of the answers.",
            *_unread_answers(concept),
        ),
        section="Positions",
        headline=True,
        primary=_is_primary(moved),
    )


def describe_missing(reasons: pl.Series) -> str:
    """Return the number of missing answers by reason, such as "2 cannot_say, 1 declined"."""
    counts = reasons.fill_null("unknown").alias("reason").value_counts().sort("reason")
    return ", ".join(f"{count} {reason}" for reason, count in counts.iter_rows())


def _unread_answers(concept: Concept) -> tuple[str, ...]:
    """Return a note on answers without a coded position. Earlier versions did not record them."""
    if "reading_missing" not in concept.said.columns:
        return ()
    unread = concept.answers["reading_missing"].drop_nulls()
    if unread.is_empty():
        return ()
    return (
        f"The coder gave no position for {len(unread)} of "
        f"{format_count(concept.answers.height, 'answer')} "
        f"({describe_missing(unread)}); the one known before is kept there.",
    )


def coded_themes(concept: Concept) -> Finding | None:
    """Return coded objections, needs and themes, the most frequent first, or None without codes."""
    read = concept.codes.get("remarks")
    if read is None or read.primary_coder is None:
        return None
    title = "What do they object to, need and talk about?"
    if not read.supports_findings:
        withheld = read.describe_withheld(WITHHELD_REMARKS)
        return concept.withheld_finding("remarks", title, withheld, "Objections")
    everyone, groups = concept.people.height, concept.people["group"].n_unique()
    raised: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for row in concept.answers.iter_rows(named=True):
        found_in = read.codes_of(f"{row['group']}/{row['stimulus']}/turn{row['turn']}") or {}
        for code, quote in found_in.items():
            who = (row["group"], row["speaker_id"])
            told = f"“{quote}” ({row['speaker_name']}, {row['group']} turn {row['turn']})"
            raised.setdefault(kind_and_name(code), {}).setdefault(who, told)
    if not raised or not everyone:
        return None
    people = list(concept.people.select("group", "persona_id").rows())
    rows: list[Row] = []
    says: dict[str, str] = {}
    for (kind, name), by in sorted(raised.items(), key=lambda item: (-len(item[1]), item[0])):
        estimate = clustered_share([who in by for who in people], [group for group, _ in people])
        within = len({group for group, _ in by})
        about: Row = {"kind": kind, "what": name, "people": len(by), "people_share": estimate.value}
        bounds = estimate_cells(estimate, "people_share", "_share")
        rows.append({**about, "groups": within, **bounds, "for example": next(iter(by.values()))})
        most = f"The most frequent {kind} is {name}: {len(by)} of {everyone} people"
        most += f", in {within} of {groups} groups" * (groups > 1)
        says.setdefault(
            kind, most + (f", {format_share(estimate)}." if estimate.has_interval else ".")
        )
    said = " ".join(says[kind] for kind in ("objection", "need") if kind in says)
    return concept.finding(
        "remarks",
        title,
        f"{said} The quotes with their turns are in topline.md.",
        ResultTable.from_records(rows),
        BarChart(
            tuple((name, kind, float(len(by))) for (kind, name), by in raised.items()), "people"
        ),
        notes=(read.note, INTERVALS),
        section="Objections",
        headline=True,
    )


def reply_finding(concept: Concept) -> Finding:
    """Return how often each participant responded to each other one."""
    names = dict(
        concept.said.select("speaker_id", "speaker_name").unique(maintain_order=True).rows()
    )
    counts = {
        (answer, b): name
        for answer, b, name in concept.answers.filter(pl.col("replied_to").is_not_null())
        .group_by("speaker_id", "replied_to", maintain_order=True)
        .len()
        .iter_rows()
    }
    people = {item_id: name for item_id, name in names.items() if item_id != "moderator"}
    among = sum(count for (_, b), count in counts.items() if b in people)
    return concept.finding(
        "replies",
        "Who replied to whom?",
        f"{among} of {concept.answers.height} answers take up what another participant said.",
        ResultTable.from_records(
            [
                {"who": names[answer], "to": names.get(b, b), "times": count}
                for (answer, b), count in counts.items()
            ]
        ),
        interaction_matrix(counts, people, "replies"),
        section="Conversation",
    )


def talk_time(concept: Concept) -> Finding | None:
    """Return the distribution of words, by participant or as Gini coefficients of groups."""
    words = concept.said.group_by([*TALK, "speaker_id"], maintain_order=True).agg(
        pl.col("speaker_name").first(), pl.col("words").sum(), pl.len().alias("messages")
    )
    total = int(words["words"].sum())
    people = words.filter(pl.col("speaker_id") != "moderator")
    moderator = total - int(people["words"].sum())
    uneven = {
        str(group): gini(part["words"].to_numpy())
        for (group, _), part in people.group_by(TALK, maintain_order=True)
    }
    if not uneven or not total:
        return None
    gap = clustered_mean(list(uneven.values()), list(uneven))
    if concept.single:
        spoken = words.sort("words", descending=True, maintain_order=True)
        rows: list[Row] = [
            {"who": who, "words": name, "words_share": name / total, "messages": messages}
            for who, name, messages in spoken.select(
                "speaker_name", "words", "messages"
            ).iter_rows()
        ]
        bars = [
            (who, "words", float(name))
            for who, name in spoken.select("speaker_name", "words").iter_rows()
        ]
    else:
        rows = [
            {"group": group, "gini of words": round(value, 3)} for group, value in uneven.items()
        ]
        bars = [(group, "Gini", round(value, 3)) for group, value in uneven.items()][
            : 2 * MOST_LINES
        ]
    return concept.finding(
        "talk_time",
        "Who had the floor?",
        f"The moderator has {format_percent(moderator / total)} of the words; among participants "
        "the "
        "Gini coefficient of words is "
        f"{format_mean_value(gap.value) if concept.single else format_mean(gap)}"
        f"{'' if concept.single else ' on average'} (0: all the same).",
        ResultTable.from_records(rows),
        BarChart(tuple(bars), unit="words" if concept.single else "Gini of words"),
        section="Conversation",
    )


def out_of_character(concept: Concept) -> Finding | None:
    """Return how many replies may be out of character, or None if no reply has a sign of it."""
    if "out_of_character" not in concept.said.columns:
        return None
    signs = concept.said.filter(pl.col("out_of_character"))
    if signs.is_empty():
        return None
    shown = signs.select(
        "group", "turn", name="speaker_name", text=pl.col("text").str.slice(0, 160)
    ).head(MOST_LINES)
    return concept.finding(
        "out_of_character",
        "Did they stay in character?",
        f"{signs.height} of {format_count(concept.said.height, 'message')} may be out of "
        "character: the "
        "speaker talks as an assistant, as the player of a role, or in the headings of a script.",
        ResultTable.from_records(shown.to_dicts()),
        notes=("Found by signs in English; these messages were kept like all others.",),
        section="Conversation",
    )


def sycophancy_finding(concept: Concept) -> Finding:
    """Return the sycophancy check, with agreement by place in the speaking order."""
    people, answers = [], []
    for (group, stimulus), part in concept.answers.group_by(TALK, maintain_order=True):
        stated = concept.statements.filter(
            (pl.col("group") == group) & pl.col("position").is_not_null()
        ).select("when", "persona_id", "position")
        by_when = [
            dict(stated.filter(pl.col("when") == when.value).drop("when").rows())
            for when in InterviewTime
        ]
        people.append(sycophancy.PositionRecord(str(group), *by_when))
        moved = sycophancy.answer_movements(
            by_when[0], part.select("speaker_id", "valence").iter_rows()
        )
        answers += [
            sycophancy.PositionedAnswer(
                f"{group}/{stimulus}/{row['question']}",
                row["position"],
                row["stance"],
                step,
                sycophancy.takes_up_others(row["stance"], row["replied_to"]),
            )
            for row, step in zip(part.iter_rows(named=True), moved, strict=True)
            if not row["probe"]
        ]
    check = sycophancy.compute_check(answers, people, concept.control)
    rows = []
    bars = []
    for place in sorted(
        {
            positioned_answer.position
            for positioned_answer in answers
            if positioned_answer.position > 1
        }
    ):
        at = [
            positioned_answer.stance
            for positioned_answer in answers
            if positioned_answer.position == place
        ]
        of = {stance: at.count(stance) / len(at) for stance in ("agree", "disagree")}
        rows.append(
            {"place in order": place, "answers": len(at)}
            | {f"{stance}_share": part for stance, part in of.items()}
        )
        bars += [(f"place {place}", stance, part) for stance, part in of.items()]
    return concept.finding(
        "sycophancy",
        "Did they only please each other?",
        check.describe_check(),
        ResultTable.from_records(rows, caption="Answers that take up others, by speaking order"),
        BarChart(tuple(bars), "share of the answers", percent=True),
        notes=(
            "Agreement and disagreement are a coder's reading of each answer. The slope is over "
            "answers that take somebody up, because later speakers have more to take up. Movement "
            "is by how many points a private position came nearer to where the others stood "
            "before the talk. Convergence is tested against a second asking before the talk: "
            "each person's answers there and after the talk are swapped at random. These are "
            "checks of the simulation, at 5 % each, and no claims of the study.",
        ),
        section="Conversation",
    )


def words_and_positions(concept: Concept) -> Finding | None:
    """Return Krippendorff's alpha of stated positions and coded words, or None without codes."""
    read = concept.codes.get("opinion")
    if read is None or read.primary_coder is None:
        return None
    title = "Do words and positions agree?"
    if not read.supports_findings:
        withheld = read.describe_withheld("The agreement of stated positions and coded words")
        return concept.withheld_finding("words_and_positions", title, withheld, "Positions")
    both = [
        (row["position"], STANDS[stance])
        for row in concept.statements.filter(pl.col("position").is_not_null()).iter_rows(named=True)
        if (stance := read.single_code("/".join(row[key] for key in (*PERSON, "when")))) in STANDS
    ]
    if len(both) < 2:
        return None
    codes = np.array(both, float).T
    alpha = krippendorff_alpha(codes, "interval")
    sides = np.where(np.abs(codes) < NEUTRAL, 0, np.sign(codes))
    same = float(np.mean(sides[0] == sides[1]))
    return concept.finding(
        "words_and_positions",
        title,
        "The stated position and the coded words are on the same side in "
        f"{format_percent(same)} of {len(both)} private statements; {_describe_alpha(alpha)}",
        ResultTable.from_records(
            [
                {
                    "statements": len(both),
                    "same_side_share": same,
                    "krippendorff alpha": known(alpha),
                    "mean position": float(codes[0].mean()),
                    "mean of the coded words": float(codes[1].mean()),
                }
            ],
            "Krippendorff's alpha for interval data: 1 is agreement, 0 is chance",
        ),
        notes=(read.note,),
        section="Positions",
    )


def _describe_alpha(alpha: float) -> str:
    if not math.isfinite(alpha):
        return "all were read alike, so agreement cannot be distinguished from chance."
    if alpha >= GOOD:
        return f"Krippendorff's alpha is {alpha:.2f}: either may stand for the other."
    if alpha >= FAIR:
        return f"Krippendorff's alpha is {alpha:.2f}: enough for tentative conclusions."
    return (
        f"Krippendorff's alpha is {alpha:.2f}: too little to trust either without reading the "
        "answers."
    )


def compare_stimuli(
    stated: pl.DataFrame, stimuli: Sequence[str], results: Sequence[Result]
) -> Finding | None:
    """Return the final positions on several concepts, and their differences from the first."""
    after = stated.filter(pl.col("when") == InterviewTime.AFTER.value)
    means = {}
    for stimulus in stimuli:
        own = after.filter((pl.col("stimulus") == stimulus) & pl.col("position").is_not_null())
        means[stimulus] = clustered_mean(own["position"].to_list(), own["group"].to_list()).value
    known_means = {text: value for text, value in means.items() if math.isfinite(value)}
    groups = after["group"].n_unique()
    unknown = [text for text in stimuli if text not in known_means]
    lacking = f"no final position is known for {', '.join(unknown)}."
    between = [result for result in results if result.claim.by == "stimulus"]
    made = claims_finding(
        "concepts",
        "Which concept does better?",
        between,
        axis="final position",
        notes=(
            "Final positions: "
            + join_clauses(
                f"{text} {format_signed(value, 3)}" for text, value in known_means.items()
            ),
        ),
        section="Concept test",
        units=groups,
    )
    if made is None or not known_means:
        return Finding(
            "concepts",
            "Which concept does better?",
            f"The concepts cannot be compared: {lacking}",
            ResultTable((), ()),
            section="Concept test",
            headline=True,
            unit="group",
            units=groups,
        )
    best = max(known_means, key=lambda text: known_means[text])
    return replace(
        made,
        says=f"The highest mean position after the talk is that on {best} "
        f"({format_signed(known_means[best], 3)}). {made.says}"
        + f" {lacking.capitalize()}"
        * bool(unknown),
        headline=True,
        conclusion=f"{best} does best",
    )
