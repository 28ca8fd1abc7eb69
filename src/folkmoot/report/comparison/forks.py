"""Compare a fork with the original run, from the changed reply on.

A fork is a run that repeats the original run with one reply changed.
"""
# The table `provenance` records the source of each text in a prompt, so it shows which later
# prompts contained the changed words.

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.fork import fork_change
from folkmoot.engine.run.fork_repeats import pairs_of
from folkmoot.engine.run.grid import GridCell, RunGrid
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.settings.claims import CLAIMS_TESTED, FAMILIES, evaluate_claims
from folkmoot.engine.study.study import claims_of_run, find_study_of_run
from folkmoot.hints import capitalise, shorten
from folkmoot.kit.findings import Row, finite_or_none
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.measures.inference.estimates import Estimate, format_count
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.report.comparison.figures import Figure, MeasuredFigure
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable, RunName
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.storage.tables import is_one_of

CHANGED_ANSWERS_LABEL = "closed answers that differ from the run"
SECTION = "What follows from one reply"
# Most rows of the two transcripts side by side.
MAX_ROWS = 60
# Longest shown part of one reply.
MAX_CHARACTERS = 300


class _Reply(NamedTuple):
    speaker: str
    text: str
    raw: str


def forks_among(runs: Sequence[RunFolder]) -> Iterator[Finding]:
    """Yield a finding for each run that is a fork of another run in the list."""
    digests = {run.manifest.get("journal_digest"): run for run in runs if run.is_finished}
    for fork in runs:
        change = fork_change(fork)
        base = digests.get(change.journal_digest) if change is not None else None
        if change is not None and base is not None:
            yield compare_talks(base, fork, change)


def compare_talks(base: RunFolder, fork: RunFolder, change: ReplyChange) -> Finding:
    """Return the finding that shows the transcripts of both runs side by side."""
    # It holds the changed reply, each later reply that differs, and each later reply to a prompt
    # with the changed words.
    with (
        JournalReader(base.path / JOURNAL) as base_journal,
        JournalReader(fork.path / JOURNAL) as fork_journal,
    ):
        addresses = _addresses_in_order(fork, base)
        before = _replies(base, base_journal, addresses)
        after = _replies(fork, fork_journal, addresses)
        asked_count = len(fork_journal.calls(taken_over=False))
        copied_count = change.count_copied(len(fork_journal.calls(taken_over=True)))
    changed_ids = _changed_utterances(base, fork, change.address)
    prompts_before, prompts_after = (_prompts_with(run, changed_ids) for run in (base, fork))
    rows: list[Row] = []
    for address in addresses:
        first, second = before.get(address), after.get(address)
        is_same = first is not None and second is not None and first.raw == second.raw
        if is_same and address not in prompts_before and address not in prompts_after:
            continue
        speaker = second or first
        rows.append(
            {
                "speaker": speaker.speaker if speaker is not None else "",
                RunName(base.id): _in_words(first),
                RunName(fork.id): "as before" if is_same else _in_words(second),
                "changed words in the prompt": "yes" if address in prompts_after else "no",
                "address": address,
            }
        )
    prompts_text = f"The changed words were in {format_count(len(prompts_after), 'later prompt')}"
    if change.dropped:
        prompts_text = (
            f"The omitted words were in {format_count(len(prompts_before), 'later prompt')}"
        )
    notes = [] if len(rows) <= MAX_ROWS else [f"{len(rows) - MAX_ROWS:,} further rows left out."]
    if not change.draw:
        notes.append(
            "One fork shows what followed once. Models that draw their words would also differ "
            "without a change: `folkmoot fork --repeats` tells both apart."
        )
    return Finding(
        "fork",
        "Where the conversations differ",
        f"{_tell_change(change, before, after)} {format_count(asked_count, 'call')} followed from "
        "it and "
        f"{'was' if asked_count == 1 else 'were'} asked; {copied_count:,} are those of "
        f"{base.id}. {prompts_text}.",
        ResultTable.from_records(
            rows[:MAX_ROWS],
            "The changed reply and every later one that differs, or that had the changed words in "
            "its prompt, in the order of the study.",
        ),
        notes=tuple(notes),
        section=SECTION,
    )


def _tell_change(
    change: ReplyChange, before: Mapping[str, _Reply], after: Mapping[str, _Reply]
) -> str:
    reply_before, reply_after = before.get(change.address), after.get(change.address)
    speaker = reply_before.speaker if reply_before is not None else "the speaker"
    first, second = _in_words(reply_before), _in_words(reply_after)
    if change.dropped:
        return f"{speaker} said “{first}”; in the fork this reply is left out."
    model_text = f" (by {change.model})" if change.model is not None else ""
    return f"{speaker} said “{first}”; in the fork “{second}”{model_text}."


def _in_words(reply: _Reply | None) -> str:
    return "not asked" if reply is None else shorten(reply.text or "nothing", MAX_CHARACTERS)


