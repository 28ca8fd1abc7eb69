"""The findings of a focus group, computed from its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from folkmoot.hints import capitalise, has_unspaced_script, join_first, shorten
from folkmoot.kit.claims import claims_finding, describe_claims, read_results
from folkmoot.kit.coding import CodebookResults, read_codings
from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.findings import (
    Row,
    all_largest,
    category_shares,
    collect_findings,
    describe_values,
    estimate_cells,
    finite_or_none,
    format_mean,
    format_mean_value,
    format_share,
    format_signed,
    interaction_matrix,
    respondent_checks_finding,
)
from folkmoot.kit.reply_units import check_replies, drop_humans
from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.measures.diagnostics import check_instability
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.measures.reply_checks import part_of_stage
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, LineChart, ResultTable, column_heading
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
from folkmoot.studies.focus_group.participants import describe_shared_people
from folkmoot.studies.focus_group.positions import (
    MAX_LINES,
    PERSON,
    SMALLEST_MOVE,
    TALK,
    carry_positions_forward,
    count_moved,
    mean_position_by_question,
    missing_positions,
    position_pairs,
    repeated_positions,
    tabulate_positions,
)
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.reading import CODE_POSITIONS, kind_and_name

INTERVALS = "95 % intervals from five groups on, groups as units, not adjusted for several rows."
WITHHELD_REMARKS_TEXT = "The number of people who raised each objection, need and theme"
# Krippendorff's customary limits for conclusions and for tentative conclusions.
GOOD_ALPHA, FAIR_ALPHA = 0.8, 0.667
PAIRED_POSITIONS = "Positions: of people who stated both. Changes coded: of all people."
NOT_CODED = "Answers of the warm-up are not coded: participants introduce themselves there."
UNSPACED_WORDS = (
    "In scripts without spaces between words, such as Chinese or Thai, each letter counts as a "
    "word. Shares are comparable between speakers of one script only."
)
# A position closer to zero than this is neither for nor against.
MAX_NEUTRAL_POSITION = 0.05


@dataclass(frozen=True)
class Concept:
    """The tables of one concept."""

    name: str
    utterances: pl.DataFrame
    opinions: pl.DataFrame
    people: pl.DataFrame
    statements: pl.DataFrame
    intents: pl.DataFrame
    codes: Mapping[str, CodebookResults]
    # With a single discussion, tables and charts show participants instead of groups.
    has_one_talk: bool
    has_several_concepts: bool
    results: tuple[Result, ...] = ()
    control: str | None = None

    def finding(self, key: str, title: str, *content: Any, **options: Any) -> Finding:
        """Return a finding on this concept, in which each group is one independent unit."""
        if self.has_several_concepts:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        options |= {"unit": "group", "units": self.utterances["group"].n_unique()}
        if options.get("headline"):
            ids = self.people.filter(source="table")["persona_id"]
            options["notes"] = (*options.get("notes", ()), *describe_shared_people(ids))
        return Finding(key, title, *content, **options)

    def measure_result(self, measure: str) -> Result | None:
        """Return the result of the claim on this measure and concept, or None."""
        matching = (
            result
            for result in self.results
            if result.claim.measure == measure and ("stimulus", (self.name,)) in result.claim.where
        )
        return next((result for result in matching if result.counts != (0, 0)), None)

    def withheld_finding(self, key: str, title: str, statement: str, section: str) -> Finding:
        """Return a finding with a statement and no numbers, because the coding is unreliable."""
        if self.has_several_concepts:
            key, title = f"{key}_{self.name}", f"{title} ({self.name})"
        return Finding(key, title, statement, ResultTable((), ()), section=section)

    @cached_property
    def answers(self) -> pl.DataFrame:
        """The utterances of participants, also humans, with places in the speaking order."""
        return sycophancy.with_places(self.utterances.filter(speaker_role="participant"))


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings, the comparison of concepts first."""
    if not run.has_table("utterances"):
        return []
    utterances, opinions = read_talk(run), run.read_table("opinions")
    statements = run.read_table("statements")
    stimuli = utterances["stimulus"].unique(maintain_order=True).to_list()
    codes = read_codings(run)
    results = tuple(read_results(run, DiscussionConfig, declare_claims))
    concepts = [
        Concept(
            stimulus,
            utterances.filter(pl.col("stimulus") == stimulus),
            opinions.filter(pl.col("stimulus") == stimulus),
            run.read_table("personas"),
            statements.filter(pl.col("stimulus") == stimulus),
            run.read_table("intents").filter(pl.col("stimulus") == stimulus),
            codes,
            has_one_talk=utterances.select(TALK).unique().height == 1,
            has_several_concepts=len(stimuli) > 1,
            results=results,
            control=run.config.get("control"),
        )
        for stimulus in stimuli
    ]
    return collect_findings(
        compare_stimuli(statements, stimuli, results) if len(stimuli) > 1 else None,
        *(
            (
                purchase_intent(concept),
                demand_finding(concept),
                position_finding(concept),
                words_and_positions(concept),
                coded_themes(concept),
                reply_finding(concept) if concept.has_one_talk else None,
                talk_time(concept),
                out_of_character(concept),
                sycophancy_finding(concept),
            )
            for concept in concepts
        ),
        exposure_finding(run),
        fitness_finding(run, concepts) if run.has_table("answers") else None,
    )


