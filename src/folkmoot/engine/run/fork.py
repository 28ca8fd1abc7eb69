"""Fork a finished run: repeat the run with one reply changed.

The changed reply is a given text, a reply of a given model, or no reply.
"""

# The fork takes every reply that does not depend on the changed reply from the journal of the
# source run. The fork makes all other calls again. The source run stays unchanged.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from folkmoot.conversation.json_replies import read_whole_json
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.journal.journal_file import FORMAT
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions, build_design, relative_path
from folkmoot.engine.run.runner import check_models, create_router, run_study
from folkmoot.engine.run.verify import NotRebuiltError, study_as_it_was_run
from folkmoot.engine.seats.utterances import UTTERANCES, PlaceInReply, UtteranceInReply
from folkmoot.engine.session.folder_access import choose_folder
from folkmoot.engine.session.plan import DESIGN, FORK, Plan
from folkmoot.engine.study.study import Study
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import DriftError, InputError, Problem
from folkmoot.hints import closest_name
from folkmoot.storage.run_folder import JOURNAL, PLAN, STUDY_FILE_NAME, RunFolder

REPLACEMENT_HINT = "name one of --say TEXT, --drop and --model MODEL"


@dataclass(frozen=True)
class ReplyReplacement:
    """The change that a fork makes to one reply.

    - `say`: the text of the new reply.
    - `drop`: True to remove the reply.
    - `model`: the model that gives the new reply.

    Raises InputError unless exactly one field is set.
    """

    say: str | None = None
    drop: bool = False
    model: str | None = None

    def __post_init__(self) -> None:
        if (self.say is not None) + self.drop + (self.model is not None) != 1:
            raise InputError(Problem("a fork changes one reply in one way", hint=REPLACEMENT_HINT))


def fork_run(
    run: RunFolder,
    address: str,
    replacement: ReplyReplacement,
    options: RunOptions,
    stopper: RunStopper | None = None,
    study: Study | None = None,
) -> RunFolder:
    """Repeat a finished run in a new folder, with the reply at one address replaced.

    - `address`: the address of a question or the id of an utterance.
    - `options.out`: the new folder, or None for a folder beside the run.

    Raises InputError if the address cannot be used, or the new reply does not answer the question.
    Raises DriftError if this version of Folkmoot would send different requests.
    Also raises the errors of `run_study`.
    """
    study_file = study_for_fork(run, options, study)
    folder = options.out or choose_folder(run.path.with_name(f"{run.id}_fork"), "new")[0]
    change = build_reply_change(run, folder, study_file.study, address, replacement)
    return start_fork(run, study_file, replace(options, out=folder, change=change), stopper)


def resume_fork(
    fork: RunFolder,
    options: RunOptions,
    stopper: RunStopper | None = None,
    study: Study | None = None,
) -> RunFolder:
    """Resume a fork that stopped.

    Raises InputError if the run is not a fork.
    Raises DriftError if this version of Folkmoot would send different requests.
    """
    change = fork_change(fork)
    if change is None:
        hint = "folkmoot run STUDY --resume continues other runs"
        raise InputError(Problem(f"{fork.path}: is not a fork of a run", hint=hint))
    study_file = study_for_fork(RunFolder(fork.path / change.run), options, study)
    try:
        return run_study(study_file, replace(options, out=fork.path, resume=True), stopper)
    except DriftError as error:
        # The settings are those of the run, so there is no study file to restore.
        raise DriftError(
            f"{fork.path}: the fork cannot be continued; make it again in another folder. "
            f"{error.difference or error}"
        ) from error