def _addresses_in_order(fork: RunFolder, base: RunFolder) -> list[str]:
    address_columns = [
        run.scan_table("answers").select("address").collect()["address"] for run in (fork, base)
    ]
    return list(dict.fromkeys(address for column in address_columns for address in column))


def _replies(run: RunFolder, journal: JournalReader, addresses: Sequence[str]) -> dict[str, _Reply]:
    # The text of a reply is that of its utterances, or else the recorded answer, or else the raw
    # text.
    columns = ("address", "speaker_id", "recorded", "missing")
    answers = {
        address: cells
        for address, *cells in run.scan_table("answers").select(columns).collect().iter_rows()
    }
    utterances = _utterances(run)
    replies: dict[str, _Reply] = {}
    for address in addresses:
        if (
            address not in answers
            or (entry := journal.entry_at(address, expand_texts=False)) is None
        ):
            continue
        speaker, recorded, missing = answers[address]
        text = " / ".join(utterances.get(address, {}).values())
        text = text or recorded or (f"(no answer: {missing})" if missing else entry.reply)
        replies[address] = _Reply(speaker or "", text, entry.reply)
    return replies


def _utterances(run: RunFolder) -> dict[str, dict[str, str]]:
    texts_by_address: dict[str, dict[str, str]] = {}
    if run.has_table(UTTERANCES):
        rows = run.scan_table(UTTERANCES).select("address", "utterance_id", "text").collect()
        for address, utterance_id, text in rows.iter_rows():
            if address and text:
                texts_by_address.setdefault(address, {})[utterance_id] = text
    return texts_by_address


def _changed_utterances(base: RunFolder, fork: RunFolder, address: str) -> list[str]:
    # The source ids under which prompts may quote the changed parts. A reply without utterances is
    # quoted by its address.
    texts_before, texts_after = (_utterances(run).get(address, {}) for run in (base, fork))
    changed = [
        utterance_id
        for utterance_id in {**texts_before, **texts_after}
        if texts_before.get(utterance_id) != texts_after.get(utterance_id)
    ]
    return [address, *changed] if not texts_before and not texts_after else changed


def _prompts_with(run: RunFolder, sources: Sequence[str]) -> set[str]:
    if not run.has_table(PROVENANCE):
        return set()
    spans = run.scan_table(PROVENANCE).filter(is_one_of("source_id", sources))
    return set(spans.select("address").collect()["address"])


# --- repeated forks ------------------------------------------------------------------------------


def effect_of_reply(grid: RunGrid, figures: Sequence[Figure]) -> Finding | None:
    """Return the finding on how much one changed reply affects each estimate.

    - `figures`: the estimates in the findings of the runs. The primary and secondary claims are
      added.

    Returns None if no estimate is known both with and without the change.
    """
    # Each repeat in `grid` consists of two runs, one with the changed reply and one with the
    # unchanged reply. The difference is the mean over repeats.
    pairs = list(pairs_of(grid))
    claims = _claims_with_figures(grid)
    of_claims = [figure for figure in figures if _is_of_claim(figure, claims)]
    rows: list[Row] = []
    lines = []
    sentences = []
    for claim, figure in (
        (None, _changed_answers(grid)),
        *claims,
        *((None, figure) for figure in figures if figure not in of_claims),
    ):
        effect = _estimate_effect(figure, pairs)
        if claim is not None and claim.family == "primary":
            sentences.append(_describe_effect(claim, effect))
        if effect is None:
            continue
        gap = effect.difference
        label = ": ".join(filter(None, (figure.title, figure.label)))
        rows.append(
            {
                "figure": label,
                **({"family": claim.family if claim is not None else None} if claims else {}),
                "changed": effect.changed,
                "as it was": effect.as_it_was,
                "difference": gap.value,
                "low": finite_or_none(gap.low),
                "high": finite_or_none(gap.high),
                "repeats": effect.repeats,
            }
        )
        if gap.has_interval:
            lines.append((label, gap.value, gap.low, gap.high))
    if not rows:
        return None
    if lines:
        clear_count = sum(low > 0 or high < 0 for _, _, low, high in lines)
        case = "figures of forks, one clear" if clear_count == 1 else "figures of forks"
        sentences.append(word("description", case, clear=clear_count, figures=len(rows)))
    else:
        counted = format_count(len(rows), "figure")
        sentences.append(word("description", "figures of forks, no interval", figures=counted))
    return Finding(
        "fork_effect",
        "What the changed reply does",
        join_sentences(sentences),
        ResultTable.from_records(
            rows,
            "Means over repeats; in each repeat both forks ask the models again, and the "
            "difference is taken within it. 95 % t intervals over repeats, not adjusted for the "
            "number of figures.",
        ),
        IntervalChart(tuple(lines), "changed minus as it was", 0.0) if lines else None,
        notes=(
            "The estimate is of this reply in this run: other participants, or another moment of "
            "the talk, are other runs.",
            *_tell_left_out(of_claims),
        ),
        section=SECTION,
        headline=True,
        unit="repeat",
        units=len(pairs),
    )