def fitness_finding(run: RunFolder, concepts: Sequence[Concept]) -> Finding:
    """Return the finding with all checks of the model's answers."""
    data = [
        sycophancy.read_check_data(
            drop_humans(run, concept.answers, "group", "speaker_id", unit_of=part_of_stage),
            drop_humans(run, concept.statements, "group", "persona_id", unit_of=part_of_stage),
        )
        for concept in concepts
    ]
    pleasing = sycophancy.compute_check(
        [answer for answers, _ in data for answer in answers],
        [person for _, people in data for person in people],
        run.config.get("control"),
    )
    others = [check_instability(repeated_positions(run)), pleasing.judge()]
    checks = check_replies(run, part_of_stage, "group", field_reasons=missing_positions(run.whole))
    return respondent_checks_finding([*checks, *others])


def purchase_intent(concept: Concept) -> Finding | None:
    """Return the finding on stated purchase intents, or None if there are none."""
    asked = concept.intents.filter(~pl.col("ladder"))
    answered = asked.filter(pl.col("answer").is_not_null())
    answers_by_time = {
        when: answered.filter(pl.col("when") == when) for when in answered["when"].unique()
    }
    after = answers_by_time.get("after", answered.clear())
    missing = asked.filter((pl.col("when") == "after") & pl.col("answer").is_null())["missing"]
    unanswered = describe_missing(missing)
    title = "Would they buy it?"
    if after.is_empty():
        if not unanswered:
            return None
        return concept.finding(
            "purchase_intent",
            title,
            f"No participant said whether they would buy it: {unanswered}.",
            ResultTable((), ()),
            section="Purchase intent",
            headline=True,
        )
    likely = clustered_share((after["score"] >= LIKELY).to_list(), after["group"].to_list())
    change_result = concept.measure_result(INTENT)
    price = after["price"][0]
    groups = after["group"].n_unique()
    counts = {
        when: {intent: answers.filter(pl.col("answer") == intent).height for intent in INTENTS}
        for when, answers in sorted(
            answers_by_time.items(),
            key=lambda item: list(InterviewTime).index(InterviewTime(item[0])),
        )
    }
    statement = join_sentences(
        [
            word(
                "description",
                "would buy",
                share=format_share(likely),
                price=f" at {price}" if price else "",
                people=after.height,
                groups="one group" if groups == 1 else format_count(groups, "group"),
            ),
            word("description", "not counted", answers=unanswered) if unanswered else None,
            None if change_result is None else _result_sentence(change_result),
        ]
    )
    return concept.finding(
        "purchase_intent",
        title,
        statement,
        ResultTable.from_records(
            [
                {"answer": intent}
                | {
                    f"{when}_share": category_shares(counts_by_answer)[intent]
                    for when, counts_by_answer in counts.items()
                }
                | {
                    f"people {when}": counts_by_answer[intent]
                    for when, counts_by_answer in counts.items()
                }
                for intent in INTENTS
            ]
        ),
        BarChart(
            tuple(
                (intent, when, float(counts_by_answer[intent]))
                for when, counts_by_answer in counts.items()
                for intent in INTENTS
            ),
            unit="people",
        ),
        notes=("Stated intent overstates what people buy; use it to compare concepts.",),
        section="Purchase intent",
        headline=True,
        conclusion=_conclude_intent(likely, change_result),
        primary=_is_primary(change_result),
    )


