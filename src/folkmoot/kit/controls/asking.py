"""Run the controls of a finished run, as a run in `RUN/controls/`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.conversation.answer_types import CANNOT_SAY, AnswerType, Missing
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.engine.calls.model_routing import names_hosted_model
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import study_from_settings
from folkmoot.engine.run.verify import Verification
from folkmoot.engine.session.asking import AskResult
from folkmoot.engine.session.repeated_protocol import FinishedRun
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import BATCH_KEYS, StudyConfig
from folkmoot.engine.settings.controls import (
    AGE,
    ControlQuestion,
    ControlSettings,
    Language,
    age_question,
)
from folkmoot.engine.study.study import Study, find_study_of_run
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.hints import number_text
from folkmoot.kit.controls.conversations import (
    FIRST,
    ControlledDecision,
    DecisionConversation,
    find_decisions,
    find_repeated,
    read_attributes,
    read_conversations,
    sample_decisions,
)
from folkmoot.kit.controls.forking import (
    ForkedDecision,
    ForkRules,
    follows_own_replies,
    fork_decision,
    speaker_of,
    texts_of,
    with_new_replies,
)
from folkmoot.kit.controls.forms import JSON, FormAnswer
from folkmoot.kit.controls.persona_findings import persona_variance_rows
from folkmoot.kit.controls.replacing import (
    COMPUTED,
    GIVEN,
    HUMANS,
    LACKING,
    OPEN,
    REPLIED,
    Refusal,
    Replaced,
    TreatmentTexts,
    describe_left_out,
    read_treatments,
)
from folkmoot.kit.controls.reply_graph import TEXT, NewReply, ReplyGraph
from folkmoot.kit.controls.respondent import WHOM, decision_scope, part_for
from folkmoot.kit.controls.session_forks import (
    IN_SESSION,
    InSessionMark,
    ReadQuestion,
    SessionForks,
    SessionParts,
    ask_in_sessions,
    read_finished_run,
    read_questions,
    read_sessions,
    revise_sessions,
    scopes_of,
)
from folkmoot.kit.controls.tables import (
    AMENDMENT,
    AS_DESIGNED,
    FACT,
    NEGATIVE,
    REPLACING,
    RETEST,
    ControlRow,
    PersonaVarianceRow,
    are_controls_missing,
    finished_controls,
    with_independent_units,
)
from folkmoot.kit.run_below import (
    Below,
    calling_settings,
    require_finished,
    run_below,
    verify_below,
)
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.provenance import quote_value
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder


class _Rule(StrEnum):
    # A rule that earlier versions lacked. The plan of the controls has a key for each. Controls
    # with a plan that lacks a key are verified and resumed as they were planned.

    # All forks follow from the sources of the prompts (`ForkRules`). Earlier versions looked at
    # where a participant's replies are in the prompt, and not at what these replies answer.
    BY_PROVENANCE = "forked_by_provenance"
    # Texts change places within lists only. In reversed order earlier versions exchanged texts that
    # are no list (`TreatmentTexts`).
    WITHIN_LISTS = "exchanged_within_lists"
    # A way out, such as `declined`, is a missing answer. It was recorded as an answer.
    DECLINED_IS_MISSING = "ways_out_are_missing"
    # An answer is read with the answer type of the study, and in a form names of speakers are no
    # options. Earlier versions read an answer by its options or its schema.
    AS_THE_STUDY = "read_as_the_study"
    # A decision apart from the treatment (`DecisionDesign.apart`) is not the final one, as it was.
    APART = "decisions_apart"
    # The design declares which texts all conditions show (`DecisionDesign.alike`). Earlier versions
    # took for common only those that were shown in each condition.
    ALIKE = "alike_by_design"
    # In a session that is run again, texts that the run did not have are replaced too, and in a
    # reply for several participants the words of all of them.
    WHOLE_SESSIONS = "whole_sessions_replaced"
    # A decision is not asked alone if a computed value in its prompt, such as a count of votes,
    # depends on a reply to a replaced text. Earlier versions looked at quoted replies only.
    FOLLOWS_VALUES = "computed_values_follow"
    # The reply that a researcher gave in a fork stays as given. Earlier versions asked a model in
    # its place.
    KEEPS_GIVEN = "given_replies_stay"


class ControlsConfig(StudyConfig):
    """The settings of a controls run: the key `controls` and the settings for calls to models."""

    @property
    def requested_controls(self) -> ControlSettings:
        """The key `controls`, or the default controls if the key is missing."""
        return self.controls or ControlSettings()


def run_controls(
    run: RunFolder,
    settings: Mapping[str, object],
    options: RunOptions,
    stopper: RunStopper | None = None,
    *,
    with_humans: bool = False,
    **calling: object,
) -> RunFolder:
    """Run the controls of a finished run, or resume interrupted controls.

    - `settings`: keys of `controls:` in a study file.
    - `with_humans`: True in a dry run if humans will take seats in the real run.
    - `calling`: other keys of a study file, such as a budget.

    Raises InputError if the run is unfinished, has no decisions, or already has controls.
    Also raises the errors of `run_study`.
    """
    require_finished(run)
    if finished_controls(run) is not None:
        folder = run.path / CONTROLS
        if are_controls_missing(run):
            raise InputError(
                Problem(
                    f"{run.path}: the controls were asked, but {folder} is missing",
                    hint="restore the folder from a copy; controls are asked only once",
                )
            )
        hint = f"they are in {folder}; folkmoot report shows them"
        raise InputError(Problem(f"{run.path}: the run has controls already", hint=hint))
    asked = Counter(decision.model for decision in find_decisions(run))
    # Ask the model that answered most decisions. It may differ from the study file's model, because
    # the command line can override it.
    model = asked.most_common(1)[0][0]
    # Controls use batches as the run does, at half the price, and `check` estimates this price.
    kept = {**calling_settings(run, "respondent", "temperature", *BATCH_KEYS), "model": model}
    below = Below(study_of(run, with_humans=with_humans), CONTROLS, AMENDMENT, "folkmoot")
    given = {**kept, **calling, "controls": settings}
    named = study_from_settings(below.study, given, options).config.controls or ControlSettings()
    # Controls can be asked only once, so a run without any would leave no room for others.
    if not named.asks_anything:
        hint = "name at least one, such as --negative or --order"
        raise InputError(Problem("all controls are switched off", key="controls", hint=hint))
    return run_below(run, below, given, options, stopper)


def study_of(run: RunFolder, *, with_humans: bool = False) -> Study[ControlsConfig]:
    """Return the study type that asks the controls of this run.

    `with_humans`: True in a dry run if humans will take seats in the real run. No session is then
    run again, because humans cannot answer again.
    """
    study = find_study_of_run(run)
    roles = {str(role) for (role,) in run.rows("answers", "role")}
    config = run.read_settings(study.config)
    part = part_for(study.respondent_part, config, sorted(roles))
    return Study(
        "controls",
        "Controls of a finished run",
        ControlsConfig,
        partial(_run_controls, run, with_humans),
        prompts=Path(__file__).parent / "prompts",
        tables=(ControlRow, PersonaVarianceRow),
        derived_tables=partial(_persona_variance, run),
        respondent_part=part,
        extra_models=partial(_models_of, run),
    )


def _models_of(run: RunFolder, config: ControlsConfig) -> list[str]:
    # Each speaker is asked by the model that answered in the run. If the controls name a hosted
    # model, the router allows every model, so that no key is required for one that is not asked.
    if names_hosted_model(config):
        return []
    asked = {str(model) for (model,) in run.rows("answers", "model_asked")}
    return sorted(asked - {HUMAN_MODEL, config.model})


def _persona_variance(
    run: RunFolder, controls: RunFolder, _journal: JournalReader
) -> list[PersonaVarianceRow]:
    design = find_study_of_run(run).decision_design
    answers = controls.read_table(ControlRow.table)
    return persona_variance_rows(
        with_independent_units(answers, design.independent_unit), read_attributes(run)
    )


async def _run_controls(
    run: RunFolder, with_humans: bool, session: Session[ControlsConfig]
) -> None:
    settings = session.config.requested_controls
    design = find_study_of_run(run).decision_design
    apart = {} if _is_planned_earlier(run, _Rule.APART) else design.apart
    decisions = find_decisions(run, apart)
    # A second answer to one decision would only compare the decision with itself. So it counts as
    # the final decision, and as the first one in the retest.
    repeated = frozenset() if _asked_twice(run) else find_repeated(decisions)

    def is_repeated(decision: ControlledDecision) -> bool:
        return decision.moment == FIRST and decision.place in repeated

    samples = {
        control: [
            decision
            for decision in sample_decisions(decisions, settings.size_of(control), session.seed)
            if control == RETEST or not is_repeated(decision)
        ]
        for control in (NEGATIVE, RETEST, *REPLACING)
    }
    # A smaller sample is part of a larger one, except for repeated decisions.
    largest_first = sorted(samples.values(), key=len, reverse=True)
    everyone = list(dict.fromkeys(itertools.chain.from_iterable(largest_first)))
    conversations, versions, forks, finished = await _prepare_versions(
        run, with_humans, session, samples, everyone
    )
    if _is_planned_earlier(run, _Rule.DECLINED_IS_MISSING):
        conversations = _with_ways_out_as_values(conversations, everyone)
    plan: dict[str, Any] = {
        "decisions": {
            name: [controlled_decision.place for controlled_decision in sample]
            for name, sample in samples.items()
        },
        "questions": [question.model_dump(mode="json") for question in settings.questions],
    }
    for rule in _Rule:
        if not _is_planned_earlier(run, rule):
            plan[rule.value] = True
    # The replies that a fork asks again are known before the first call, so they are sealed too.
    if asked_again := _asked_again(versions):
        plan["asked_again"] = asked_again
    if forks:
        plan["run_again"] = {fork.control: fork.scopes for fork in forks}
    await session.seal("controls", plan)
    # Warn before the first call. Until an answer is stored, the researcher can still ask other
    # controls.
    for sentence in describe_left_out(_left_out(samples, versions)):
        session.warn(sentence)
    chosen = {
        name: {controlled_decision.key for controlled_decision in sample}
        for name, sample in samples.items()
    }

    async def ask_control_questions(scope: Scope, decision: ControlledDecision) -> None:
        conversation = conversations[decision.place]
        asked: dict[str, Any] = {}
        if decision.key in chosen[NEGATIVE]:
            for question in settings.questions:
                asked[question.id] = partial(
                    _ask_control, conversation, decision, question, NEGATIVE, settings.language
                )
            # Asking for the stated age tests whether the persona is kept.
            if decision.age is not None:
                own = age_question(settings.language)
                asked[own.id] = partial(
                    _ask_control, conversation, decision, own, FACT, settings.language
                )
        # Negative controls work after any decision. The other controls need a decision with a
        # closed answer, and record why they leave out another one.
        if conversation.is_closed and not is_repeated(decision):
            reason = conversation.missing
            made = conversation.value if reason is None else Missing(reason)
            for row in _build_rows(
                decision, AS_DESIGNED, decision.decision, made, None, scope.address
            ):
                scope.record(row)
        for name in (RETEST, *REPLACING):
            version = versions.get((decision.key, name))
            if version is not None and version is not IN_SESSION:
                asked[decision_scope(name)] = partial(
                    _ask_replaced, conversation, decision, name, version
                )
        await scope.map(asked)

    # A withdrawal may have removed the conversation of a decision.
    known = [decision for decision in everyone if decision.place in conversations]
    await session.map(known, ask_control_questions, key=lambda decision: decision.key)
    if finished is not None:
        asked_in_sessions = {
            decision_scope(fork.control): partial(_ask_in_sessions, finished, fork, conversations)
            for fork in forks
        }
        await session.map(asked_in_sessions)


def _asked_twice(run: RunFolder) -> bool:
    # Earlier versions asked twice after a decision that is both the first and the final one. Their
    # controls are verified and resumed as they were planned.
    samples = (_sealed_controls(run) or {}).get("decisions", {})
    return any(len(set(places)) < len(places) for name, places in samples.items() if name != RETEST)


def _is_planned_earlier(run: RunFolder, rule: _Rule) -> bool:
    # Whether an earlier version planned the controls, without this rule.
    plan = _sealed_controls(run)
    return plan is not None and rule.value not in plan


def _with_ways_out_as_values(
    conversations: Mapping[str, DecisionConversation], decisions: Sequence[ControlledDecision]
) -> dict[str, DecisionConversation]:
    # Earlier versions recorded a way out of a choice as the option chosen, and no reasons.
    choices = {each.place: each.recorded for each in decisions if each.options}
    return {
        place: each._replace(value=choices.get(place, each.value), missing=None)
        for place, each in conversations.items()
    }


def _sealed_controls(run: RunFolder) -> Mapping[str, Any] | None:
    # What the plan of the controls seals, or None before it is written.
    controls = run.open_subfolder(CONTROLS)
    sealed = {} if controls is None else controls.plan.get("sealed", {})
    return sealed["controls"]["data"] if "controls" in sealed else None


# (key of a decision, control) → the version that the control asks, or why it cannot be asked.
_Versions = dict[tuple[str, str], ForkedDecision | InSessionMark | Refusal]


class _Prepared(NamedTuple):
    # The questions of the controls, prepared before the first call.

    conversations: Mapping[str, DecisionConversation]
    versions: _Versions
    forks: list[SessionForks]
    # The finished run, if its sessions are run again.
    finished: FinishedRun | None


async def _prepare_versions(
    run: RunFolder,
    with_humans: bool,
    session: Session[ControlsConfig],
    samples: Mapping[str, Sequence[ControlledDecision]],
    everyone: Sequence[ControlledDecision],
) -> _Prepared:
    study = find_study_of_run(run)
    is_earlier = _is_planned_earlier(run, _Rule.AS_THE_STUDY)
    alike = study.decision_design.alike(run.read_settings(study.config))
    treatments = read_treatments(
        run,
        () if _is_planned_earlier(run, _Rule.ALIKE) else alike,
        None
        if _is_planned_earlier(run, _Rule.WHOLE_SESSIONS)
        else study.decision_design.kind_of_text,
        exchanges_any=_is_planned_earlier(run, _Rule.WITHIN_LISTS),
    )
    follows_values = not _is_planned_earlier(run, _Rule.FOLLOWS_VALUES)
    # Read at most once, because they take two scans of tables.
    get_sessions = cache(partial(read_sessions, run, treatments))
    # Read all conversations before the first call, so that the journal is not open during the run.
    with JournalReader(run.path / JOURNAL) as journal:
        conversations = read_conversations(run, journal, everyone, is_earlier=is_earlier)
        graph = ReplyGraph(run, journal, study.tables, is_earlier=is_earlier)
        # Read the replies behind all decisions together, because each scan reads the longest table
        # of the run. Decisions in free text are not asked again, so their replies are not needed.
        replacing = {
            decision.place: decision
            for control in REPLACING
            for decision in samples[control]
            if decision.kind != TEXT and decision.place in conversations
        }
        texts = {place: texts_of(conversations[place]) for place in replacing}
        graph.read_behind(itertools.chain(*texts.values()))
        if follows_values:
            computed = [
                decision
                for place, decision in replacing.items()
                if follows_own_replies(decision) and graph.holds_computed_value(texts[place])
            ]
            graph.read_before(_find_scopes(get_sessions, computed))
    language = session.config.requested_controls.language
    keeps_given = not _is_planned_earlier(run, _Rule.KEEPS_GIVEN)
    is_before_provenance = _is_planned_earlier(run, _Rule.BY_PROVENANCE)
    rules = ForkRules(treatments, language, is_before_provenance, keeps_given, follows_values)
    versions = _build_versions(graph, rules, samples, conversations)
    asks_again = any(samples[control] for control in (RETEST, *REPLACING))
    unread = _questions_of_the_study(everyone, conversations, graph, is_earlier)
    needs_study = any(version in (COMPUTED, REPLIED) for version in versions.values())
    if not asks_again or not (unread or needs_study):
        return _Prepared(conversations, versions, [], None)
    finished = HUMANS if with_humans else read_finished_run(run, keeps_given=keeps_given)
    if isinstance(finished, FinishedRun):
        questions = await read_questions(session.child("answer_types"), finished, unread)
        if not isinstance(questions, str):
            conversations |= _read_as_the_study(conversations, questions, is_earlier)
            if not is_earlier:
                graph.use_study_answers({place: questions[place].question for place in questions})
            versions = _build_versions(graph, rules, samples, conversations)
            forks = list(_fork_sessions(get_sessions, treatments, samples, versions, language))
            versions |= {
                (decision.key, fork.control): IN_SESSION
                for fork in forks
                for decision in fork.decisions
            }
            return _Prepared(conversations, versions, forks, finished)
        finished = questions
    versions = _with_reason(versions, samples, finished, is_earlier)
    return _Prepared(conversations, versions, [], None)


def _find_scopes(
    get_sessions: Callable[[], Mapping[str, SessionParts]],
    decisions: Sequence[ControlledDecision],
) -> dict[str, tuple[str, ...]]:
    # The scopes of the session of each decision, by the address of the decision.
    sessions = get_sessions() if decisions else {}
    return {
        decision.address: sessions[decision.unit].scopes
        for decision in decisions
        if decision.unit in sessions
    }


def _questions_of_the_study(
    decisions: Iterable[ControlledDecision],
    conversations: Mapping[str, DecisionConversation],
    graph: ReplyGraph,
    is_earlier: bool,
) -> set[str]:
    # The addresses of the questions that the code of the study reads. The answer types of Folkmoot
    # have settings that no table records, so a choice is among them. A form is compared by its
    # closed fields, so its schema is enough. A reply for several participants is a form.
    if is_earlier:
        return {place for place, each in conversations.items() if each.answer is None}
    own = {each.place for each in decisions if each.kind not in (TEXT, JSON)}
    return (own & conversations.keys()).union(graph.addresses)


def _read_as_the_study(
    conversations: Mapping[str, DecisionConversation],
    questions: Mapping[str, ReadQuestion],
    is_earlier: bool,
) -> dict[str, DecisionConversation]:
    # The conversations of closed decisions, with the answer types of the study.
    found = {}
    for place, ((answer_type, reasks), recorded, missing) in questions.items():
        # Earlier versions used the answer types of numbers only, with the default number of
        # re-asks.
        is_used = answer_type.is_closed and not (is_earlier and answer_type.listed_options)
        if is_used and (each := conversations.get(place)) is not None:
            own_reasks = each.reasks if is_earlier else reasks
            found[place] = each.with_study_answer(answer_type, recorded, missing, own_reasks)
    return found


def _build_versions(
    graph: ReplyGraph,
    rules: ForkRules,
    samples: Mapping[str, Sequence[ControlledDecision]],
    conversations: Mapping[str, DecisionConversation],
) -> _Versions:
    versions: _Versions = {}
    for control in (RETEST, *REPLACING):
        for decision in samples[control]:
            conversation = conversations.get(decision.place)
            # Retest the first decision only: later ones also depend on the participant's earlier
            # answers.
            if conversation is None or (control == RETEST and decision.moment != FIRST):
                continue
            if conversation.is_given and rules.keeps_given:
                version: ForkedDecision | Refusal = GIVEN
            elif conversation.answer is None:
                version = OPEN
            elif control == RETEST:
                asked = conversation.asked.utterances
                same = Replaced(conversation.speaker.system, asked, decision.options)
                version = ForkedDecision((), same)
            else:
                version = fork_decision(control, decision, conversation, rules, graph)
            versions[decision.key, control] = version
    return versions


def _fork_sessions(
    get_sessions: Callable[[], Mapping[str, SessionParts]],
    treatments: TreatmentTexts,
    samples: Mapping[str, Sequence[ControlledDecision]],
    versions: _Versions,
    language: Language,
) -> Iterator[SessionForks]:
    # The prompts of these sessions hold computed values, so that single requests cannot be sent
    # again.
    sessions = get_sessions()
    for control in REPLACING:
        decisions = [
            decision
            for decision in samples[control]
            if versions.get((decision.key, control)) in (COMPUTED, REPLIED)
            and decision.unit in sessions
        ]
        if decisions:
            revise = revise_sessions(control, decisions, sessions, treatments, language)
            yield SessionForks(control, decisions, scopes_of(decisions, sessions), revise)


def _with_reason(
    versions: _Versions,
    samples: Mapping[str, Sequence[ControlledDecision]],
    reason: Refusal,
    is_earlier: bool,
) -> _Versions:
    # The versions, with `reason` for each decision that only the code of the study could ask.
    closed = {
        decision.key
        for sample in samples.values()
        for decision in sample
        if decision.is_number or (decision.options and not is_earlier)
    }
    return {
        (key, control): reason
        if version in (COMPUTED, REPLIED) or (version == OPEN and key in closed)
        else version
        for (key, control), version in versions.items()
    }


def _left_out(
    samples: Mapping[str, Sequence[ControlledDecision]], versions: _Versions
) -> Iterator[tuple[str, str, str | None]]:
    # (control, moment, reason) for each sampled decision. The reason says why the decision cannot
    # be asked again. It is None if the decision is asked.
    for control in (RETEST, *REPLACING):
        for decision in samples[control]:
            version = versions.get((decision.key, control))
            if version is not None:
                yield control, decision.moment, version if isinstance(version, str) else None


def _asked_again(versions: _Versions) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for (key, control), version in versions.items():
        if isinstance(version, ForkedDecision) and version.steps:
            found.setdefault(control, {})[key] = [step.reply.address for step in version.steps]
    return found


async def _ask_control(
    conversation: DecisionConversation,
    decision: ControlledDecision,
    question: ControlQuestion,
    control: str,
    language: Language,
    scope: Scope,
) -> None:
    # Each control question follows the decision directly, so none is in the history of another one.
    text = quote_value(question.text, "material", f"study.questions.{question.id}.text")
    # A reply for several participants has one conversation, so the question says whom it is for.
    whom = quote_value(decision.participant_id, "value", WHOM, decision.participant_id)
    asks = {"question": text, "whom": whom if decision.is_shared else ""}
    if question.number is None:
        listing = quote_value(
            "\n".join(f"- {option}" for option in question.options),
            "option",
            f"study.questions.{question.id}.options",
        )
        prompt = scope.prompt(f"choice_{language}", **asks, listing=listing)
    else:
        low, high = (
            quote_value(number_text(bound), "value", f"study.questions.{question.id}.number")
            for bound in question.number
        )
        prompt = scope.prompt(f"number_{language}", **asks, low=low, high=high)
    got = await scope.ask(
        conversation.speaker,
        prompt,
        history=conversation.heard,
        answer_type=question.answer,
        about=question.text,
    )
    expected = decision.age if question.id == AGE and control == FACT else None
    for row in _build_rows(decision, control, question.id, got, expected, scope.address):
        scope.record(row)


async def _ask_replaced(
    conversation: DecisionConversation,
    decision: ControlledDecision,
    control: str,
    version: ForkedDecision | Refusal,
    scope: Scope,
) -> None:
    # Earlier replies that depend on the changed text are asked first. If one of them is missing,
    # the answer to the question is missing too.

    # A `Refusal` is a string, and its text is the reason of the missing answer.
    got: Any = Missing(version) if isinstance(version, str) else None
    new: dict[str, NewReply] = {}
    for step in () if isinstance(version, str) else version.steps:
        texts = with_new_replies(step.texts, step.quotes, new)
        if texts is None:
            got = Missing(LACKING)
            break
        # The first entry is that of the system prompt, which the speaker carries.
        own = step.reply.is_own[1:]
        said = [
            Utterance(step.reply.speaker.id if is_own else "", text)
            for is_own, text in zip(own, texts[1:], strict=True)
        ]
        reply = await _ask_version(
            scope, speaker_of(step, texts), said, step.reply.answer_as_listed, step.reply.reasks
        )
        # Later prompts would quote the missing reply, so more calls would be paid for nothing.
        if isinstance(reply.value, Missing):
            got = reply.value
            break
        new[step.reply.address] = NewReply(reply.address, reply.text, str(reply.value))
    if not isinstance(version, str) and got is None:
        changed = version.decision
        said_texts = [changed.system, *(utterance.text for utterance in changed.asked)]
        texts = with_new_replies(said_texts, version.quotes, new)
        if texts is None:
            got = Missing(LACKING)
        else:
            said = [
                utterance._replace(text=text)
                for utterance, text in zip(changed.asked, texts[1:], strict=True)
            ]
            speaker = replace(conversation.speaker, system=texts[0])
            answer_type = conversation.answer_with(changed.options)
            reply = await _ask_version(scope, speaker, said, answer_type, conversation.reasks)
            got = conversation.value_of(reply.value)
    # The original answer is recorded next to the new one, so that findings need only this table.
    made, name = conversation.value, decision.decision
    for row in _build_rows(decision, control, name, got, made, scope.address):
        scope.record(row)


async def _ask_in_sessions(
    finished: FinishedRun,
    fork: SessionForks,
    conversations: Mapping[str, DecisionConversation],
    scope: Scope,
) -> None:
    for decision, got, address in await ask_in_sessions(scope, finished, fork, conversations):
        made, name = conversations[decision.place].value, decision.decision
        for row in _build_rows(decision, fork.control, name, got, made, address):
            scope.record(row)


async def _ask_version(
    scope: Scope,
    speaker: Speaker,
    said: Sequence[Utterance],
    answer: AnswerType[Any],
    reasks: int,
) -> AskResult[Any]:
    # The last message is the question.
    *before, last = said
    history = Transcript(tuple(before))
    return await scope.ask_detailed(
        speaker, last.text, history=history, answer_type=answer, reasks=reasks
    )


def _build_rows(
    decision: ControlledDecision,
    control: str,
    question: str,
    got: Any,
    expected: FormAnswer | None,
    address: str,
) -> Iterator[ControlRow]:
    # A form with several closed fields has a row for each. `address` is empty if no call was made.
    fields: dict[str | None, None] = {}
    for answer in (got, expected):
        if isinstance(answer, Mapping):
            fields |= dict.fromkeys(answer)
    for field in fields or {None: None}:
        # A field that the reply left out is missing.
        own = got.get(field, Missing(CANNOT_SAY)) if isinstance(got, Mapping) else got
        made = expected.get(str(field)) if isinstance(expected, Mapping) else expected
        missing = isinstance(own, Missing)
        yield ControlRow.from_source(
            decision,
            control=control,
            question=question,
            field=field,
            decision_address=decision.address,
            value=str(own) if isinstance(own, str) else None,
            number=float(own) if isinstance(own, (int, float)) and not missing else None,
            expected=None if made is None else str(made),
            missing=own.reason if missing else None,
            address=address,
        )


def verify_controls(run: RunFolder) -> Iterator[tuple[str, Verification]]:
    """Replay the controls of a run, and compare the replay with the stored results.

    Yields the folder of the controls and the result of the comparison.
    """
    try:
        made = finished_controls(run)
    except StorageError:
        # The verification of the run itself reports unreadable amendments.
        return
    if made is not None:
        yield verify_below(run, made, study_of(run))