class _Effect(NamedTuple):
    # The means over repeats of one estimate with and without the change, and of their difference.
    changed: float
    as_it_was: float
    difference: Estimate
    repeats: int


def _estimate_effect(figure: Figure, pairs: Sequence[tuple[GridCell, GridCell]]) -> _Effect | None:
    # `pairs` are (with the changed reply, with the unchanged one). None if no repeat has both.
    values = {measured.cell.name: measured.value for measured in figure.cells}
    known = [
        (changed.repeat, values[changed.name], values[unchanged.name])
        for changed, unchanged in pairs
        if changed.name in values and unchanged.name in values
    ]
    if not known:
        return None
    repeats, changed_values, unchanged_values = zip(*known, strict=True)
    gaps = [first - second for _, first, second in known]
    return _Effect(
        sum(changed_values) / len(known),
        sum(unchanged_values) / len(known),
        clustered_mean(gaps, repeats),
        len(known),
    )


def _claims_with_figures(grid: RunGrid) -> list[tuple[Claim, Figure]]:
    # The claims that the runs state beforehand, primary ones first. Not every study type draws
    # their estimates as intervals, and those of hypotheses are not among the figures of a grid.
    claims: dict[Claim, Claim] = {}
    cells: dict[Claim, list[MeasuredFigure]] = defaultdict(list)
    for cell, run in grid.finished_cells().values():
        if run.unusable_reason:
            continue
        stated = claims_of_run(find_study_of_run(run), run)
        for claim, result in zip(stated, evaluate_claims(run, stated), strict=True):
            comparison, estimate = claim.without_wording, result.estimate
            # Only the data tell whether a hypothesis is about a share, so a claim with an estimate
            # takes the place of one without.
            if math.isfinite(estimate.value):
                claims[comparison] = result.claim
                cells[comparison].append(
                    MeasuredFigure(cell, estimate.value, estimate.low, estimate.high)
                )
            else:
                claims.setdefault(comparison, result.claim)
    return [
        (
            claim,
            Figure(
                CLAIMS_TESTED,
                capitalise(claim.label),
                claim.contrast_label,
                claim.in_points,
                0.0,
                tuple(cells[comparison]),
            ),
        )
        for family in FAMILIES
        for comparison, claim in claims.items()
        if claim.family == family != "exploratory"
    ]


def _is_of_claim(figure: Figure, claims: Sequence[tuple[Claim, Figure]]) -> bool:
    # A finding that draws a claim has the same contrast and the same value in each run. Its
    # estimate would otherwise be counted twice. A finding on several measures also names them.
    values = {measured.cell.name: measured.value for measured in figure.cells}
    return any(
        figure.label in (other.label, f"{other.title}: {other.label}")
        and len(other.cells) == len(values)
        and all(
            math.isclose(measured.value, values.get(measured.cell.name, math.nan), abs_tol=1e-9)
            for measured in other.cells
        )
        for _, other in claims
    )


def _tell_left_out(figures: Sequence[Figure]) -> list[str]:
    # Another measure may have the same values as a claim, above all if all of them are zero. So the
    # reader must see what was taken for a claim.
    names = ", ".join(f"“{figure.title}: {figure.label}”" for figure in figures)
    if not names:
        return []
    return [f"Not listed again, because a claim has the same conditions and values: {names}."]


def _describe_effect(claim: Claim, effect: _Effect | None) -> Sentence:
    label = f"{capitalise(claim.label)}: {claim.contrast_label}"
    if effect is None:
        return word("description", "effect of reply, unknown", claim=label)
    return word(
        "description",
        "effect of reply",
        claim=label,
        changed=claim.format_signed(effect.changed),
        original=claim.format_signed(effect.as_it_was),
        difference=claim.format_signed(effect.difference.value),
        interval=claim.format_interval(effect.difference),
    )


def _changed_answers(grid: RunGrid) -> Figure:
    shares = ((cell, _share_not_as_before(run)) for cell, run in grid.finished_cells().values())
    return Figure(
        "fork_effect",
        "",
        CHANGED_ANSWERS_LABEL,
        True,
        None,
        tuple(
            MeasuredFigure(cell, share, math.nan, math.nan)
            for cell, share in shares
            if share is not None
        ),
    )


def _share_not_as_before(fork: RunFolder) -> float | None:
    # Answers that are missing in the fork count as different. Answers in free text and the changed
    # reply do not count.
    change = fork_change(fork)
    if change is None:
        return None
    columns = ("address", "recorded")
    base_answers = dict(RunFolder(fork.path / change.run).rows("answers", *columns))
    fork_answers = dict(fork.rows("answers", *columns))
    # The changed reply itself differs by design, so it does not count.
    closed = [
        address
        for address, recorded in base_answers.items()
        if recorded and address != change.address
    ]
    return (
        sum(fork_answers.get(address) != base_answers[address] for address in closed) / len(closed)
        if closed
        else None
    )
