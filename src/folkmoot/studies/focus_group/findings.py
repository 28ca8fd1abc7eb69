"""What a focus group found, from its tables: for the end of a run and for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from folkmoot.kit.claims import claims_finding, read_results
from folkmoot.kit.coding import Codings, codings
from folkmoot.kit.exposure import exposure
from folkmoot.kit.findings import (
    Row,
    cells,
    found,
    known,
    listed,
    mean,
    number,
    share,
    shares,
    signed,
    split_address,
    who_to_whom,
)
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share
from folkmoot.measures.inference.estimates import Estimate, percent, plural
from folkmoot.measures.retest import Repeat
from folkmoot.storage.findings import Bars, Finding, Grid, Lines
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import sycophancy
from folkmoot.studies.focus_group.config import (
    INTENT,
    LIKELY,
    POSITION,
    DiscussionConfig,
    amount,
    claims,
)
from folkmoot.studies.focus_group.discussion import INTENTS, When
from folkmoot.studies.focus_group.positions import has_moved
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.reading import STANDS, kind_and_name

TALK = ["group", "stimulus"]
PERSON = [*TALK, "persona_id"]
MOST_LINES = 20
INTERVALS = (
    "Intervals, from five groups on: 95 %, groups as units, not adjusted for the number of rows."
)
WITHHELD_REMARKS = "Objections, needs and themes, by how many people raised them, with quotes,"
GOOD, FAIR = 0.8, 0.667  # Krippendorff's customary limits: for conclusions, for tentative ones
NEUTRAL = 0.05  # nearer to zero than this is neither for nor against


@dataclass(frozen=True)
class Concept:
    """All groups' talk about one concept. `suffix` marks keys and titles where there are several.

    `single`: one group talked, so its people are shown; of many groups their means.
    """

    name: str
    said: pl.DataFrame
    opinions: pl.DataFrame
    people: pl.DataFrame
    statements: pl.DataFrame
    intents: pl.DataFrame
    codes: Mapping[str, Codings]
    single: bool
    several: bool
    results: tuple[Result, ...] = ()
    control: str | None = None

    def finding(self, key: str, title: str, *about: Any, **more: Any) -> Finding:
        """A finding over groups; key and title name the concept where there are several."""
        if self.several:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        more |= {"unit": "group", "units": self.said["group"].n_unique()}
        return Finding(key, title, *about, **more)

    def result(self, measure: str) -> Result | None:
        """The claim that a measure moved with the talk about this concept; None if the data hold
        nothing of it."""
        own = ("stimulus", (self.name,))
        found = (r for r in self.results if r.claim.measure == measure and own in r.claim.where)
        return next((r for r in found if r.counts != (0, 0)), None)

    def withheld(self, key: str, title: str, says: str, section: str) -> Finding:
        """Return the stand-in for a finding that the codes do not support: one line, no figure."""
        if self.several:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        return Finding(key, title, says, Grid((), ()), section=section)

    @property
    def answers(self) -> pl.DataFrame:
        return self.said.filter(pl.col("speaker_role") == "participant")


def findings(run: RunFolder) -> list[Finding]:
    """All findings, concept by concept; the comparison of concepts first."""
    if not run.has_table("utterances"):
        return []
    said, opinions, stated = read_talk(run), run.table("opinions"), run.table("statements")
    stimuli = said["stimulus"].unique(maintain_order=True).to_list()

    codes = codings(run)
    results = tuple(read_results(run, DiscussionConfig, claims))
    concepts = [
        Concept(
            stimulus,
            said.filter(pl.col("stimulus") == stimulus),
            opinions.filter(pl.col("stimulus") == stimulus),
            run.table("personas"),
            run.table("statements").filter(pl.col("stimulus") == stimulus),
            run.table("intents").filter(pl.col("stimulus") == stimulus),
            codes,
            single=said.select(TALK).unique().height == 1,
            several=len(stimuli) > 1,
            results=results,
            control=run.config.get("control"),
        )
        for stimulus in stimuli
    ]
    return found(
        compared(stated, stimuli, results) if len(stimuli) > 1 else None,
        *(
            (
                purchase_intent(c),
                demand(c),
                positions(c),
                words_and_positions(c),
                said_about(c),
                replies(c) if c.single else None,
                talk_time(c),
                out_of_character(c),
                pleasing(c),
            )
            for c in concepts
        ),
        exposure(run),
    )


def repeats(run: RunFolder) -> list[Repeat]:
    """What people say in private twice: their position before the talk, in two conversations that
    know nothing of each other, and position and purchase intent before and after the talk."""
    stated = run.table("statements").filter(~pl.col("planted"))
    stated = stated.rename({"position": "answer", "when": "occasion"})
    intents = run.table("intents").rename({"when": "occasion"})
    who, talk = ["stimulus", "group", "persona_id"], [(When.BEFORE.value, When.AFTER.value)]
    retest = [(When.BEFORE.value, When.RETEST.value)]
    alone, asked = ["group", "persona_id"], ["stimulus", "price"]
    return [
        *pair_answers(stated, retest, who, unit=alone, question=["stimulus"], untouched=True),
        *pair_answers(stated, talk, who, unit=["group"], question=["stimulus"]),
        *pair_answers(intents, talk, [*who, "price"], unit=["group"], question=asked),
    ]


def strict_tables(run: RunFolder, excluded: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """`intents` without the answers that are left out.

    Their addresses end in `group/concept/when/who/intent/ask0`, with the price of the ladder before
    `ask0`.
    """
    asked = set()
    intent = (pl.col("kind") == "choice") & pl.col("address").str.contains("/intent/")
    for address in excluded.filter(intent)["address"]:
        _, group, concept, when, who, _, *price, _ask = split_address(address)
        asked.add((group, concept, when, who, *price))
    intents = run.table("intents")
    keys = intents.select(*TALK, "when", "persona_id", "ladder", "price").iter_rows()
    left_out = pl.Series(
        [
            (*key, f"{amount(price):g}") in asked if ladder else tuple(key) in asked
            for *key, ladder, price in keys
        ],
        dtype=pl.Boolean,
    )
    kept = pl.when(~pl.lit(left_out)).then(pl.col("answer", "score"))
    return {"intents": intents.lazy().with_columns(kept)}


def purchase_intent(c: Concept) -> Finding | None:
    """The private answers before and after the talk; None without questions after it."""
    asked = c.intents.filter(~pl.col("ladder"))
    own = asked.filter(pl.col("answer").is_not_null())
    parts = {when: own.filter(pl.col("when") == when) for when in own["when"].unique()}
    after = parts.get("after", own.clear())
    missing = asked.filter((pl.col("when") == "after") & pl.col("answer").is_null())["missing"]
    unanswered = describe_missing(missing)
    title = "Would they buy it?"
    if after.is_empty():
        if not unanswered:
            return None
        return c.finding(
            "purchase_intent",
            title,
            f"Nobody said whether they would buy it: {unanswered}.",
            Grid((), ()),
            section="Purchase intent",
            headline=True,
        )
    likely = clustered_share((after["score"] >= LIKELY).to_list(), after["group"].to_list())
    moved = c.result(INTENT)
    price = after["price"][0]
    groups = after["group"].n_unique()
    counts = {
        when: {o: part.filter(pl.col("answer") == o).height for o in INTENTS}
        for when, part in sorted(parts.items(), key=lambda item: list(When).index(When(item[0])))
    }
    said = (
        f"{share(likely)} would definitely or probably buy it{f' at {price}' if price else ''}, "
        f"asked in private after the talk; {after.height} people in "
        f"{'one group' if groups == 1 else plural(groups, 'group')}."
    )
    if unanswered:
        said += f" Not counted: {unanswered}."
    if moved is not None:
        said += f" {_sentence(moved)}"
    return c.finding(
        "purchase_intent",
        title,
        said,
        Grid.of(
            [
                {"answer": o}
                | {f"{when}_share": shares(of)[o] for when, of in counts.items()}
                | {f"people {when}": of[o] for when, of in counts.items()}
                for o in INTENTS
            ]
        ),
        Bars(
            tuple((o, when, float(of[o])) for when, of in counts.items() for o in INTENTS),
            unit="people",
        ),
        notes=("Stated intent overstates what people buy; use it to compare concepts.",),
        section="Purchase intent",
        headline=True,
        conclusion=_conclude_intent(likely, moved),
    )


def _conclude_intent(likely: Estimate, moved: Result | None) -> str:
    """Say on which side of one half the intent lies, and what is concluded of its movement."""
    side = "most would buy it" if likely.value > 0.5 else "at most half would buy it"
    return f"{side}; {moved.phrase}" if moved is not None else side


def _sentence(result: Result) -> str:
    """A claim in one sentence: with its conclusion if it is primary, else as an estimate."""
    primary = result.claim.family == "primary"
    told = result.concluded if primary else f"{result.estimated}, exploratory"
    return f"{told[0].upper()}{told[1:]}."


def demand(c: Concept) -> Finding | None:
    """The share that would buy at each price, before and after the talk; None without a ladder."""
    asked = c.intents.filter(pl.col("answer").is_not_null() & pl.col("price").is_not_null())
    if asked["price"].n_unique() < 2:
        return None
    rows: list[Row] = []
    curves: dict[str, list[tuple[str, Estimate]]] = {}
    for price in sorted(asked["price"].unique(), key=amount):
        for when in When:
            at = asked.filter((pl.col("price") == price) & (pl.col("when") == when.value))
            if at.is_empty():
                continue
            e = clustered_share((at["score"] >= LIKELY).to_list(), at["group"].to_list())
            curves.setdefault(when.value, []).append((price, e))
            about: Row = {"price": price, "when": when.value, "people": e.n}
            rows.append(about | cells(e, "would_buy_share", "_share"))
    last = "after" if "after" in curves else next(iter(curves))
    told = ", ".join(f"{share(e)} would buy it at {price}" for price, e in curves[last])
    rising = [
        f"{when} the talk at {dear} more than at {cheap}"
        for when, curve in curves.items()
        for (cheap, a), (dear, b) in pairwise(curve)
        if b.value > a.value
    ]
    return c.finding(
        "demand",
        "What would they pay?",
        f"{last.capitalize()} the talk {told}."
        + (f" Demand rises with the price in places ({'; '.join(rising)})." if rising else ""),
        Grid.of(rows, "Definitely or probably would buy, asked in private at each price"),
        Lines(
            tuple(
                (when, amount(price), round(e.value, 4))
                for when, curve in curves.items()
                for price, e in curve
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


def paths(stated: pl.DataFrame, end: When = When.AFTER) -> pl.DataFrame:
    """One row a person of whom both are known: the private position before the talk and at the
    `end`, as `after`."""
    before, after = (
        stated.filter((pl.col("when") == when.value) & pl.col("position").is_not_null())
        for when in (When.BEFORE, end)
    )
    both = before.join(after, on=PERSON, suffix="_after", maintain_order="left")
    return both.select(*PERSON, "name", before=pl.col("position"), after=pl.col("position_after"))


def positions(c: Concept) -> Finding | None:
    """From where to where: of one group its people, of many their means."""
    path = paths(c.statements)
    asked = c.statements.filter(pl.col("when").is_in(["before", "after"]))
    unknown = describe_missing(asked.filter(pl.col("position").is_null())["missing"])
    if path.is_empty() and not unknown:
        return None
    if path.is_empty():
        return c.finding(
            "positions",
            "What moved?",
            f"Nobody's position is known both before and after the talk ({unknown}).",
            Grid((), ()),
            section="Positions",
            headline=True,
        )
    moved = c.result(POSITION)
    movers = sum(has_moved(*pair) for pair in path.select("before", "after").iter_rows())
    said = f"{movers} of {path.height} people changed their position."
    if moved is not None:
        said += f" On a scale from −1 to 1: {_sentence(moved)}"
    again = paths(c.statements, When.RETEST)
    if not again.is_empty():
        wavered = sum(has_moved(*pair) for pair in again.select("before", "after").iter_rows())
        said += (
            f" When the same question was merely asked again before the talk, {wavered} of "
            f"{again.height} gave another position; no comparison of the two counts is made."
        )
    if unknown:
        said += f" Statements without a position, not counted: {unknown}."
    shifts = c.opinions.group_by(PERSON).agg(shifts=pl.col("changed").sum())
    path = path.join(shifts, on=PERSON, how="left", maintain_order="left")
    if c.single:
        rows = path.select(pl.col("name").alias("person"), "before", "after", "shifts")
        lines = Lines(tuple(_carried(c.opinions)), "turn", "position (−1 against, 1 in favor)")
    else:
        rows = path.group_by("group", maintain_order=True).agg(
            pl.col("before").mean().alias("mean before"),
            pl.col("after").mean().alias("mean after"),
            pl.col("shifts").sum(),
        )
        lines = Lines(tuple(_by_question(c.opinions)), "question", "mean position of the group")
    planted = bool(c.statements["planted"].any())
    return c.finding(
        "positions",
        "What moved?",
        said + (" The positions before the talk were planted, not asked." if planted else ""),
        Grid.of(rows.to_dicts()),
        lines,
        notes=(
            "Positions after the talk are those that the coder read last: nobody was asked."
            if planted
            else "Positions before and after are each person's own, stated in private; the path "
            "between them is a coder's reading of the answers.",
            *_unread_answers(c),
        ),
        section="Positions",
        headline=True,
    )


def describe_missing(reasons: pl.Series) -> str:
    """How many answers are missing for each reason: "2 cannot_say, 1 declined"."""
    counts = reasons.fill_null("unknown").alias("reason").value_counts().sort("reason")
    return ", ".join(f"{count} {reason}" for reason, count in counts.iter_rows())


def _unread_answers(concept: Concept) -> tuple[str, ...]:
    """Return a note on answers for which the coder could not read a position; runs of earlier
    versions do not record them."""
    if "reading_missing" not in concept.said.columns:
        return ()
    unread = concept.answers["reading_missing"].drop_nulls()
    if unread.is_empty():
        return ()
    return (
        f"The coder gave no position for {len(unread)} of "
        f"{plural(concept.answers.height, 'answer')} "
        f"({describe_missing(unread)}); the one known before is kept there.",
    )


def _carried(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Each person's positions, the last one carried to the last turn of the talk."""
    known = opinions.filter(pl.col("valence").is_not_null()).sort("turn", maintain_order=True)
    rows = known.select("name", "turn", "valence").rows()
    last = float(max((turn for _, turn, _ in rows), default=0))
    ends = {name: (name, last, valence) for name, _, valence in rows}
    return [(name, float(turn), valence) for name, turn, valence in rows] + list(ends.values())


