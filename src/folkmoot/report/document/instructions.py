"""Check how well each model followed the instructions in the first replies to questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from folkmoot.engine.journal.journal import FirstReply
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import StorageError
from folkmoot.measures.diagnostics import FAILED, Margin, Verdict, repeats_itself
from folkmoot.measures.inference.estimates import (
    Estimate,
    format_count,
    format_percent,
    format_span,
)
from folkmoot.measures.reply_checks import Faults, UnitOf, share_of_replies, speaker_of
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import FINISH_LENGTH
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import JOURNAL, RunFolder

KEY = "instructions"
# The columns of `answers` that decide the independent unit of a reply.
REPLY_COLUMNS = ("address", "stage", "scope", "role", "speaker_id")
DEFAULT_LIMIT = float(StudyConfig.model_fields["max_instruction_failures"].default)


@dataclass
class FirstReplies:
    """Counts of a model's first replies, in total and by kind of failure."""

    replies: int = 0
    # Replies that needed a re-ask.
    asked_again: int = 0
    # Replies that repeat themselves.
    looped: int = 0
    # Replies that reached the token limit.
    cut: int = 0
    # Replies with at least one of these failures.
    failed: int = 0
    # (failed replies, all replies) of each independent unit.
    by_unit: Faults = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of first replies that failed."""
        return self.failed / self.replies if self.replies else 0.0

    def judge(self, limit: float) -> Verdict:
        """Return the verdict on whether the model followed the instructions.

        `limit`: the largest acceptable share of failures.
        """
        # Failed: the whole interval of the share is above the limit. Passed: all of it is below the
        # limit. In all other cases there are too few units to know.
        return Margin(high=limit).judge_interval(share_of_replies(self.by_unit))

    def describe(self) -> Sentence:
        """Return the counts in words."""
        return word(
            "check",
            "instructions",
            share=format_percent(self.share),
            replies=format_count(self.replies, "first reply", "first replies"),
            asked_again=f"{self.asked_again:,}",
            looped=f"{self.looped:,}",
            cut=f"{self.cut:,}",
        )


def count_first_replies(
    replies: Iterable[FirstReply], units: Mapping[str, Hashable]
) -> dict[str, FirstReplies]:
    """Count the first replies of each model. Humans are left out.

    `units`: a map from the address of a recorded answer to its independent unit. None: the reply is
    itself a unit.
    """
    # A killed run has replies without a recorded answer. Their unit is unknown, so they are left
    # out, as they are by all other checks of replies.
    counts: dict[str, FirstReplies] = defaultdict(FirstReplies)
    for reply in replies:
        if reply.model == HUMAN_MODEL or reply.address not in units:
            continue
        looped, cut = repeats_itself(reply.text), reply.finish.startswith(FINISH_LENGTH)
        of_model = counts[reply.model]
        of_model.replies += 1
        of_model.asked_again += reply.asked_again
        of_model.looped += looped
        of_model.cut += cut
        has_failed = reply.asked_again or looped or cut
        of_model.failed += has_failed
        unit = units[reply.address]
        of_unit = of_model.by_unit.setdefault(of_model.replies if unit is None else unit, [0, 0])
        of_unit[0] += has_failed
        of_unit[1] += 1
    return dict(counts)


def _units(run: RunFolder, unit_of: UnitOf) -> dict[str, Hashable]:
    if not run.has_table("answers"):
        return {}
    answers = run.scan_table("answers").select(REPLY_COLUMNS).collect()
    return {row["address"]: unit_of(row) for row in answers.iter_rows(named=True)}


def _interval_of(share: Estimate) -> str:
    return format_span(share.low, share.high) if share.has_interval else "no interval"


def check_instructions(run: RunFolder, unit_of: UnitOf = speaker_of) -> Finding | None:
    """Return the finding on whether the models of a run followed the instructions.

    Returns None if the journal cannot be read, or if it holds no first reply of a recorded answer.
    """
    try:
        with JournalReader(run.path / JOURNAL) as journal:
            counts = count_first_replies(journal.first_replies(), _units(run, unit_of))
    except StorageError:
        # Without a readable journal, the report has no such finding.
        return None
    if not counts:
        return None
    limit = float(run.config.get("max_instruction_failures", DEFAULT_LIMIT))
    # The verdict is FAILED only if the whole interval is above the limit.
    alarms = tuple(
        word(
            "check",
            "instructions, alarm",
            model=model,
            counts=own.describe(),
            limit=format_percent(limit),
        )
        for model, own in counts.items()
        if own.judge(limit) == FAILED
    )
    listed = join_sentences(
        (
            word("check", "instructions of model", model=model, counts=own.describe())
            for model, own in counts.items()
        ),
        "; ",
    )
    return Finding(
        KEY,
        "Did the models follow the instructions?",
        word("description", "list", values=listed),
        ResultTable.from_records(
            [
                {
                    "model": model,
                    "first_replies": own.replies,
                    "asked_again": own.asked_again,
                    "repeated_themselves": own.looped,
                    "cut": own.cut,
                    "failed_share": own.share,
                    "interval": _interval_of(share_of_replies(own.by_unit)),
                    "limit_share": limit,
                    "verdict": own.judge(limit),
                }
                for model, own in counts.items()
            ],
            "The top of the report names each model if its whole interval is above "
            f"{format_percent(limit)}.",
        ),
        notes=(
            "A first reply failed if it could not be parsed and the question was asked again, if "
            "it contains a passage four times in a row, or if the token limit cut it.",
        ),
        section="Noise",
        headline=bool(alarms),
        alarms=alarms,
    )
