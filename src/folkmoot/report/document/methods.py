"""A text for the methods section of a paper, and a filled-in reporting checklist.

Both are made from the records of a run. The items of the checklist are those of GUIDE-LLM, in
Folkmoot's own wording. Source: Feuerriegel et al., "GUIDE-LLM: a reporting checklist for LLMs in
behavioural science" (https://llm-checklist.com/checklist).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from folkmoot.engine.run.fork import fork_change
from folkmoot.engine.seats.questionnaire import WORDINGS
from folkmoot.engine.study.study import Study
from folkmoot.hints import join_words
from folkmoot.kit.coding.results import TITLE as CODING_TITLE
from folkmoot.kit.coding.results import read_codings
from folkmoot.kit.coding.tables import HUMAN_ROLE
from folkmoot.kit.controls.findings import with_roles
from folkmoot.kit.controls.replacing import from_session_run_again
from folkmoot.kit.controls.tables import (
    ANSWER_KEYS,
    AS_DESIGNED,
    FACT,
    INDEPENDENT_UNIT,
    NAMES,
    NEGATIVE,
    ControlRow,
    are_controls_missing,
    open_controls,
    with_independent_units,
)
from folkmoot.kit.exposure import ExposureRow
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.estimates import FEWEST_UNITS, format_count, format_percent
from folkmoot.models.catalog import HUMAN_MODEL, LOCAL_MODEL, is_synthetic
from folkmoot.report.document.front import Front
from folkmoot.report.document.trust import call_times, later_spending
from folkmoot.report.document.validity import CardRow
from folkmoot.report.preregistration import METHODS, describe_families, describe_setting
from folkmoot.storage.findings import ResultTable
from folkmoot.storage.manifest import describe_cost
from folkmoot.storage.run_folder import RunFolder

NOT_RECORDED = "not recorded"
BLANK = f"{NOT_RECORDED}: to be filled in by the authors"
OPTIONAL = "optional"
# A longer list of options is counted.
MOST_OPTIONS = 12
# Kind of an answer → what participants did.
ANSWERED = {
    "text": "answered in free text",
    "number": "gave a number",
    "json": "filled in a form",
    "choice": "chose one of the listed options",
}
# The name of each control for a methods section.
CONTROL_NAMES = {**NAMES, NEGATIVE: "negative controls", FACT: "the age that the persona states"}

# What the parts of the table of wordings for people are called.
WORDED_PARTS = {"question": "question", "system": "instruction", "history": "earlier text"}

# Requested model → times of its first and last call.
CallTimes = Mapping[str, tuple[str, str]]


class Methods(NamedTuple):
    """The text for a methods section, one paragraph per subject, and a reporting checklist."""

    paragraphs: tuple[str, ...]
    checklist: ResultTable


def build_methods(
    run: RunFolder, study: Study, front: Front, results: Sequence[Result] = ()
) -> Methods:
    """Return the methods section of a paper, and the filled-in reporting checklist.

    `results`: the results of all claims.
    """
    times = call_times(run)
    parts = (
        _describe_design(run, study, front, times),
        _describe_material(run, front),
        _describe_analysis(results),
        _describe_controls(run, study, front.card),
        _describe_record(run),
    )
    paragraphs = tuple(" ".join(filter(None, sentences)) for sentences in parts)
    return Methods(paragraphs, _checklist_table(run, front.card, times))


def _describe_design(run: RunFolder, study: Study, front: Front, times: CallTimes) -> Iterator[str]:
    manifest = run.manifest
    version = manifest.get("software", {}).get("folkmoot", "")
    yield (
        f"We ran a study of the type “{study.title}” with Folkmoot {version} "
        f"({str(manifest.get('started_at', ''))[:10]})."
    )
    sizes = [f"{lane.arm}: {lane.size}" for lane in front.lanes if lane.size]
    yield f"Sample in each condition, as planned: {'; '.join(sizes) or NOT_RECORDED}."
    yield front.excluded
    yield from _describe_models(run, times)
    yield (
        f"Temperature{' of models' if run.has_people else ''}: "
        f"{describe_setting(run.config, 'temperature')}; reply limit in tokens: "
        f"{describe_setting(run.config, 'max_tokens')}."
    )
    sealed = run.plan.get("sealed", {}).get("design", {}).get("hash", "")
    yield (
        f"Design, assignment, prompts and seeds (random seed {manifest.get('seed')}) were sealed "
        f"before the first call that depends on them (design hash {sealed[:12]}). Only a digest of "
        "the plan that was published beforehand can prove it."
    )


def _describe_models(run: RunFolder, times: CallTimes) -> Iterator[str]:
    served = [
        model
        for model in run.manifest.get("models", [])
        if model.get("calls") and model.get("roles", True)
    ]
    simulated = [model for model in served if model["asked"] != HUMAN_MODEL]
    names = "; ".join(
        f"{model['asked']}"
        + (f" (served as {', '.join(model['served'])})" if model["served"] else "")
        # Different models may answer as participants and as other roles, such as a moderator.
        + (f" as {join_words(model['roles'])}" if len(served) > 1 and "roles" in model else "")
        + (f", called from {called[0]} to {called[1]} UTC" if called else "")
        for model in simulated
        for called in [times.get(model["asked"])]
    )
    if len(served) > 1:
        yield f"Replies were simulated by {names}."
    elif simulated or not served:
        # A killed run may have no answers in its tables, which name the role of each model.
        yield f"Participants were simulated by {names or 'models that its tables do not name yet'}."
    yield from (
        f"People {'answered' if run.has_people else 'were asked, but none replied,'} as "
        f"{join_words(model.get('roles', ['participant']))}."
        for model in served
        if model not in simulated
    )


def _describe_material(run: RunFolder, front: Front) -> Iterator[str]:
    yield f"The question: {front.question}" if front.question else ""
    yield from _describe_options(run)
    yield _describe_wordings(run)
    if not run.has_table(ExposureRow.table):
        yield f"Texts shown to participants before each decision: {NOT_RECORDED}."
        return
    for lane in front.lanes:
        steps = [
            f"before {step.decision} they contained "
            f"{join_words(step.sees) if step.sees else 'no text'}"
            for step in lane.steps
        ]
        if steps:
            yield f"Prompts of {lane.arm}: {'; '.join(steps)}."
    yield "Exposure was read from the requests as they were sent."


def _describe_wordings(run: RunFolder) -> str:
    # "" if people read the same words as models, also in runs of earlier versions, which did not
    # record the wordings.
    if not run.has_table(WORDINGS):
        return ""
    counts = dict(run.scan_table(WORDINGS).group_by("part").len().collect().iter_rows())
    texts = [
        format_count(counts[part], noun) for part, noun in WORDED_PARTS.items() if part in counts
    ]
    return f"People read {join_words(texts)} in other words than models." if texts else ""


def _describe_options(run: RunFolder) -> Iterator[str]:
    if not (run.has_table(ExposureRow.table) and run.has_table("answers")):
        return
    decided = run.scan_table(ExposureRow.table).select("decision", "address").unique()
    # Answers are in the order of the protocol, and decisions are listed in this order.
    answers = run.scan_table("answers").select("address", "kind", "options").with_row_index("at")
    of_decision = decided.join(answers, on="address").group_by("decision")
    options = pl.col("options").drop_nulls().unique()
    kinds = of_decision.agg(pl.col("kind").first(), options, pl.col("at").min()).sort("at")
    by_answer: dict[str, list[str]] = {}
    for decision, kind, listed, _ in kinds.collect().iter_rows():
        by_answer.setdefault(_describe_answer(kind, listed), []).append(decision)
    for answered, decisions in by_answer.items():
        yield f"At {join_words(decisions)} participants {answered}."


def _describe_answer(kind: str, options: Sequence[str]) -> str:
    listed = [tuple(json.loads(text)) for text in options]
    sets = {tuple(sorted(order)) for order in listed if order}
    if len(sets) != 1:
        return ANSWERED.get(kind, "answered the question") + ", which depended on the case" * (
            len(sets) > 1
        )
    (only,) = sets
    named = ", ".join(f"“{option}”" for option in only)
    choice_text = (
        f"chose one of {len(only)} options{f' ({named})' if len(only) <= MOST_OPTIONS else ''}"
    )
    orders = len(set(listed))
    return f"{choice_text}, listed in {format_count(orders, 'order', 'different orders')}"


def _describe_analysis(results: Sequence[Result]) -> Iterator[str]:
    primary = [result for result in results if result.claim.family == "primary"]
    if not primary:
        yield "No primary claim was tested: every figure is exploratory."
    for result in primary:
        claim, estimate = result.claim, result.estimate
        lost = sum(result.lost) - result.pending
        why = "the measure is unknown"
        if claim.paired:
            # The same subjects are excluded from both conditions, so they are counted once.
            lost, why = lost // 2, "one of the two measures is unknown"
        excluded = f"{lost:,} excluded because {why}" if lost else "none excluded"
        if missing_rounds := sum(result.missing_rounds):
            excluded += f", {format_count(missing_rounds, 'value')} of single rounds missing"
        excluded += f", {result.pending:,} not complete yet" * bool(result.pending)
        counts = " and ".join(f"{count:,}" for count in result.counts)
        yield (
            f"Outcome “{claim.label}”, contrast {claim.contrast_label}: n = "
            f"{counts}, {excluded}; independent unit: {claim.unit}, {estimate.unit_count:,} in "
            "all; "
            f"{estimate.method if result.is_tested else result.verdict}."
        )
    yield from METHODS if primary else ()
    if any(any(result.missing_rounds) for result in primary):
        yield (
            "The mean of a subject with missing rounds was moved by the mean level of all rounds "
            "of its condition minus that of its rounds; a round that one condition lacks was left "
            "out of both."
        )
    yield (
        f"With fewer than {FEWEST_UNITS} independent units, no claim was tested." if primary else ""
    )
    yield from describe_families([result.claim for result in results])


def _describe_controls(run: RunFolder, study: Study, card: Sequence[CardRow]) -> Iterator[str]:
    controls = open_controls(run)
    if are_controls_missing(run):
        yield "Control questions were asked, but their folder is missing."
    elif controls is None:
        yield "No control questions were asked."
    else:
        # Participants who took part in several experiments are counted once.
        table = with_independent_units(
            with_roles(controls.read_table(ControlRow.table)),
            study.decision_design.independent_unit,
        )
        answered = table.filter(pl.col("control") != AS_DESIGNED, pl.col("missing").is_null())
        # A form has a row for each of its fields, but it is one answer.
        answered = answered.unique(ANSWER_KEYS, maintain_order=True)
        # Participants of several groups may have the same id.
        people = pl.struct(INDEPENDENT_UNIT, "participant_id").n_unique()
        counts = answered.group_by("control", "role", maintain_order=True).agg(
            people.alias("people"), pl.len()
        )
        counts_text = "; ".join(
            f"{CONTROL_NAMES.get(control, control)}: {format_count(answers, 'answer')} of "
            f"{format_count(people, role)}"
            for control, role, people, answers in counts.iter_rows()
        )
        yield f"Control questions after the protocol: {counts_text}."
        in_sessions = answered.filter(from_session_run_again()).height
        if in_sessions:
            yield (
                "From sessions that the study ran again, with texts replaced for all participants: "
                f"{format_count(in_sessions, 'answer')}."
            )
    if card:
        verdicts = "; ".join(f"{row.name.lower()} {row.verdict}" for row in card)
        yield f"Checks of validity: {verdicts}."


def _describe_record(run: RunFolder) -> Iterator[str]:
    manifest = run.manifest
    answers = manifest.get("answers", {})
    parse_steps = answers.get("parse_steps", {})
    exact, missing = (
        format_percent(float(parse_steps.get(step, 0.0)), 1) for step in ("exact", "missing")
    )
    money = "at an unknown price"
    if manifest.get("cost_usd") is not None:
        money = f"at a cost of {describe_cost(manifest)} (US dollars)"
    calls, tokens_in, tokens_out = (
        _describe_count(manifest, key, word)
        for key, word in (
            ("calls", "call"),
            ("input_tokens", "input token"),
            ("output_tokens", "output token"),
        )
    )
    yield f"The run took {calls} ({tokens_in}, {tokens_out}) {money}."
    change = fork_change(run)
    taken_over = manifest.get("fork", {}).get("taken_over", 0)
    if copied := change.count_copied(taken_over) if change is not None else 0:
        yield f"{copied:,} of these calls were copied from another run at no cost."
    yield later_spending(run)
    # While a process writes the run, its answers have not been counted.
    if answers:
        yield (
            f"Of {answers.get('count', 0):,} answers, {exact} were in the requested form and "
            f"{missing} had no valid value. {answers.get('reasks', 0):,} re-asks were made "
            "because a reply could not be parsed. Answers without a valid value were not scored."
        )
    if run.partial:
        yield "The run did not finish: these figures cover a part of it."
    if run.is_synthetic:
        roles = manifest.get("synthetic_roles")
        yield (
            "Folkmoot's embedded opinion-dynamics model with built-in effects answered"
            + (f" as {', '.join(roles)}" if roles else "")
            + ": the figures test the pipeline and are no evidence about people."
        )
    yield "All requests and replies are in the run's journal."


def _describe_count(manifest: Mapping[str, Any], key: str, word: str) -> str:
    # A run that goes on has no sums yet, and some servers count no tokens.
    count = manifest.get(key)
    return f"an unknown number of {word}s" if count is None else format_count(count, word)


def _checklist_table(run: RunFolder, card_rows: Sequence[CardRow], times: CallTimes) -> ResultTable:
    # Authors fill in the answers that the run does not record (`NOT_RECORDED`).
    manifest = run.manifest
    design = run.plan.get("sealed", {}).get("design", {}).get("data", {})
    card = {row.name: row for row in card_rows}
    asked = [
        str(model["asked"]) for model in manifest.get("models", []) if model.get("roles", True)
    ]
    people, embedded = run.has_people, bool(asked) and all(map(is_synthetic, asked))
    coding = _describe_human_coding(run)
    automation = "People answered in some roles; see the models."
    if not people:
        automation = "The run itself was fully automated." if coding else "Fully automated."
    items = (
        (*("A.1", "purpose of the models"), _describe_purpose(run)),
        ("A.2", "human in the loop, or fully automated", f"{automation} {coding}".rstrip()),
        (
            *("B.1", "model name, provider, size, version, date of access, source link"),
            f"{_describe_access_dates(run, times)}; size and source link: "
            + ("the embedded respondent is part of Folkmoot" if embedded else NOT_RECORDED),
        ),
        ("B.2", "mode of access", " ".join(dict.fromkeys(map(_describe_access, asked)))),
        (
            *("B.3", "parameters"),
            f"temperature {describe_setting(run.config, 'temperature')}, reply limit in tokens "
            f"{describe_setting(run.config, 'max_tokens')}, random seed of the design "
            f"{manifest.get('seed')}, one run"
            + (
                "; the first two do not apply to the embedded respondent"
                if any(map(is_synthetic, asked))
                else ""
            ),
        ),
        (
            *("B.4", "fine-tuning or customisation"),
            "None: the embedded respondent is not a trained model." if embedded else BLANK,
        ),
        (
            *("B.5", "whether sessions kept state"),
            "No: requests are independent of each other. Each contains the part of the "
            "conversation that the study shows the speaker."
            + (" People remember what they read." if people else ""),
        ),
        (
            *("C.1", "exact prompts"),
            f"{len(design.get('prompts', {}))} prompt files, hashes in plan.json; every request as "
            f"sent is in journal.sqlite ({_describe_count(manifest, 'calls', 'call')})",
        ),
        ("C.2", "system-wide instructions", "Persona and task; see the system messages."),
        (
            *("D.1", "handling of personal data"),
            "People's words are in the journal; `folkmoot withdraw` deletes them. Consent and "
            f"storage: {BLANK}"
            if people
            else f"No person answered. Source of the personas: {_describe_personas(run)}",
        ),
        (
            *("E.1", "human validation of outputs"),
            _describe_validation(card.get("Human benchmark"), coding),
        ),
        (
            *("E.2", "filtering and post-processing"),
            "Answers are parsed by documented steps, and the table of answers gives the share of "
            f"each step. Re-asks: {manifest.get('answers', {}).get('reasks', 0):,}. Unreadable "
            "answers have a recorded reason and are never scored.",
        ),
        (
            *("F.1", "code shared"),
            f"Folkmoot {manifest.get('software', {}).get('folkmoot', '?')}, Apache-2.0, with "
            "study.yaml of this run",
        ),
        ("G.1", "funding and relationships", BLANK),
        (OPTIONAL, "why these models", BLANK),
        (OPTIONAL, "why these prompts", BLANK),
        (OPTIONAL, "comparison with other methods or models", BLANK),
        (
            *(OPTIONAL, "leakage of training data"),
            "Impossible: nothing was trained." if embedded else BLANK,
        ),
        (
            *(OPTIONAL, "bias that could affect conclusions"),
            "; ".join(f"{row.name.lower()}: {row.verdict}" for row in card.values())
            or "The report checks for known signs (“Is the model fit to answer?”)",
        ),
        (
            *(OPTIONAL, "transcripts of conversations"),
            "All: journal.sqlite, and the table of utterances where people talked.",
        ),
        (OPTIONAL, "ethical implications", BLANK),
        (
            *(OPTIONAL, "computing resources"),
            f"{_describe_count(manifest, 'calls', 'call')} in {manifest.get('wall_seconds', '?')} s"
            + (
                " on one processor core."
                if embedded
                else "; the computing resources of the models are unknown."
            )
            + f" {later_spending(run)}".rstrip(),
        ),
    )
    filled = sum(NOT_RECORDED not in answer for _, _, answer in items)
    return ResultTable(
        ("item", "question", "answer"),
        items,
        f"The records of the run answer {filled} of {len(items)} items. The authors must answer "
        "the others.",
    )


def _describe_purpose(run: RunFolder) -> str:
    roles: list[str] = []
    if run.has_table("answers"):
        roles = run.scan_table("answers").select("role").unique().collect()["role"].to_list()
    roles_text = f" (roles: {join_words(sorted(roles))})" if roles else ""
    study_type = run.study.replace("_", " ")
    return f"Simulated participants and other roles of a {study_type} study{roles_text}."


def _describe_personas(run: RunFolder) -> str:
    # A name such as `grounded`, or a file. Some study types have further settings for personas.
    personas = run.config.get("personas")
    source = personas.get("source") if isinstance(personas, Mapping) else personas
    return f"{source}, by the key personas of study.yaml." if source else BLANK


def _describe_access_dates(run: RunFolder, times: CallTimes) -> str:
    first, last = (str(run.manifest.get(key, "?"))[:10] for key in ("started_at", "finished_at"))
    return "; ".join(
        f"{model['asked']} (served as {', '.join(model['served']) or 'not reported'}), "
        f"accessed from {called[0]} to {called[1]}"
        for model in run.manifest.get("models", [])
        for called in [times.get(model["asked"], (first, last))]
    )


def _describe_human_coding(run: RunFolder) -> str:
    # Sheets of humans that were read in after the run. "" if there are none.
    codings = read_codings(run).values()
    # What two humans checked or coded counts once, as in the finding on the coding.
    corrections = [amendment for results in codings for amendment in results.corrections]
    checked = sum(results.confirmed_counts[1] for results in codings)
    blind = [
        coder for results in codings for coder in results.coders if coder.coder_role == HUMAN_ROLE
    ]
    parts = []
    if corrections:
        authors = (
            amendment.author for results in codings for amendment in results.corrections_by_human
        )
        names = join_words(list(dict.fromkeys(authors)))
        counted = format_count(len(corrections), "code")
        done = "checked" if len(corrections) == checked else "checked or added"
        parts.append(f"{counted} {done} by {names}")
    if blind:
        names = join_words(list(dict.fromkeys(coder.name for coder in blind)))
        texts = format_count(len({text_id for coder in blind for text_id in coder.codes}), "text")
        parts.append(f"{texts} coded by {names} without seeing the codes")
    if not parts:
        return ""
    return f"Coding by people after the run: {join_words(parts)} (see “{CODING_TITLE}”)."


def _describe_validation(benchmark: CardRow | None, coding: str) -> str:
    validation = ""
    if benchmark is not None and benchmark.figures:
        validation = f"{benchmark.consequence} {benchmark.figures}"
    return f"{validation} {coding}".strip() or BLANK


def _describe_access(model: str) -> str:
    if is_synthetic(model):
        return "The embedded respondent: computed in this process, no language model."
    if model == HUMAN_MODEL:
        return "People: on web pages of Folkmoot."
    if model.partition(":")[0] == LOCAL_MODEL:
        return f"{model}: llama.cpp's server on this machine, one separate request per call."
    return f"{model}: API, one separate request per call."