def fork_change(run: RunFolder) -> ReplyChange | None:
    """Return the changed reply of a fork, or None for any other run.

    Raises InputError if the plan is damaged.
    """
    try:
        return ReplyChange.from_plan(run.plan)
    except (TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{run.path / PLAN}: the sealed part “{FORK}” is damaged") from error


def study_for_fork(run: RunFolder, options: RunOptions, study: Study | None = None) -> StudyFile:
    """Return the study of a run in the form that `plan.json` stores.

    `options`: sets budget and concurrency.

    Raises InputError if the run is unfinished, damaged, or cannot be rebuilt.
    Raises InputError also for a run with humans.
    """
    # Humans cannot be asked again.
    if not run.is_finished:
        hint = "finish it with --resume first"
        raise InputError(Problem(f"{run.path}: the run is not finished", hint=hint))
    with JournalReader(run.path / JOURNAL) as journal:
        if damage := journal.find_damage():
            raise InputError(f"{run.path / JOURNAL}: {damage[0]}. `folkmoot verify` says more.")
        if journal.format_version != FORMAT:
            raise InputError(f"{run.path}: was made by an earlier version and cannot be forked")
        if journal.human_answer_count():
            raise InputError(f"{run.path}: humans took part, and cannot be asked again")
    if run.manifest.get("scripted") and options.custom_provider is None:
        raise InputError(f"{run.path}: a provider in Python answered; pass it to folkmoot.fork()")
    try:
        study_file, _ = study_as_it_was_run(run, study)
    except NotRebuiltError as error:
        raise InputError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{run.path}: {PLAN} or the manifest is damaged: {error!r}") from error
    # The settings of the source run are valid already. No amount is above a budget of NaN.
    if options.budget is not None and not options.budget >= 0:
        raise InputError(f"the budget must be at least 0, is {options.budget:g}")
    # The budget of the source run was meant for all its calls. A fork makes only some of them, so
    # it has its own budget or none.
    settings: dict[str, object] = {"budget_usd": options.budget, "budget_calls": None}
    if options.concurrency is not None:
        settings["concurrency"] = options.concurrency
    return replace(study_file, config=study_file.config.model_copy(update=settings))


def build_reply_change(
    run: RunFolder, folder: Path, study: Study, address: str, replacement: ReplyReplacement
) -> ReplyChange:
    """Return the changed reply for a fork in `folder`, after checking that the fork is possible.

    - `study`: the study type of the run.

    Raises InputError if no question is at `address`, if the question is a re-ask, or if the
    replacement does not fit the reply.
    """
    # An utterance id is the address of the reply, `#` and the number of the utterance in it.
    question_address, _, _ = address.partition("#")
    with JournalReader(run.path / JOURNAL) as journal:
        entry = journal.entry_at(question_address)
        if entry is None or entry.kind != "ask":
            raise InputError(_unknown_address_problem(run, journal, question_address))
        # The address of a re-ask is the address of its question with a suffix such as `.r1`.
        question_addresses = [
            journaled_address
            for journaled_address in journal.list_addresses()
            if journaled_address == question_address.rpartition(".")[0]
        ]
        if question_addresses:
            hint = f"fork at the first question: {question_addresses[0]}"
            raise InputError(Problem(f"{question_address}: this is a re-ask", hint=hint))
        digest = journal.content_digest()
    reply = None
    if replacement.say is not None:
        reply = _build_reply(run, study, entry, address, replacement.say)
    # The address names one utterance, but dropping a reply would drop all utterances in it.
    elif (
        address != question_address
        and len(utterances := _read_utterances(run, question_address)) > 1
    ):
        hint = f"--drop and --model change the whole reply; name {question_address}"
        message = f"{question_address}: this reply contains {', '.join(utterances)}"
        raise InputError(Problem(message, hint=hint))
    return ReplyChange(
        relative_path(run.path, folder),
        run.id,
        digest,
        question_address,
        reply,
        replacement.drop,
        replacement.model,
    )


def start_fork(
    run: RunFolder, study_file: StudyFile, options: RunOptions, stopper: RunStopper | None
) -> RunFolder:
    """Run a fork with the change in `options.change`.

    Raises InputError before any call if the new reply does not answer the question.
    """
    # `run_study` then removes the new folder.
    assert options.out is not None
    providers = create_router(study_file, options)
    # A study that was defined in Python has no file, but the settings of its run are one.
    settings = study_file.path if study_file.path.exists() else run.path / STUDY_FILE_NAME
    options.consent.require_network_access(settings, study_file.config, providers)
    check_models(study_file, options)
    # The plan of the source run is opened for a comparison and never written. Sealing the design of
    # today into it raises DriftError if the two differ.
    plan = Plan(run.path / PLAN, started_at="")
    plan.seal_part(DESIGN, build_design(study_file, providers, plan.sealed_part(DESIGN)))
    return run_study(study_file, options, stopper)


def _unknown_address_problem(run: RunFolder, journal: JournalReader, address: str) -> Problem:
    question_addresses = [
        journaled_address
        for journaled_address in journal.list_addresses()
        if "/ask" in journaled_address or journaled_address.startswith("ask")
    ]
    guess = closest_name(address, question_addresses) or next(iter(question_addresses), "")
    hint = "folkmoot show RUN ID --addresses lists them"
    return Problem(
        f"{run.path}: no question was asked at {address}",
        hint=f"{hint}; did you mean {guess}?" if guess else hint,
    )


def _build_reply(
    run: RunFolder, study: Study, entry: JournalEntry, address: str, words: str
) -> str:
    # The new text (`words`) replaces the old utterance in the raw reply. Raises InputError if
    # `address` does not name exactly one utterance, or if its place in the reply is unknown.
    if not _is_structured(entry.reply):
        return words
    if _is_structured(words):
        return words
    utterances = _read_utterances(run, address)
    if len(utterances) > 1:
        hint = f"name one of them: {', '.join(utterances)}"
        raise InputError(
            Problem(
                f"{entry.address}: this reply contains utterances of several speakers", hint=hint
            )
        )
    value = read_whole_json(entry.reply, repair=True)
    names = ", ".join(value) if isinstance(value, Mapping) else "a list"
    hint = f"give the whole reply as JSON ({names})"
    # The protocol may have shortened or corrected the utterance. It is then no string of the reply,
    # and the researcher has to give the whole JSON.
    if not (places := _find_places(study, next(iter(utterances.values()), None), value)):
        raise InputError(
            Problem(f"{entry.address}: the reply is JSON and contains no utterance", hint=hint)
        )
    # Another text of the reply that is equal may be of another speaker, or private.
    if len(places) > 1:
        message = (
            f"the reply contains these words {len(places)} times, and which are meant is unknown"
        )
        raise InputError(Problem(f"{address}: {message}", hint=hint))
    return json.dumps(_replace_at(value, places[0], words), ensure_ascii=False)


def _is_structured(reply: str) -> bool:
    return isinstance(read_whole_json(reply, repair=True), (dict, list))


def _read_utterances(run: RunFolder, address: str) -> dict[str, UtteranceInReply]:
    # The result maps utterance ids to utterances. If `address` is itself an utterance id, the
    # result holds only this utterance.
    if not run.has_table(UTTERANCES):
        return {}
    reply_address, _, _ = address.partition("#")
    columns = ("utterance_id", "speaker_id", "speaker_name", "text")
    rows = run.scan_table(UTTERANCES).filter(address=reply_address).select(columns).collect()
    utterances: dict[str, UtteranceInReply] = {}
    earlier: Counter[str] = Counter()
    for utterance_id, speaker_id, speaker_name, text in rows.iter_rows():
        part = utterance_id.partition("#")[2]
        if text:
            utterances[utterance_id] = UtteranceInReply(
                part, speaker_id, speaker_name, text, earlier[speaker_id]
            )
        earlier[speaker_id] += 1
    if address in utterances or "#" in address:
        return {key: value for key, value in utterances.items() if key == address}
    return utterances


def _find_places(
    study: Study, utterance: UtteranceInReply | None, reply: object
) -> list[PlaceInReply]:
    # The places where the utterance may be in the reply. Several if the study type does not know
    # the place, and the reply contains the same words more than once.
    if utterance is None:
        return []
    places = [place for place, text in _texts_of(reply) if text.strip() == utterance.text.strip()]
    place = study.utterance_place(utterance, reply)
    return [place] if place in places else places


def _texts_of(value: object, place: PlaceInReply = ()) -> Iterator[tuple[PlaceInReply, str]]:
    # Each string of a JSON value, with its place.
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_of(item, (*place, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _texts_of(item, (*place, position))


def _replace_at(value: object, place: PlaceInReply, words: str) -> object:
    if not place:
        return words
    first, *rest = place
    if isinstance(value, Mapping):
        return {
            key: _replace_at(item, tuple(rest), words) if key == first else item
            for key, item in value.items()
        }
    assert isinstance(value, list)
    return [
        _replace_at(item, tuple(rest), words) if position == first else item
        for position, item in enumerate(value)
    ]