def _is_primary(result: Result | None) -> bool:
    return result is not None and result.claim.family == "primary"


def _conclude_intent(likely: Estimate, change_result: Result | None) -> str:
    # Only an interval on one side of one half says which part of the people would buy it.
    side = "it is open whether most would buy it"
    if likely.has_interval and not likely.low <= 0.5 < likely.high:
        side = "most would buy it" if likely.low > 0.5 else "at most half would buy it"
    return f"{side}; {change_result.verdict_phrase}" if change_result is not None else side


def _result_sentence(result: Result) -> Sentence:
    text = f"{result.estimate_text}, exploratory"
    if _is_primary(result):
        text = result.conclusion_text
    outcome, in_sentence = capitalise(result.claim.outcome), f"{text[0].lower()}{text[1:]}"
    return word("description", "result of", outcome=outcome, result=in_sentence)


def demand_finding(concept: Concept) -> Finding | None:
    """Return the finding on demand at each price, or None with fewer than two prices."""
    answered = concept.intents.filter(
        pl.col("answer").is_not_null() & pl.col("price").is_not_null()
    )
    if answered["price"].n_unique() < 2:
        return None
    rows: list[Row] = []
    curves: dict[str, list[tuple[str, Estimate]]] = {}
    for price in sorted(answered["price"].unique(), key=parse_amount):
        for when in InterviewTime:
            answers = answered.filter((pl.col("price") == price) & (pl.col("when") == when.value))
            if answers.is_empty():
                continue
            estimate = clustered_share(
                (answers["score"] >= LIKELY).to_list(), answers["group"].to_list()
            )
            curves.setdefault(when.value, []).append((price, estimate))
            labels: Row = {"price": price, "when": when.value, "people": estimate.n}
            rows.append(labels | estimate_cells(estimate, "would_buy_share", "_share"))
    last_time = "after" if "after" in curves else next(iter(curves))
    shares = ", ".join(
        f"{format_share(estimate)} would buy it at {price}" for price, estimate in curves[last_time]
    )
    rises = [
        f"{InterviewTime(when).phrase} from {lower_price} to {higher_price}"
        for when, curve in curves.items()
        for (lower_price, lower_estimate), (higher_price, higher_estimate) in pairwise(curve)
        if higher_estimate.value > lower_estimate.value
    ]
    return concept.finding(
        "demand",
        "What would they pay?",
        f"{capitalise(InterviewTime(last_time).phrase)}, {shares}."
        + (f" The share rises with the price: {'; '.join(rises)}." if rises else ""),
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
            "The question on each price did not contain the other prices. A share that rises with "
            "the price is noise, or participants take the price as a sign of quality.",
            INTERVALS,
        ),
        section="Purchase intent",
        headline=True,
    )


