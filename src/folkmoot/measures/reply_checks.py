"""Checks of the form of a model's replies, computed from the table `answers` of any study."""

# Replies of one participant are alike: a model that refuses to play a persona refuses it in each
# question. So intervals use independent units (`share_of_replies`): participants, or groups that
# talk to each other. The verdict is "not known" if these are too few.

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import TypeVar
from urllib.parse import unquote

import numpy as np

from folkmoot.conversation.answer_types import CHOICE, NUMBER, WAYS_OUT
from folkmoot.conversation.parse_steps import PARSE_STEPS
from folkmoot.conversation.reply_forms import looks_like_refusal
from folkmoot.hints import count_words
from folkmoot.measures.diagnostics import (
    FAILED,
    FEW,
    NOT_KNOWN,
    PASSED,
    Check,
    Margin,
    Row,
    check_position_bias,
    unchecked_result,
)
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    NORMAL_QUANTILE,
    Estimate,
    format_count,
    format_percent,
    format_span,
)
from folkmoot.measures.inference.proportions import score_interval, wilson
from folkmoot.measures.position import Shown, shown_in
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.models.request import FINISH_LENGTH, REFUSED, kind_of_missing_reply

T = TypeVar("T")

# Independent unit → number of replies with a fault, number of all replies.
Faults = dict[Hashable, list[int]]
# Row of `answers` → its independent unit, or None if the row is a unit of its own.
UnitOf = Callable[[Row], Hashable]
# Address in `answers` → the reason why a field of this JSON answer has no value.
FieldReasons = Mapping[str, str]


# Limits for shares of replies. A suitable model stays far below them.
REFUSALS = 0.02
REASKED = 0.05
OVER_LENGTH = 0.05
# With fewer replies to a question, their median does not tell the usual length of a reply.
FEWEST_OF_A_QUESTION = 5
ALWAYS_YES = 0.90
CLEAN_STEPS = frozenset(name for name, step in PARSE_STEPS.items() if step.is_clean)
OFF_LIST_STEPS = frozenset(name for name, step in PARSE_STEPS.items() if step.is_off_list)
# Titles of checks that the validity card of a report looks up in the finding on all checks.
REFUSALS_TITLE = "Refusals"
BY_PROVIDER = "refused by the provider"
# The roles of models that code texts.
CODER, SECOND_CODER = "coder", "second_coder"
CODERS = frozenset({CODER, SECOND_CODER})
# The noun for a unit if only the function that returns it is known.
UNIT_NAME = "independent unit"
# Reasons of missing answers that may be refusals in plain words.
UNREAD = ("unparsed", "empty")


def speaker_of(row: Row) -> Hashable:
    """Return the speaker of a row of `answers`."""
    # Use this as the independent unit if participants do not talk to each other.
    return row.get("speaker_id")


def is_json_answer(row: Row) -> bool:
    """Return True if a row of `answers` has the kind `json`."""
    return row.get("kind") == "json"


def part_of_stage(row: Row) -> Hashable:
    """Return the part of a stage to which a row of `answers` belongs. A part can be a group."""
    # All rows of a role that codes texts form one part, because a coder reads texts of all groups.
    return row["role"] if row["role"] in CODERS else str(row["scope"]).split("/")[1]


def count_faults(
    rows: Collection[Row], is_faulty: Callable[[Row], bool | None], unit_of: UnitOf
) -> Faults:
    """Count the replies and the faulty replies of each independent unit.

    - `is_faulty`: returns whether a reply is faulty. None: the reply is not counted.
    - `unit_of`: returns the independent unit of a row.
    """
    return _count_by_unit(_without_coders(rows), is_faulty, unit_of)


def _without_coders(rows: Iterable[Row]) -> Iterator[Row]:
    # Coders describe texts. Their replies do not tell whether a model is fit to answer.
    return (row for row in rows if row.get("role") not in CODERS)