def _by_question(opinions: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Mean position of each group after each question, of as many groups as can be told apart."""
    out: list[tuple[str, float, float]] = []
    for group in opinions["group"].unique(maintain_order=True).to_list()[:MOST_LINES]:
        now: dict[str, float] = {}
        means: dict[int, float] = {}
        own = opinions.filter((pl.col("group") == group) & pl.col("valence").is_not_null())
        for r in own.iter_rows(named=True):
            now[r["persona_id"]] = r["valence"]
            means[r["question"]] = sum(now.values()) / len(now)
        out += [(group, float(q), round(v, 4)) for q, v in means.items()]
    return out


def said_about(c: Concept) -> Finding | None:
    """Objections, needs and themes, the most frequent first, with quotes; None without codes."""
    read = c.codes.get("remarks")
    if read is None or read.coder is None:
        return None
    title = "What do they object to, need and talk about?"
    if not read.supports:
        withheld = read.describe_withheld(WITHHELD_REMARKS)
        return c.withheld("remarks", title, withheld, "Objections")
    everyone, groups = c.people.height, c.people["group"].n_unique()
    raised: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for r in c.answers.iter_rows(named=True):
        found_in = read.of(f"{r['group']}/{r['stimulus']}/turn{r['turn']}") or {}
        for code, quote in found_in.items():
            who = (r["group"], r["speaker_id"])
            told = f"“{quote}” ({r['speaker_name']}, {r['group']} turn {r['turn']})"
            raised.setdefault(kind_and_name(code), {}).setdefault(who, told)
    if not raised or not everyone:
        return None
    people = list(c.people.select("group", "persona_id").rows())
    rows: list[Row] = []
    says: dict[str, str] = {}
    for (kind, name), by in sorted(raised.items(), key=lambda item: (-len(item[1]), item[0])):
        e = clustered_share([who in by for who in people], [group for group, _ in people])
        within = len({group for group, _ in by})
        about: Row = {"kind": kind, "what": name, "people": len(by), "people_share": e.value}
        bounds = cells(e, "people_share", "_share")
        rows.append({**about, "groups": within, **bounds, "for example": next(iter(by.values()))})
        most = f"The most frequent {kind} is {name}: {len(by)} of {everyone} people"
        most += f", in {within} of {groups} groups" * (groups > 1)
        says.setdefault(kind, most + (f", {share(e)}." if e.has_interval else "."))
    said = " ".join(says[kind] for kind in ("objection", "need") if kind in says)
    return c.finding(
        "remarks",
        title,
        f"{said} The quotes with their turns are in topline.md.",
        Grid.of(rows),
        Bars(tuple((name, kind, float(len(by))) for (kind, name), by in raised.items()), "people"),
        notes=(read.note, INTERVALS),
        section="Objections",
        headline=True,
    )


def replies(c: Concept) -> Finding:
    """Who took up what whom said."""
    names = dict(c.said.select("speaker_id", "speaker_name").unique(maintain_order=True).rows())
    counts = {
        (a, b): n
        for a, b, n in c.answers.filter(pl.col("replied_to").is_not_null())
        .group_by("speaker_id", "replied_to", maintain_order=True)
        .len()
        .iter_rows()
    }
    people = {i: name for i, name in names.items() if i != "moderator"}
    among = sum(n for (_, b), n in counts.items() if b in people)
    return c.finding(
        "replies",
        "Who replied to whom?",
        f"{among} of {c.answers.height} answers take up what another participant said.",
        Grid.of(
            [{"who": names[a], "to": names.get(b, b), "times": n} for (a, b), n in counts.items()]
        ),
        who_to_whom(counts, people, "replies"),
        section="Conversation",
    )


def talk_time(c: Concept) -> Finding | None:
    """Who had the floor, by words: of one group its people, of many how unequal they were."""
    words = c.said.group_by([*TALK, "speaker_id"], maintain_order=True).agg(
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
    if c.single:
        spoken = words.sort("words", descending=True, maintain_order=True)
        rows: list[Row] = [
            {"who": who, "words": n, "words_share": n / total, "messages": messages}
            for who, n, messages in spoken.select("speaker_name", "words", "messages").iter_rows()
        ]
        bars = [
            (who, "words", float(n))
            for who, n in spoken.select("speaker_name", "words").iter_rows()
        ]
    else:
        rows = [{"group": g, "gini of words": round(v, 3)} for g, v in uneven.items()]
        bars = [(g, "Gini", round(v, 3)) for g, v in uneven.items()][: 2 * MOST_LINES]
    return c.finding(
        "talk_time",
        "Who had the floor?",
        f"The moderator has {percent(moderator / total)} of the words; among participants the "
        f"Gini coefficient of words is {number(gap.value) if c.single else mean(gap)}"
        f"{'' if c.single else ' on average'} (0: all the same).",
        Grid.of(rows),
        Bars(tuple(bars), unit="words" if c.single else "Gini of words"),
        section="Conversation",
    )


def out_of_character(concept: Concept) -> Finding | None:
    """How many replies may not be in character; None if there is no sign of any."""
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
        f"{signs.height} of {plural(concept.said.height, 'message')} may be out of character: the "
        "speaker talks as an assistant, as the player of a role, or in the headings of a script.",
        Grid.of(shown.to_dicts()),
        notes=("Found by signs in English; these messages were kept like all others.",),
        section="Conversation",
    )


def pleasing(c: Concept) -> Finding:
    """Signs of pleasing each other: agreement along the order, movement towards the group, open
    disagreement."""
    people, answers = [], []
    for (group, stimulus), part in c.answers.group_by(TALK, maintain_order=True):
        stated = c.statements.filter(
            (pl.col("group") == group) & pl.col("position").is_not_null()
        ).select("when", "persona_id", "position")
        by_when = [
            dict(stated.filter(pl.col("when") == when.value).drop("when").rows()) for when in When
        ]
        people.append(sycophancy.Moved(str(group), *by_when))
        moved = sycophancy.steps(by_when[0], part.select("speaker_id", "valence").iter_rows())
        answers += [
            sycophancy.Answered(
                f"{group}/{stimulus}/{r['question']}",
                r["position"],
                r["stance"],
                step,
                sycophancy.takes_up_others(r["stance"], r["replied_to"]),
            )
            for r, step in zip(part.iter_rows(named=True), moved, strict=True)
            if not r["probe"]
        ]
    check = sycophancy.check(answers, people, c.control)
    rows = []
    bars = []
    for place in sorted({a.position for a in answers if a.position > 1}):
        at = [a.stance for a in answers if a.position == place]
        of = {stance: at.count(stance) / len(at) for stance in ("agree", "disagree")}
        rows.append(
            {"place in order": place, "answers": len(at)}
            | {f"{stance}_share": part for stance, part in of.items()}
        )
        bars += [(f"place {place}", stance, part) for stance, part in of.items()]
    return c.finding(
        "sycophancy",
        "Did they only please each other?",
        check.reading(),
        Grid.of(rows, caption="Answers that take up others, by speaking order"),
        Bars(tuple(bars), "share of the answers", percent=True),
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


def words_and_positions(c: Concept) -> Finding | None:
    """Whether the position that people state fits their words, as a coder reads them; None without
    codes.

    Krippendorff's alpha of the stated position and the coded stance, statement by statement.
    """
    read = c.codes.get("opinion")
    if read is None or read.coder is None:
        return None
    title = "Do words and positions agree?"
    if not read.supports:
        withheld = read.describe_withheld("The agreement of stated positions and coded words")
        return c.withheld("words_and_positions", title, withheld, "Positions")
    both = [
        (r["position"], STANDS[stance])
        for r in c.statements.filter(pl.col("position").is_not_null()).iter_rows(named=True)
        if (stance := read.one("/".join(r[k] for k in (*PERSON, "when")))) in STANDS
    ]
    if len(both) < 2:
        return None
    codes = np.array(both, float).T
    alpha = krippendorff_alpha(codes, "interval")
    sides = np.where(np.abs(codes) < NEUTRAL, 0, np.sign(codes))
    same = float(np.mean(sides[0] == sides[1]))
    return c.finding(
        "words_and_positions",
        title,
        "The stated position and the coded words are on the same side in "
        f"{percent(same)} of {len(both)} private statements; {_alpha_aloud(alpha)}",
        Grid.of(
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


def _alpha_aloud(alpha: float) -> str:
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


def compared(
    stated: pl.DataFrame, stimuli: Sequence[str], results: Sequence[Result]
) -> Finding | None:
    """The same people on several concepts: final positions, and differences to the first."""
    after = stated.filter(pl.col("when") == When.AFTER.value)
    means = {}
    for stimulus in stimuli:
        own = after.filter((pl.col("stimulus") == stimulus) & pl.col("position").is_not_null())
        means[stimulus] = clustered_mean(own["position"].to_list(), own["group"].to_list()).value
    known_means = {s: value for s, value in means.items() if math.isfinite(value)}
    groups = after["group"].n_unique()
    unknown = [s for s in stimuli if s not in known_means]
    lacking = f"no final position is known for {', '.join(unknown)}."
    between = [r for r in results if r.claim.by == "stimulus"]
    made = claims_finding(
        "concepts",
        "Which concept does better?",
        between,
        axis="final position",
        notes=(
            "Final positions: "
            + listed(f"{s} {signed(value, 3)}" for s, value in known_means.items()),
        ),
        section="Concept test",
        units=groups,
    )
    if made is None or not known_means:
        return Finding(
            "concepts",
            "Which concept does better?",
            f"The concepts cannot be compared: {lacking}",
            Grid((), ()),
            section="Concept test",
            headline=True,
            unit="group",
            units=groups,
        )
    best = max(known_means, key=lambda s: known_means[s])
    return replace(
        made,
        says=f"The highest mean position after the talk is that on {best} "
        f"({signed(known_means[best], 3)}). {made.says}"
        + f" {lacking.capitalize()}"
        * bool(unknown),
        headline=True,
        conclusion=f"{best} does best",
    )