def position_finding(concept: Concept) -> Finding | None:
    """Return the finding on changed positions, or None if the study asked for no position."""
    pairs = position_pairs(concept.statements)
    asked = concept.statements.filter(pl.col("when").is_in(["before", "after"]))
    unknown = describe_missing(asked.filter(pl.col("position").is_null())["missing"])
    if pairs.is_empty() and not unknown:
        return None
    if pairs.is_empty():
        return concept.finding(
            "positions",
            "Did positions change?",
            f"No participant's position is known both before and after the discussion ({unknown}).",
            ResultTable((), ()),
            section="Positions",
            headline=True,
        )
    change_result = concept.measure_result(POSITION)
    movers = count_moved(pairs)
    sentences = [
        word("description", "movers", count=movers, people=pairs.height, least=SMALLEST_MOVE)
    ]
    if change_result is not None:
        sentences += [word("description", "on a scale", result=_result_sentence(change_result))]
    retest_pairs = position_pairs(concept.statements, InterviewTime.RETEST)
    if not retest_pairs.is_empty():
        count, people = count_moved(retest_pairs), retest_pairs.height
        sentences.append(word("description", "waverers", count=count, people=people))
    if unknown:
        sentences.append(word("description", "without a position", statements=unknown))
    rows = tabulate_positions(pairs, concept.opinions, by_group=not concept.has_one_talk)
    if concept.has_one_talk:
        chart = LineChart(
            tuple(carry_positions_forward(concept.opinions)),
            "turn",
            "position (−1 against, 1 in favour)",
        )
    else:
        chart = LineChart(
            tuple(
                (column_heading(group), number, mean)
                for group, number, mean in mean_position_by_question(concept.opinions)
            ),
            "question",
            "mean position of the group",
        )
    is_planted = bool(concept.statements["planted"].any())
    return concept.finding(
        "positions",
        "Did positions change?",
        join_sentences([*sentences, word("description", "planted") if is_planted else None]),
        ResultTable.from_records(rows.to_dicts(), PAIRED_POSITIONS if unknown else ""),
        chart,
        notes=(
            "Positions after the discussion are the last ones that the coder read in the answers. "
            "No participant was asked."
            if is_planted
            else "Participants stated the positions before and after in private. The positions "
            "between them are a coder's reading of the answers.",
            "`changes coded`: the answers in the discussion that the coder read as a change of "
            "position. They are not the changes between before and after.",
            *_unread_answers(concept),
        ),
        section="Positions",
        headline=True,
        primary=_is_primary(change_result),
    )


def describe_missing(reasons: pl.Series) -> str:
    """Return how many answers are missing for each reason, such as "2 cannot_say, 1 declined"."""
    counts = reasons.fill_null("unknown").alias("reason").value_counts().sort("reason")
    return ", ".join(f"{count} {reason}" for reason, count in counts.iter_rows())


def _unread_answers(concept: Concept) -> tuple[str, ...]:
    # Tables of earlier versions give no note.
    if "reading_missing" not in concept.utterances.columns:
        return ()
    unread = concept.answers["reading_missing"].drop_nulls()
    if unread.is_empty():
        return ()
    return (
        f"The coder gave no position for {len(unread)} of "
        f"{format_count(concept.answers.height, 'answer')} "
        f"({describe_missing(unread)}). The last known position is used there.",
    )