def _count_by_unit(
    items: Iterable[T],
    is_counted: Callable[[T], bool | None],
    unit_of: Callable[[T], Hashable],
) -> Faults:
    counts_by_unit: Faults = {}
    for number, item in enumerate(items):
        counted = is_counted(item)
        if counted is not None:
            unit = unit_of(item)
            alone = ("alone", number)
            counts = counts_by_unit.setdefault(alone if unit is None else unit, [0, 0])
            counts[0] += counted
            counts[1] += 1
    return counts_by_unit


def share_of_replies(faults: Faults) -> Estimate:
    """Return the share of replies with a fault, with an interval over independent units."""
    # With fewer than five faulty units the interval is wide, because it is unknown how much alike
    # the replies of a unit are.
    bad, asked = (sum(counts[at] for counts in faults.values()) for at in (0, 1))
    units, with_fault = len(faults), sum(counts[0] > 0 for counts in faults.values())
    share = bad / asked
    if units == asked or with_fault >= FEWEST_UNITS:
        hits = np.concatenate(
            [np.arange(all_of_unit) < bad_of_unit for bad_of_unit, all_of_unit in faults.values()]
        )
        names = [unit for unit, (_, all_of_unit) in faults.items() for _ in range(all_of_unit)]
        estimate = clustered_share(hits.astype(float), names)
        if estimate.has_interval:
            return estimate
    low, high = score_interval(share, units, NORMAL_QUANTILE)
    high = max(high, wilson(with_fault, units).high)
    return Estimate(share, low if bad else 0.0, high, asked, units, method="Wilson over units")


def share_check(
    key: str,
    title: str,
    faults: Faults,
    limit: float,
    reasons: str = "",
    unit_name: str = UNIT_NAME,
) -> Check:
    """Check that the share of replies with a fault is at most `limit`.

    - `key`: the key of the check. It selects the sentence for the report.
    - `reasons`: how often each kind of fault occurred, as text for this sentence.
    """
    margin = Margin(high=limit)
    if not faults:
        return unchecked_result(key, title, margin, word("refusal", "no such answers"))
    share = share_of_replies(faults)
    bad, asked = (sum(counts[at] for counts in faults.values()) for at in (0, 1))
    verdict = margin.judge_interval(share)
    if verdict == FAILED and bad < 2:
        # A single bad reply is no evidence of a failure, however few replies there are.
        verdict = NOT_KNOWN
    says = word(
        "check",
        key,
        share=format_percent(share.value) if bad else "None",
        replies=format_count(asked, "reply", "replies"),
        sure=_describe_certainty(share, len(faults), unit_name, margin),
        reasons=reasons,
    )
    return Check(key, title, share, margin, verdict, says)


def _describe_certainty(share: Estimate, units: int, unit_name: str, margin: Margin) -> Sentence:
    span = format_span(share.low, share.high) if share.has_interval else "no interval"
    between = margin.low > 0
    limit = format_percent(margin.high)
    return word(
        "check",
        "sure",
        interval=span,
        units=format_count(units, unit_name),
        margin=f"{format_percent(margin.low)} to {limit}" if between else f"at most {limit}",
    )


def check_answers(
    answers: Collection[Row],
    unit_of: UnitOf = speaker_of,
    unit_name: str = UNIT_NAME,
    choices: Iterable[Shown] = (),
    is_structured: Callable[[Row], bool] = is_json_answer,
    field_reasons: FieldReasons | None = None,
) -> list[Check]:
    """Return all checks that can be computed from the answers of any study type.

    - `unit_of`: returns the independent unit to which a row belongs.
    - `unit_name`: the noun for such a unit, such as "group".
    - `choices`: choices that the study type records in other tables, because the column
      `value` of `answers` does not hold them.
    - `is_structured`: returns whether a row's question asked for JSON.
    - `field_reasons`: see `check_refusals`.
    """
    # Position bias is estimated over all choices together, clustered by participant. Each
    # participant draws an order of the options, so participants of one group count separately.
    all_choices = [*shown_in(_without_coders(answers), unit_of), *choices]
    return [
        *check_answer_form(answers, (), unit_of, unit_name, is_structured, field_reasons),
        check_yes_share(all_choices, unit_name),
        check_position_bias(all_choices),
    ]


