"""The files of a run in the file format of the source study."""

# Each discussion has seven JSON files. Further files compare the levels and sum up the calls. All
# of them are computed from the tables, so they can be written again. Logs are written during a
# discussion. Their times and token counts come from the journal, so a replay writes the same log.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import Scope
from folkmoot.hints import count_words, shorten
from folkmoot.kit.calls import USAGE_FIELDS, JournalReader, calls_within
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.calls import Call
from folkmoot.studies.town_hall.answers.options import INTERACTIONS
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Discussion, Round
from folkmoot.studies.town_hall.measures import (
    Json,
    Tables,
    compare_groups,
    compare_levels,
    final_consensus,
    find_vulnerable,
    measure,
    measure_survival,
    read_answers,
    read_concerns,
)
from folkmoot.studies.town_hall.participants import Resident
from folkmoot.studies.town_hall.quality import COUNT_COLUMNS, quality_of_run, total_quality
from folkmoot.studies.town_hall.recording import interaction_levels
from folkmoot.studies.town_hall.tables import (
    SPECTRUM,
    TABLES,
    OfDiscussion,
)

# In the order in which `discussion_files` builds their contents.
FILES = (
    "discussion_log",
    "reflection_log",
    "metrics_summary",
    "vulnerable_tracking",
    "reaction_spectrum",
    "voting_results",
    "satisfaction",
)