def coded_themes(concept: Concept) -> Finding | None:
    """Return the finding on objections, needs and themes, or None if nothing was coded."""
    codings = concept.codes.get("remarks")
    if codings is None or codings.primary_coder is None:
        return None
    title = "What do they object to, need and talk about?"
    if not codings.supports_findings:
        withheld = codings.describe_withheld(WITHHELD_REMARKS_TEXT)
        return concept.withheld_finding("remarks", title, withheld, "Objections")
    everyone, groups = concept.people.height, concept.people["group"].n_unique()
    quotes_by_code: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for row in concept.answers.iter_rows(named=True):
        answer_quotes = (
            codings.codes_of(f"{row['group']}/{row['stimulus']}/turn{row['turn']}") or {}
        )
        for code, quote in answer_quotes.items():
            participant_key = (row["group"], row["speaker_id"])
            quote_text = f"“{quote}” ({row['speaker_name']}, {row['group']} turn {row['turn']})"
            quotes_by_code.setdefault(kind_and_name(code), {}).setdefault(
                participant_key, quote_text
            )
    if not quotes_by_code or not everyone:
        return None
    participant_keys = list(concept.people.select("group", "persona_id").rows())
    rows: list[Row] = []
    statements: dict[str, list[tuple[int, str]]] = {}
    for (kind, name), quotes in sorted(
        quotes_by_code.items(), key=lambda item: (-len(item[1]), item[0])
    ):
        estimate = clustered_share(
            [participant_key in quotes for participant_key in participant_keys],
            [group for group, _ in participant_keys],
        )
        group_count = len({group for group, _ in quotes})
        bounds = estimate_cells(estimate, "people_share", "_share")
        labels: Row = {"kind": kind, "what": name, "people": len(quotes)}
        figures: Row = {"people_share": estimate.value, "groups": group_count, **bounds}
        rows.append({**labels, **figures, "for example": next(iter(quotes.values()))})
        sentence = f"{name} by {len(quotes)} of {everyone} people"
        sentence += f", in {group_count} of {groups} groups" * (groups > 1)
        sentence += f", {format_share(estimate)}" * estimate.has_interval
        statements.setdefault(kind, []).append((len(quotes), sentence))
    statement = " ".join(
        f"Named most often as {kind}: {join_first([said for _, said in top])}."
        for kind in ("objection", "need")
        if (top := all_largest(statements.get(kind, ()), lambda said: said[0]))
    )
    return concept.finding(
        "remarks",
        title,
        f"{statement} The quotes with their turns are in topline.md.",
        ResultTable.from_records(rows),
        BarChart(
            tuple(
                (name, kind, float(len(quotes))) for (kind, name), quotes in quotes_by_code.items()
            ),
            "people",
        ),
        notes=(codings.note, NOT_CODED, INTERVALS),
        section="Objections",
        headline=True,
    )


def reply_finding(concept: Concept) -> Finding:
    """Return the finding on how often each participant responded to each other participant."""
    names = dict(
        concept.utterances.select("speaker_id", "speaker_name").unique(maintain_order=True).rows()
    )
    counts = {
        (speaker_id, replied_to): count
        for speaker_id, replied_to, count in concept.answers.filter(
            pl.col("replied_to").is_not_null()
        )
        .group_by("speaker_id", "replied_to", maintain_order=True)
        .len()
        .iter_rows()
    }
    people = {speaker_id: name for speaker_id, name in names.items() if speaker_id != "moderator"}
    reply_count = sum(count for (_, replied_to), count in counts.items() if replied_to in people)
    return concept.finding(
        "replies",
        "Who replied to whom?",
        word("description", "referring", replies=reply_count, answers=concept.answers.height),
        ResultTable.from_records(
            [
                {"who": names[speaker_id], "to": names.get(replied_to, replied_to), "times": count}
                for (speaker_id, replied_to), count in counts.items()
            ]
        ),
        interaction_matrix(counts, people, "replies"),
        section="Conversation",
    )