def check_answer_form(
    answers: Collection[Row],
    texts: Collection[str],
    unit_of: UnitOf = speaker_of,
    unit_name: str = UNIT_NAME,
    is_structured: Callable[[Row], bool] = is_json_answer,
    field_reasons: FieldReasons | None = None,
) -> list[Check]:
    """Return the checks of whether answers were given in the form that was asked for.

    The parameters are those of `check_refusals` and `check_malformed`.
    """
    return [
        check_refusals(answers, texts, unit_of, unit_name, is_structured, field_reasons),
        check_malformed(answers, unit_of, unit_name, is_structured),
        check_off_list(answers, unit_of, unit_name),
        check_over_length(answers, unit_of, unit_name, is_structured),
        check_cut_replies(answers),
    ]


def check_refusals(
    answers: Collection[Row],
    texts: Collection[str] = (),
    unit_of: UnitOf = speaker_of,
    unit_name: str = UNIT_NAME,
    is_structured: Callable[[Row], bool] = is_json_answer,
    field_reasons: FieldReasons | None = None,
) -> Check:
    """Check the share of answers that the participant or the provider refused to give.

    - `texts`: utterances and free answers. The result says how many of these texts look like
      refusals.
    - `is_structured`: returns whether a row's question asked for JSON.
    - `field_reasons`: the reasons of missing fields of JSON answers, because `answers` holds only
      the reason of an answer that is missing as a whole. None: the study type does not say, so the
      result says that ways out in single fields are not counted.
    """
    # The check works in any language. English refusal phrases in `texts` do not affect the verdict.

    def reason_of(row: Row) -> str:
        return _refusal_reason(row) or _way_out((field_reasons or {}).get(str(row.get("address"))))

    reasons = Counter(filter(None, map(reason_of, _without_coders(answers))))
    # Runs of earlier versions offered no way out, so an absence of refusals means nothing there.
    if not reasons and "how" not in next(iter(answers), {"how": None}):
        why = word("refusal", "earlier version")
        return unchecked_result("refusals", REFUSALS_TITLE, Margin(high=REFUSALS), why)
    counted = ", ".join(f"{reason} {reasons[reason]:,}" for reason in sorted(reasons))
    faults = count_faults(answers, lambda row: bool(reason_of(row)), unit_of)
    check = share_check(
        "refusals",
        REFUSALS_TITLE,
        faults,
        REFUSALS,
        f" ({counted})" if counted else "",
        unit_name,
    )
    sentences = [check.says]
    if field_reasons is None and any(map(is_structured, _without_coders(answers))):
        sentences.append(word("check", "refusals, whole answers"))
    unread = sum(1 for row in _without_coders(answers) if row.get("missing") in UNREAD)
    asked = sum(of_unit for _, of_unit in faults.values())
    # A model that ignores the ways out refuses in plain words. The parser cannot distinguish these
    # from noise.
    if unread and reasons.total() + unread > REFUSALS * asked:
        if check.verdict == PASSED:
            check = replace(check, verdict=NOT_KNOWN)
        unread_text = format_count(unread, "reply", "replies")
        sentences.append(word("check", "refusals, not certain", unread=unread_text))
    if texts:
        possible = sum(1 for text in texts if looks_like_refusal(text))
        of_texts = format_count(len(texts), "text")
        sentences.append(
            word("check", "refusals, possible", possible=f"{possible:,}", texts=of_texts)
        )
    return replace(check, says=join_sentences(sentences))


def _way_out(reason: object) -> str:
    return str(reason) if reason in WAYS_OUT else ""


def _refusal_reason(row: Row) -> str:
    reason = str(row.get("missing") or "")
    if way_out := _way_out(reason):
        return way_out
    return BY_PROVIDER if kind_of_missing_reply(reason) == REFUSED else ""