def derived_files(run: RunFolder, journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield the path and content of each file that is computed from the tables.

    Paths are relative to the run folder.
    """
    # One discussion at a time, so that memory does not grow with the number of sets.
    for discussion in read_discussions(run):
        for name, content in discussion_files(discussion).items():
            yield f"{discussion.id}/{name}.json", discussion.head | content
    yield "levels.json", compare_levels(run)
    yield "quality.json", quality_of_run(run)
    yield "logs/summary.json", summarise_calls(run, journal)


@dataclass(frozen=True)
class StoredDiscussion:
    """The recorded rows of one discussion."""

    id: str
    # The number of the set. A set is a group of residents that all levels share.
    set: int
    level: str
    config: TownHallConfig
    switches: Json
    tables: Tables
    # The residents of this set.
    residents: Sequence[Json]
    # Round → number of calls of the shared session.
    calls: dict[int, int]

    @property
    def head(self) -> Json:
        """The fields at the start of each file."""
        return {"discussion_id": self.id, "set": self.set, "level": self.level}


def read_discussions(run: RunFolder) -> Iterator[StoredDiscussion]:
    """Yield the discussions of a run in order."""
    config = run.read_settings(TownHallConfig)
    levels = run.plan["sealed"]["discussions"]["data"]["levels"]
    # Read and partition each table once, because a run may have hundreds of discussions.
    names = [row.table for row in TABLES if "discussion_id" in row.columns()]
    partitions = {
        name: run.read_table(name).partition_by("discussion_id", as_dict=True) for name in names
    }
    empty = {name: run.scan_table(name).head(0).collect() for name in names}
    residents = run.read_table("residents")
    calls = _calls_of_sessions(run)
    for discussion_id, set_number, level in run.rows(
        "discussions", "discussion_id", "set", "level"
    ):
        # Earlier versions wrote these files during the run and had no table `typed_answers`.
        if (discussion_id,) not in partitions["typed_answers"]:
            continue
        yield StoredDiscussion(
            discussion_id,
            set_number,
            level,
            config,
            levels[level],
            {name: partitions[name].get((discussion_id,), empty[name]) for name in names},
            residents.filter(set=set_number).drop("set").to_dicts(),
            calls.get(discussion_id, {}),
        )


def _calls_of_sessions(run: RunFolder) -> dict[str, dict[int, int]]:
    # Discussion id → round → number of calls, if one model answers for all residents.
    address_groups = pl.col("scope").str.extract_groups(r"^(?<discussion>[^/]+)/round(?<round>\d+)")
    session_answers = (
        run.scan_table("answers")
        .filter(pl.col("speaker_id") == "session")
        .select(place=address_groups)
    )
    counts = (
        session_answers.unnest("place").drop_nulls().group_by("discussion", "round").len().collect()
    )
    calls_by_discussion: dict[str, dict[int, int]] = {}
    for discussion, number, calls in counts.iter_rows():
        calls_by_discussion.setdefault(discussion, {})[int(number)] = calls
    return calls_by_discussion


def discussion_files(discussion: StoredDiscussion) -> dict[str, Json]:
    """Return a map from file name to content for the files of one discussion.

    The file names have no folder and no extension.
    """
    groups = compare_groups(discussion.tables)
    outcome = final_consensus(discussion.tables, groups)
    contents = (
        _discussion_log(discussion),
        _reflection_log(discussion),
        {
            **groups,
            "final_consensus": outcome,
            "agents": _agent_measures(discussion.tables),
            "quality": _quality_data(discussion),
        },
        _tracking_data(discussion.tables),
        _spectrum_data(discussion, groups),
        _voting_data(discussion.tables, outcome),
        _satisfaction_data(discussion.tables, groups),
    )
    return dict(zip(FILES, contents, strict=True))


def _discussion_log(discussion: StoredDiscussion) -> Json:
    tables = discussion.tables
    # The first round has one row per resident, with the model of the seat.
    first = tables["rounds"].filter(round=1)
    first = first.join(tables["portraits"], on="agent_id", maintain_order="left")
    residents = {resident["id"]: resident for resident in discussion.residents}
    portrait_columns = ("label", "is_vulnerable", "vulnerable_type")
    statement_rows = tables["utterances"].filter(pl.col("stage") == "speak", "public").sort("turn")
    thoughts, statements, moderations = (
        {
            (number, resident_id): answer
            for number, resident_id, answer in read_answers(tables, stage)
        }
        for stage in ("think", "speak", "moderate")
    )
    return {
        "topic": discussion.config.topic.model_dump(exclude={"matters"}),
        "switches": discussion.switches,
        "residents": [
            Resident(
                **residents[row["agent_id"]] | {name: row[name] for name in portrait_columns}
            ).to_json()
            | {"seat_model": row["seat_model"]}
            for row in first.iter_rows(named=True)
        ],
        "rounds": [
            {
                "round": number,
                "speaking_order": statement_rows.filter(round=number)["speaker_id"].to_list(),
                "calls_of_shared_session": discussion.calls.get(number),
                "turns": [
                    {
                        "agent_id": resident_id,
                        "thinking": thoughts.get((number, resident_id)),
                        "speaking": speaking,
                    }
                    for (round_number, resident_id), speaking in statements.items()
                    if round_number == number
                ],
                "moderator": moderations.get((number, "moderator")),
            }
            for number in tables["rounds"]["round"].unique(maintain_order=True)
        ],
    }


def _reflection_log(discussion: StoredDiscussion) -> Json:
    rounds: dict[int | None, list[Json]] = {}
    for number, resident_id, reflection in read_answers(discussion.tables, "reflect"):
        rounds.setdefault(number, []).append({"agent_id": resident_id, **reflection})
    return {
        "rounds": [
            {"round": number, "reflections": reflections} for number, reflections in rounds.items()
        ]
    }


def _quality_data(discussion: StoredDiscussion) -> Json:
    counts = total_quality(discussion.tables["quality"].select(COUNT_COLUMNS).iter_rows())
    # Both are true or false for one discussion. Rows hold them as counts of 0 or 1.
    flags = {name: bool(counts[name]) for name in ("ballot_empty", "consensus_unread")}
    calls = {str(number): count for number, count in sorted(discussion.calls.items())}
    return {**counts, **flags, "calls_by_round": calls}


def _survival_data(tables: Tables) -> dict[str, Json]:
    return {
        row["agent_id"]: {
            "agent_id": row["agent_id"],
            "citations_by_round": {
                str(number): count
                for number, count in zip(row["rounds"], row["citations"], strict=True)
            },
            "rounds_cited": row["rounds_cited"],
            "survival": row["survival"],
            "survived_to_final_round": row["survived_to_final_round"],
        }
        for row in measure_survival(tables).iter_rows(named=True)
    }


def _agent_measures(tables: Tables) -> list[Json]:
    measured, survived = measure(tables, "agent_id"), _survival_data(tables)
    # A resident who responded in several rounds is listed once.
    responded: dict[str, set[str]] = {}
    for resident_id, responders in tables["rounds"].select("agent_id", "responders").iter_rows():
        responded.setdefault(resident_id, set()).update(filter(None, responders.split("|")))
    names = (
        *("interaction_count", "total_reaction_count", "positive_reaction_ratio"),
        "weighted_inclusivity_score",
    )
    return [
        {
            **row,
            **{name: measured[row["agent_id"]][name] for name in names},
            "responders": sorted(responded[row["agent_id"]]),
            "speaking_volume": measured[row["agent_id"]]["speaking_volume"],
            "opinion_survival": survived[row["agent_id"]],
        }
        for row in tables["rounds"]
        .filter(round=1)
        .select("agent_id", "is_vulnerable", "vulnerable_type")
        .iter_rows(named=True)
    ]


# Fields of a record of `vulnerable_tracking.json`, in the order of the source.
TRACKED = (
    *("total_reaction_count", "positive_reaction_count", "positive_ratio"),
    *("weighted_inclusivity_score", "avg_agree_level", "cited_as_compelling_count", "responders"),
    *("possible_reactions", "unknown_reactions", "weighted_inclusivity_score_said_aloud"),
    *("interaction_count", "interaction_types", "response_rate", "cited_as_disagreed_count"),
    *("questions_received", "speaking_volume"),
)


def _tracking_data(tables: Tables) -> Json:
    # Section 7.3 of the source defines these records.
    references = tables["references"].group_by("target", "round").agg("interaction_type")
    types_by_resident = {
        (resident_id, number): list(interaction_types)
        for resident_id, number, interaction_types in references.iter_rows()
    }
    tracked: dict[bool, list[Json]] = {True: [], False: []}
    for row in tables["rounds"].sort("agent_id", maintain_order=True).iter_rows(named=True):
        interaction_types = types_by_resident.get((row["agent_id"], row["round"]), [])
        row["responders"] = _split_ids(row["responders"])
        row["interaction_types"] = {kind: interaction_types.count(kind) for kind in INTERACTIONS}
        tracked[row["is_vulnerable"]].append(
            {
                "agent_id": row["agent_id"],
                "round": row["round"],
                "reaction_spectrum": {name: row[f"reactions_{name}"] for name in SPECTRUM},
                **{name: row[name] for name in TRACKED},
            }
        )
    vulnerable = find_vulnerable(tables)
    survived = [
        survival
        for resident_id, survival in _survival_data(tables).items()
        if resident_id in vulnerable
    ]
    return {
        "vulnerable": tracked[True],
        "opinion_survival": survived,
        "general": tracked[False],
    }


def _split_ids(joined: str) -> list[str]:
    return joined.split("|") if joined else []


def _spectrum_data(discussion: StoredDiscussion, groups: dict[str, Json]) -> Json:
    names = (
        *("reaction_spectrum", "total_possible_reactions", "total_reaction_count"),
        *("positive_reaction_count", "positive_reaction_ratio", "weighted_inclusivity_score"),
    )
    # The file lists reactions to vulnerable residents only. The table `reactions` has all of them.
    to_vulnerable = discussion.tables["reactions"].filter("target_vulnerable")
    reactions = to_vulnerable.select(
        *("round", "speaker", "target", "reaction_level", "reaction", "interaction_types")
    )
    return {
        "scale": {str(level): name for level, name in enumerate(SPECTRUM)},
        "interaction_levels": interaction_levels(discussion.config),
        "several_references": discussion.config.repeated_reaction,
        **{
            group: {name: measures[name] for name in names if name in measures}
            for group, measures in groups.items()
        },
        "reactions": [
            {**row, "interaction_types": _split_ids(row["interaction_types"])}
            for row in reactions.rename({"reaction_level": "level"}).iter_rows(named=True)
        ],
    }


def _voting_data(tables: Tables, outcome: Json) -> Json:
    vulnerable = find_vulnerable(tables)
    planned = [item for _, _, answer in read_answers(tables, "plan") for item in answer["items"]]
    # A discussion has exactly one closing text, also if it could not be read.
    closing = read_answers(tables, "consensus")[-1][2]
    items = tables["items"].drop(OfDiscussion.columns()).to_dicts()
    votes: dict[str, list[Json]] = {}
    for vote in tables["votes"].iter_rows(named=True):
        votes.setdefault(vote["agent_id"], []).append(vote)
    return {
        "rule": "an item passes with more yes than no; a tie fails; votes that were declined or "
        "could not be read do not count; an item without a yes or no has no outcome",
        "items": [
            {
                "item_id": item.pop("item_id"),
                "proposal": item.pop("text"),
                "reasoning": planned_item["reasoning"] or "",
                "originating_residents": _split_ids(item.pop("origin")),
                **item,
            }
            for item, planned_item in zip(items, planned, strict=True)
        ],
        "ballots": [
            {
                "agent_id": resident_id,
                "votes": [
                    {
                        "item_id": vote["item_id"],
                        "vote": vote["vote"],
                        "missing": vote["missing"],
                        "reason": ballot["reasons"].get(vote["item_id"]),
                    }
                    for vote in votes.get(resident_id, ())
                ],
                **_parse_error(ballot),
            }
            for _, resident_id, ballot in read_answers(tables, "vote")
        ],
        "final_consensus": {
            "text": closing["consensus"] or "",
            "concerns_reflected": [
                concern | {"is_vulnerable": concern["resident"] in vulnerable}
                for concern in read_concerns(tables)
            ],
            **_parse_error(closing),
        },
        "measures": outcome,
    }


def _parse_error(answer: Json) -> Json:
    return {name: value for name, value in answer.items() if name == "_parse_error"}


def _satisfaction_data(tables: Tables, groups: dict[str, Json]) -> Json:
    names = ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    return {
        "agents": tables["satisfaction"].drop(OfDiscussion.columns()).to_dicts(),
        **{group: {name: measures[name] for name in names} for group, measures in groups.items()},
    }


def summarise_calls(run: RunFolder, journal: JournalReader) -> dict[str, object]:
    """Return totals of the calls of a run: one total for each discussion and one for each model."""
    # Re-asks and missing answers come from the table `answers`. Times, tokens and cost come from
    # the journal and include retries.
    call_rows = [
        {"discussion": name, **call}
        for name in run.read_table("discussions")["discussion_id"]
        for call in calls_within(journal, name)
    ]
    if not call_rows:
        return {"discussions": {}, "models": {}}
    answers = run.read_table("answers").select("address", "reasks", "missing", asked=True)
    # Only the first try of an answer matches its address, so joined counts are not doubled.
    calls = pl.DataFrame(call_rows, infer_schema_length=None).join(
        answers, on="address", how="left", maintain_order="left"
    )
    discussions = {}
    for (name,), discussion_calls in calls.partition_by("discussion", as_dict=True).items():
        start_times: list[float] = discussion_calls["at"].to_list()
        end_times: list[float] = (discussion_calls["at"] + discussion_calls["latency_s"]).to_list()
        times = {
            "began": format_timestamp(min(start_times)),
            "ended": format_timestamp(max(end_times)),
        }
        discussions[name] = {
            **_sum_calls(discussion_calls),
            **times,
            "models": _by_model(discussion_calls),
        }
    return {"discussions": discussions, "models": _by_model(calls)}


def _by_model(calls: pl.DataFrame) -> dict[str, dict[str, object]]:
    partitions = calls.sort("model", maintain_order=True).partition_by("model", as_dict=True)
    return {model: _sum_calls(model_calls) for (model,), model_calls in partitions.items()}


def _sum_calls(calls: pl.DataFrame) -> dict[str, object]:
    # A total is None if it is unknown for any call.
    is_lost = ~calls["missing"].drop_nulls().is_in([DECLINED, DROPPED])
    unknown = {name for name in USAGE_FIELDS if calls[name].has_nulls()}
    return {
        "calls": calls["asked"].count(),
        "asked_again": calls["reasks"].sum(),
        "errors": is_lost.sum(),
        **{name: None if name in unknown else round(calls[name].sum(), 6) for name in USAGE_FIELDS},
        "latency_s": round(calls["latency_s"].sum(), 3),
    }


# Log levels in ascending order.
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# Maximum length of a preview in a log, in characters.
PREVIEW_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a log."""

    level: str
    component: str
    action: str
    # Seconds since the Unix epoch.
    at: float | None
    data: Mapping[str, object] = field(default_factory=dict)
    round: int | None = None
    agent: str | None = None

    def to_json(self, discussion: Discussion) -> dict[str, object]:
        meeting = discussion.meeting
        return {
            "timestamp": format_timestamp(self.at),
            "level": self.level,
            "component": self.component,
            "action": self.action,
            "data": self.data,
            "context": {
                "set_id": meeting.set.number,
                "level": meeting.level.name,
                "discussion_id": meeting.id,
                "round": self.round,
                "agent_id": self.agent,
            },
        }

    def as_plain_line(self, discussion: Discussion) -> str:
        location = f"{discussion.meeting.id} round {self.round or '-'} {self.agent}"
        data = json.dumps(self.data)
        return f"{format_timestamp(self.at)} {self.level} {location}: {self.action} {data}"


def log_lines(discussion: Discussion) -> tuple[str, str]:
    """Return the log as JSON lines, and the errors in the log as plain text."""
    # Entries below the configured log level are left out of the JSON lines.
    levels = LOG_LEVELS[LOG_LEVELS.index(discussion.meeting.config.log_level) :]
    entries = list(log_entries(discussion))
    lines = [entry.to_json(discussion) for entry in entries if entry.level in levels]
    errors = [entry.as_plain_line(discussion) for entry in entries if entry.level == "ERROR"]
    return (
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
        "".join(f"{line}\n" for line in errors),
    )


def log_entries(discussion: Discussion) -> Iterator[Entry]:
    """Yield the entries of a discussion's log in order."""
    calls, has_full_texts = discussion.calls, discussion.meeting.config.log_texts == "full"
    before = [call for call in calls if call.stage.name == "satisfaction_before"]
    # Calls of rounds have a round number. The remaining calls come after the rounds.
    after = [call for call in calls if call.round is None and call not in before]
    yield Entry("INFO", "discussion", "discussion_started", _first_call_time(calls))
    for call in before:
        yield from _call_entries(call, has_full_texts)
    for round_ in discussion.rounds:
        number, round_calls = round_.number, [call for call in calls if call.round == round_.number]
        yield Entry(
            "INFO", "discussion", "round_started", _first_call_time(round_calls), round=number
        )
        for call in round_calls:
            yield from _call_entries(call, has_full_texts)
        yield from _round_actions(round_, _last_call_time(round_calls))
        if discussion.meeting.level.context == "separate":
            yield from _round_memories(discussion.rounds[:number], _last_call_time(round_calls))
        yield Entry("INFO", "discussion", "round_ended", _last_call_time(round_calls), round=number)
    for call in after:
        yield from _call_entries(call, has_full_texts)
    # The log is also written after each round, when the discussion has not ended.
    if discussion.after:
        outcome = {
            "items": len(discussion.items),
            "passed": sum(bool(item_row.passed) for item_row in discussion.item_outcomes),
        }
        yield Entry("INFO", "discussion", "discussion_ended", _last_call_time(calls), outcome)


def _call_entries(call: Call, full: bool) -> Iterator[Entry]:
    def build_entry(level: str, action: str, **data: object) -> Entry:
        # The three speakers that are no residents have components of the same name.
        is_leader = call.agent in ("moderator", "planner", "session")
        component = call.agent if is_leader else "resident"
        return Entry(level, component, action, reply.started_at, data, call.round, call.agent)

    # `build_entry` reads this variable when it is called, which is below this line.
    reply = call.reply
    texts = {"question_full": call.question, "response_full": reply.text} if full else {}
    yield build_entry(
        "DEBUG",
        call.stage.name,
        model=reply.model_served,
        memory_length=call.stage.memory,
        question_preview=_preview_text(call.question),
        response_preview=_preview_text(reply.text),
        latency=round(reply.latency_s, 4),
        tokens={"input": reply.usage.input_tokens, "output": reply.usage.output_tokens},
        cost_usd=reply.cost_usd,
        parse_step=call.parse_step,
        **texts,
    )
    if call.reasks:
        yield build_entry("WARNING", "asked_again", times=call.reasks)
    if call.parse_step in ("fenced", "repaired"):
        yield build_entry("WARNING", "unexpected_response", parse_step=call.parse_step)
    for repair in call.repairs:
        repair_data = {"field": repair.field, "kind": repair.kind, "was": shorten(repair.original)}
        became = shorten(repair.replacement) or None
        yield build_entry("WARNING", "repaired", **repair_data, became=became)
    if call.missing in (DECLINED, DROPPED):
        yield build_entry("WARNING", call.missing)
    elif call.minimal or call.missing:
        reason = call.missing or "unparsed"
        yield build_entry(
            "ERROR", "unreadable_answer", reason=reason, minimal_structures=call.minimal
        )


def _round_actions(round_: Round, at: float | None) -> Iterator[Entry]:
    for resident in round_.order:
        turn = round_.turns[resident]
        data = {
            "stance": turn.stance or None,
            "references": len(turn.speaking.references) if turn.has_known_references else None,
            "words": count_words(turn.speaking.full_statement),
        }
        action = "kept_silent" if turn.is_silent else "spoke"
        if turn.has_statement:
            yield Entry("INFO", "resident", action, at, data, round_.number, resident)


def _round_memories(rounds: Sequence[Round], at: float | None) -> Iterator[Entry]:
    last = rounds[-1]
    for resident in last.order:
        has_spoken = [bool(round_.turns[resident].speaking.full_statement) for round_ in rounds]
        reflection = last.reflections.get(resident)
        is_remembered = reflection is not None and not reflection.unanswered
        additions = ["own statement"] * has_spoken[-1] + ["reflection"] * is_remembered
        data = {"memory_length": sum(has_spoken) + is_remembered, "added": additions}
        yield Entry("DEBUG", "resident", "memory_changed", at, data, last.number, resident)


def _preview_text(text: str) -> str:
    # A prompt is long, and the preview holds fewer words than characters.
    return shorten(" ".join(text.split(maxsplit=PREVIEW_CHARACTERS)), PREVIEW_CHARACTERS)


def _first_call_time(calls: Iterable[Call]) -> float | None:
    return min((call.reply.started_at for call in calls), default=None)


def _last_call_time(calls: Iterable[Call]) -> float | None:
    return max((call.reply.started_at + call.reply.latency_s for call in calls), default=None)


def format_timestamp(at: float | None) -> str | None:
    """Return a time in ISO 8601 format in UTC.

    `at`: seconds since the Unix epoch.

    Returns None if `at` is None.
    """
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def keep_log(scope: Scope, discussion: Discussion) -> None:
    """Write the logs of a discussion."""
    lines, errors = log_lines(discussion)
    # The start of the run names the files, so a resumed run writes the same files again.
    file_stamp = "".join(
        character for character in scope.root.started_at[:19] if character.isalnum()
    )
    scope.write_text(f"logs/{discussion.meeting.id}_{file_stamp}.jsonl", lines)
    scope.write_text(f"logs/{discussion.meeting.id}_{file_stamp}_errors.log", errors)