def talk_time(concept: Concept) -> Finding | None:
    """Return the finding on how evenly participants share the talk, or None if no one spoke."""
    talk = concept.utterances.group_by([*TALK, "speaker_id"], maintain_order=True).agg(
        pl.col("speaker_name").first(), pl.col("words").sum(), pl.len().alias("messages")
    )
    total = int(talk["words"].sum())
    participants = talk.filter(pl.col("speaker_id") != "moderator")
    moderator_words = total - int(participants["words"].sum())
    gini_by_group = {
        str(group): gini(part["words"].to_numpy())
        for (group, _), part in participants.group_by(TALK, maintain_order=True)
    }
    if not gini_by_group or not total:
        return None
    is_unspaced = any(map(has_unspaced_script, concept.utterances["text"].drop_nulls()))
    mean_gini = clustered_mean(list(gini_by_group.values()), list(gini_by_group))
    if concept.has_one_talk:
        by_words = talk.sort("words", descending=True, maintain_order=True)
        rows: list[Row] = [
            {
                "who": name,
                "words": word_count,
                "words_share": word_count / total,
                "messages": messages,
            }
            for name, word_count, messages in by_words.select(
                "speaker_name", "words", "messages"
            ).iter_rows()
        ]
        bars = [
            (name, "words", float(word_count))
            for name, word_count in by_words.select("speaker_name", "words").iter_rows()
        ]
    else:
        rows = [
            {"group": group, "gini of words": round(value, 3)}
            for group, value in gini_by_group.items()
        ]
        bars = [
            (column_heading(group), "Gini", round(value, 3))
            for group, value in gini_by_group.items()
        ][: 2 * MAX_LINES]
    return concept.finding(
        "talk_time",
        "Who spoke how much?",
        word(
            "description",
            "talk time",
            share=format_percent(moderator_words / total),
            gini=format_mean_value(mean_gini.value)
            if concept.has_one_talk
            else f"{format_mean(mean_gini)} on average",
        ),
        ResultTable.from_records(rows),
        BarChart(tuple(bars), unit="words" if concept.has_one_talk else "Gini of words"),
        notes=(UNSPACED_WORDS,) if is_unspaced else (),
        section="Conversation",
    )


def out_of_character(concept: Concept) -> Finding | None:
    """Return the finding on out-of-character replies, or None if there are none."""
    if "out_of_character" not in concept.utterances.columns:
        return None
    flagged = concept.utterances.filter(pl.col("out_of_character"))
    if flagged.is_empty():
        return None
    shown = flagged.select("group", "turn", name="speaker_name", text="text").head(MAX_LINES)
    rows = [row | {"text": shorten(row["text"], 160)} for row in shown.to_dicts()]
    return concept.finding(
        "out_of_character",
        "Did they stay in character?",
        f"{flagged.height} of {format_count(concept.utterances.height, 'message')} may be out of "
        "character: the speaker talks as an assistant, as the player of a role, or in the headings "
        "of a script.",
        ResultTable.from_records(rows),
        notes=("Found by typical English phrases. The messages are kept like all others.",),
        section="Conversation",
    )


def sycophancy_finding(concept: Concept) -> Finding:
    """Return the finding on whether participants please each other."""
    answers, people = sycophancy.read_check_data(concept.answers, concept.statements)
    check = sycophancy.compute_check(answers, people, concept.control)
    rows = []
    bars = []
    for position in sorted({answer.position for answer in answers if answer.position > 1}):
        stances = [answer.stance for answer in answers if answer.position == position]
        share_by_stance = {
            stance: stances.count(stance) / len(stances) for stance in ("agree", "disagree")
        }
        rows.append(
            {"place in order": position, "answers": len(stances)}
            | {f"{stance}_share": share for stance, share in share_by_stance.items()}
        )
        bars += [(f"place {position}", stance, share) for stance, share in share_by_stance.items()]
    finding = concept.finding(
        "sycophancy",
        "Did participants give in to the group?",
        check.describe_check(),
        ResultTable.from_records(rows, caption="Answers by place in the speaking order"),
        BarChart(tuple(bars), "share of the answers", percent=True),
        notes=(
            "Agreement and disagreement are a coder's reading of each answer. The slope covers "
            "only answers that refer to another participant, because later speakers have more to "
            "refer to. Movement is the decrease of the distance between a private position and the "
            "others' positions before the discussion.",
        ),
        section="Conversation",
    )
    # No test is reported for a few groups.
    convergence = () if finding.illustrates else (check.describe_convergence(),)
    return replace(finding, notes=(*finding.notes, *convergence))