def check_malformed(
    answers: Collection[Row],
    unit_of: UnitOf = speaker_of,
    unit_name: str = UNIT_NAME,
    is_structured: Callable[[Row], bool] = is_json_answer,
) -> Check:
    """Check the share of JSON answers that needed a repair or have no valid value.

    `is_structured`: returns whether a row's question asked for JSON.
    """
    # An answer that was asked again counts as repaired. Refusals do not count as malformed.

    def is_malformed(row: Row) -> bool | None:
        if not is_structured(row) or _refusal_reason(row):
            return None
        return bool(row.get("reasks") or row.get("parse_step") not in CLEAN_STEPS)

    return share_check(
        "malformed",
        "Malformed structured answers",
        count_faults(answers, is_malformed, unit_of),
        REASKED,
        unit_name=unit_name,
    )


def check_cut_replies(answers: Collection[Row]) -> Check:
    """Check that no reply was still cut off after a retry with twice the token limit."""
    # A single cut reply fails the check, because its text would be used as if it were complete. A
    # cut reply of a coder is unreadable and gives no code. The
    # verdict is "not known" if the server said of no reply why it ended.
    title, margin = "Cut replies", Margin(high=0.0)
    ended = Counter(str(r.get("finish") or "unknown") for r in _without_coders(answers))
    said = sum(n for finish, n in ended.items() if not finish.startswith("unknown"))
    if not said:
        why = word("refusal", "no finish reasons" if ended else "no answers")
        return unchecked_result("cut", title, margin, why)
    bad = sum(n for finish, n in ended.items() if finish.startswith(FINISH_LENGTH))
    # The verdict is about the replies of this run, so the share has no interval.
    share = Estimate(bad / said, math.nan, math.nan, said)
    case = "cut"
    if bad > ended[FINISH_LENGTH]:
        case = "cut, both limits" if ended[FINISH_LENGTH] else "cut, context window"
    says = word(
        "check",
        case,
        share=format_percent(share.value) if bad else "None",
        replies=format_count(said, "reply", "replies"),
    )
    return Check("cut", title, share, margin, FAILED if bad else PASSED, says)


def is_closed_answer(row: Row) -> bool:
    """Return True if a reply had to be a single choice or number, in a row of `answers`."""
    # Workbooks have a kind of their own for open and closed answers. The first reply is recorded
    # for closed answers alone. Runs of earlier versions did not record it.
    return row["said"] is not None if "said" in row else row.get("kind") in (CHOICE, NUMBER)


def check_off_list(
    answers: Collection[Row], unit_of: UnitOf = speaker_of, unit_name: str = UNIT_NAME
) -> Check:
    """Check how often the first reply to a question for a choice or a number was invalid."""
    # Refusals do not count.

    def is_off_list(row: Row) -> bool | None:
        if not is_closed_answer(row) or _refusal_reason(row):
            return None
        return bool(row.get("reasks") or row.get("parse_step") in OFF_LIST_STEPS)

    key, title = "off_list", "Answers off the list"
    faults = count_faults(answers, is_off_list, unit_of)
    # A run without such replies may still have choices in JSON answers.
    if not faults:
        why = word("refusal", "no closed answers")
        return unchecked_result(key, title, Margin(high=REASKED), why)
    return share_check(key, title, faults, REASKED, unit_name=unit_name)


def check_over_length(
    answers: Collection[Row],
    unit_of: UnitOf = speaker_of,
    unit_name: str = UNIT_NAME,
    is_structured: Callable[[Row], bool] = is_json_answer,
) -> Check:
    """Check the share of replies that are far too long.

    `is_structured`: returns whether a row's question asked for JSON.
    """
    # A choice is too long if it is more than eight words longer than the longest option. Another
    # reply is too long if it has more than three times the median words of its like, and at least
    # 60 words more. Replies of one or two words are left out of the median.

    def like_of(row: Row) -> tuple[str, ...]:
        # A JSON reply is as long as its form asks, so it is compared with replies to the question
        # of this name, in all groups. A free text is compared with all texts of its stage and role.
        name = _name_question(row) if is_structured(row) else ()
        return (str(row.get("stage")), str(row.get("role")), *name)

    word_counts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in answers:
        words = int(row.get("words") or 0)
        if words > 2:
            word_counts[like_of(row)].append(words)
    usual_words = {like: median(counts) for like, counts in word_counts.items()}

    def is_too_long(row: Row) -> bool | None:
        words = int(row.get("words") or 0)
        if row.get("options"):
            return words > _longest_option_words(row["options"]) + 8
        like = like_of(row)
        if is_structured(row) and len(word_counts[like]) < FEWEST_OF_A_QUESTION:
            return None
        usual = usual_words.get(like, 0)
        return words > max(3 * usual, usual + 60)

    return share_check(
        "over_length",
        "Over-long replies",
        count_faults(answers, is_too_long, unit_of),
        OVER_LENGTH,
        unit_name=unit_name,
    )