def words_and_positions(concept: Concept) -> Finding | None:
    """Return the finding on whether positions agree with the coded statements, or None."""
    # None also with fewer than two coded statements.
    codings = concept.codes.get("opinion")
    if codings is None or codings.primary_coder is None:
        return None
    title = "Do words and positions agree?"
    if not codings.supports_findings:
        withheld = codings.describe_withheld("The agreement of stated positions and coded words")
        return concept.withheld_finding("words_and_positions", title, withheld, "Positions")
    pairs = [
        (row["position"], CODE_POSITIONS[stance])
        for row in concept.statements.filter(pl.col("position").is_not_null()).iter_rows(named=True)
        if (stance := codings.single_code("/".join(row[key] for key in (*PERSON, "when"))))
        in CODE_POSITIONS
    ]
    if len(pairs) < 2:
        return None
    codes = np.array(pairs, float).T
    alpha = krippendorff_alpha(codes, "interval")
    signs = np.where(np.abs(codes) < MAX_NEUTRAL_POSITION, 0, np.sign(codes))
    same_side = float(np.mean(signs[0] == signs[1]))
    return concept.finding(
        "words_and_positions",
        title,
        "The stated position and the coded words are on the same side in "
        f"{format_percent(same_side)} of {len(pairs)} private statements; {_describe_alpha(alpha)}",
        ResultTable.from_records(
            [
                {
                    "statements": len(pairs),
                    "same_side_share": same_side,
                    "krippendorff alpha": finite_or_none(alpha),
                    "mean position": float(codes[0].mean()),
                    "mean of the coded words": float(codes[1].mean()),
                }
            ],
            "Krippendorff's alpha for interval data: 1 is agreement, 0 is chance",
        ),
        notes=(codings.note,),
        section="Positions",
    )


def _describe_alpha(alpha: float) -> Sentence:
    if not math.isfinite(alpha):
        return word("refusal", "one code")
    case = "high" if alpha >= GOOD_ALPHA else "fair" if alpha >= FAIR_ALPHA else "low"
    return word("description", f"alpha, {case}", alpha=f"{alpha:.2f}")


def compare_stimuli(
    stated: pl.DataFrame, stimuli: Sequence[str], results: Sequence[Result]
) -> Finding | None:
    """Return the finding that compares the final positions on all concepts."""
    after = stated.filter(pl.col("when") == InterviewTime.AFTER.value)
    means = {}
    for stimulus in stimuli:
        known_positions = after.filter(
            (pl.col("stimulus") == stimulus) & pl.col("position").is_not_null()
        )
        means[stimulus] = clustered_mean(
            known_positions["position"].to_list(), known_positions["group"].to_list()
        ).value
    known_means = {stimulus: value for stimulus, value in means.items() if math.isfinite(value)}
    groups = after["group"].n_unique()
    unknown = [stimulus for stimulus in stimuli if stimulus not in known_means]
    stimulus_results = (result for result in results if result.claim.by == "stimulus")
    observed = [result for result in stimulus_results if result.counts != (0, 0)]
    if not observed or not known_means:
        return Finding(
            "concepts",
            "Which concept does better?",
            word("refusal", "not compared", concepts=", ".join(unknown)),
            ResultTable((), ()),
            section="Concept test",
            headline=True,
            unit="group",
            units=groups,
        )
    means_of_concepts = describe_values(
        "Mean positions after the discussion",
        ((stimulus, format_signed(value, 3)) for stimulus, value in known_means.items()),
    )
    says = join_sentences(
        [
            means_of_concepts,
            describe_claims(observed, "Final position"),
            word("refusal", "no final position", concepts=", ".join(unknown)) if unknown else None,
        ]
    )
    finding = claims_finding(
        "concepts",
        "Which concept does better?",
        observed,
        axis="final position",
        section="Concept test",
        units=groups,
    )
    return replace(finding, says=says, headline=True)