def _name_question(row: Row) -> list[str]:
    # The last two parts of the address, without the speaker. Parts before them name groups and
    # rounds, which would leave few replies to compare.
    parts = str(row.get("address")).rsplit("/", 3)[-3:]
    return [part for part in parts if unquote(part) != row.get("speaker_id")][-2:]


# The same list of options occurs in thousands of rows.
@lru_cache(maxsize=1024)
def _longest_option_words(options: str) -> int:
    return max(count_words(option) for option in json.loads(options))


def check_yes_share(choices: Iterable[Shown], unit_name: str = UNIT_NAME) -> Check:
    """Check the share of yes among yes/no answers, for runs without opposite statements."""
    # The margin is 10 to 90 %, because real groups rarely vote so uniformly on several items.

    def is_yes(choice: Shown) -> bool | None:
        # Such a question may have a further option, such as "maybe", which is no yes/no answer.
        chosen = choice.chosen.casefold()
        is_counted = _yes_or_no(choice.options) and chosen in YES | NO
        return chosen in YES if is_counted else None

    def unit_of(choice: Shown) -> Hashable:
        return choice.who if choice.unit is None else choice.unit

    votes = _count_by_unit(choices, is_yes, unit_of)
    asked = sum(counts[1] for counts in votes.values())
    title, margin = "Yes-saying", Margin(1 - ALWAYS_YES, ALWAYS_YES)
    if asked < FEW:
        return unchecked_result("acquiescence", title, margin, word("refusal", "few yes or no"))
    share = share_of_replies(votes)
    answers_text = format_count(asked, "yes/no answer")
    sure = _describe_certainty(share, len(votes), unit_name, margin)
    says = word("check", "yes", share=format_percent(share.value), answers=answers_text, sure=sure)
    return Check("acquiescence", title, share, margin, margin.judge_interval(share), says)


# The words for yes and no in lower case, because studies are held in many languages. A question
# with other words is not counted.
YES = frozenset(
    (
        *("yes", "agree", "support", "approve", "for"),
        *("ja", "dafür", "oui", "pour", "sí", "si", "a favor", "sim", "sì", "da", "voor", "kyllä"),
        *("tak", "ano", "igen", "да", "за", "так", "ναι", "evet", "ya", "نعم", "כן", "हाँ"),
        *("はい", "賛成", "是", "赞成", "贊成", "예", "네", "찬성"),
    )
)
NO = frozenset(
    (
        *("no", "disagree", "oppose", "reject", "against"),
        *(
            "nein",
            "dagegen",
            "non",
            "contre",
            "en contra",
            "contra",
            "não",
            "nu",
            "nee",
            "tegen",
            "nej",
            "nei",
        ),
        *("ei", "nie", "ne", "nem", "нет", "против", "ні", "όχι", "hayır", "tidak", "لا", "לא"),
        *("नहीं", "いいえ", "反対", "否", "反对", "反對", "아니요", "아니오", "반대"),
    )
)


@lru_cache(maxsize=1024)
def _yes_or_no(options: tuple[str, ...]) -> bool:
    # A scale, such as one from "strongly agree" to "strongly disagree", is no yes/no question.
    listed = {option.casefold() for option in options}
    is_scale = any(_WORDS.split(option)[-1] in YES for option in listed - YES)
    return bool(listed & YES and listed & NO) and not is_scale


_WORDS = re.compile(r"[\W_]+")
