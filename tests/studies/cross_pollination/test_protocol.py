"""The nine phases with a scripted model: requests, files and the end of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Run
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options, run_study
from folkmoot.errors import BudgetReachedError, InputError, RefusedError
from folkmoot.measures.reply_checks import check_answers
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.findings import compute_findings
from tests.shown import render_run_text
from tests.sweeps import sample_daily

PARKS, JOBS, SAFETY = OPTIONS = ("Park improvements", "Job training", "Street safety")
TRANSCRIPT_FIELDS = ("clarification_transcript", "adversarial_transcript")
SETTINGS: dict[str, Any] = {
    "pilot_id": "trial",
    "topic": {"description": "Where shall the money go?", "options": list(OPTIONS)},
    "participants_per_condition": 6,
    "min_responses_for_threshold": 10,
    "personas": {"source": "quota"},
}


class Cast:
    """A model that replies by rules and keeps every request by address."""

    def __init__(self, **rules: Callable[[ModelRequest, str], str]) -> None:
        self.requests: dict[str, ModelRequest] = {}
        self.rules = rules

    def __call__(self, request: ModelRequest, address: str) -> str:
        self.requests[address] = request
        stage = address.split("/")[0]
        if stage in self.rules:
            return self.rules[stage](request, address)
        return self.usual(request, address)

    def usual(self, request: ModelRequest, address: str) -> str:
        system, last = request.messages[0].content, request.messages[-1].content
        if "ONLY the exact" in last:
            return OPTIONS[number(address) % 3] if address.startswith("initial") else JOBS
        if system.startswith("You are a neutral moderator") or system.startswith(
            "You are a moderator"
        ):
            return "SATISFIED" if len(request.messages) > 3 else "Why so?"
        return f"Because of reason {number(address) % 2}."

    def of(self, stage: str) -> dict[str, ModelRequest]:
        return {a: r for a, r in self.requests.items() if a.startswith(stage)}


def number(address: str) -> int:
    return (
        int(next(p for p in address.split("/") if p.startswith("p_"))[2:]) if "p_" in address else 0
    )


def run_scripted(folder: Path, cast: Cast, **changes: Any) -> Run:
    settings = {**SETTINGS, **changes}
    return folkmoot.run(
        "cross_pollination", settings, out=folder / "run", provider=ScriptedProvider(cast)
    )


def read_participants(run: Run, condition: str = "") -> list[dict[str, Any]]:
    found = run.folder.read_json("participants.json")["participants"]
    return [p for p in found if p["condition"].startswith(condition)]


def join_messages(request: ModelRequest) -> str:
    return "\n".join(m.content for m in request.messages)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Cast]:
    """A run without further settings and its model with all requests. Tests only read it."""
    cast = Cast()
    return run_scripted(tmp_path_factory.mktemp("plain"), cast), cast


def test_each_condition_goes_through_its_own_phases(plain_run: tuple[Run, Cast]) -> None:
    done, cast = plain_run
    arms = {p["participant_id"]: p["condition"] for p in read_participants(done)}
    assert sorted(arms.values()).count("acp") == 6 and len(set(arms.values())) == 4

    def stages(who: str) -> set[str]:
        return {a.split("/")[0] for a in cast.requests if f"/{who}/" in a}

    expected = {
        "simple_voting": {"initial_vote"},
        "simple_passive": {"initial_vote", "cross_pollination"},
        "clarified_passive": {"initial_vote", "clarification", "cross_pollination"},
        "acp": {"initial_vote", "clarification", "adversarial_dialogue"},
    }
    for who, condition in arms.items():
        assert stages(who) == expected[condition]


def test_files_fields_and_keys_are_those_of_the_source(plain_run: tuple[Run, Cast]) -> None:
    done, _ = plain_run
    record = read_participants(done, "acp")[0]
    assert {
        *("participant_id", "condition", "base_persona", "demographics", "enriched_persona"),
        *("initial_choice", "initial_explanation", "final_choice", "position_changed"),
        *("clarification_transcript", "adversarial_transcript", "opposition_view"),
        *("cross_pollination_content", "individual_summary", "individual_summary_embedding"),
        *("cluster_id", "status", "error_message"),
    } == set(record)
    assert set(record["demographics"]) == {
        *("age", "sex", "education", "income", "location_type", "political_leaning"),
        "occupation",
    }
    assert record["clarification_transcript"] == [
        {"role": "moderator", "content": "Why so?"},
        {"role": "participant", "content": record["clarification_transcript"][1]["content"]},
    ]
    assert record["cluster_id"].startswith(f"{record['initial_choice']}_cluster_")
    assert record["cross_pollination_content"].count("## ") == 3

    cluster = done.folder.read_json("cluster_embeddings.json")["clusters"][0]
    assert set(cluster) == {
        *("cluster_id", "option", "description", "embedding", "member_count", "member_ids")
    }
    summary = done.folder.read_json("summary.json")
    assert list(summary["by_condition"]) == [
        *("simple_voting", "simple_passive", "clarified_passive", "acp")
    ]
    assert set(summary["by_condition"]["acp"]) == {
        *("total", "completed", "failed", "position_changed", "position_changed_rate"),
        "skipped",  # ours
        *("initial_vote_distribution", "final_vote_distribution"),
    }
    assert summary["by_condition"]["simple_voting"]["final_vote_distribution"] is None
    assert summary["by_condition"]["simple_voting"]["position_changed"] is None
    checkpoint = done.folder.read_json("checkpoint.json")
    assert checkpoint["last_completed_phase"] == 9
    assert set(checkpoint) == {
        *("last_completed_phase", "terminated_early", "termination_reason", "clusters"),
        *("clusters_by_option", "checkpoint_time"),
    }
    embedded = done.folder.read_json("individual_embeddings.json")["embeddings"]
    assert set(embedded) == {
        p["participant_id"]
        for p in read_participants(done)
        if p["condition"] in ("clarified_passive", "acp")
    }
    assert embedded[record["participant_id"]] == record["individual_summary_embedding"]
    assert sum(x * x for x in record["individual_summary_embedding"]) == pytest.approx(1)


def test_the_settings_are_kept_in_a_file_that_runs_again(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(), revote=True)
    again = folkmoot.run(
        done.path / "config.yaml", out=tmp_path / "again", provider=ScriptedProvider(Cast())
    )
    assert again.table("participants").equals(done.table("participants"))


def test_accepted_changes_are_what_the_results_go_by(tmp_path: Path) -> None:
    run_scripted(tmp_path, Cast())
    renamed = (PARKS, JOBS, "Safer streets")
    settings = {**SETTINGS, "topic": {"description": "Where to?", "options": list(renamed)}}

    def answer(request: ModelRequest, address: str) -> str:
        said = Cast().usual(request, address)
        return renamed[2] if said == SAFETY else said

    again = folkmoot.run(
        *("cross_pollination", settings),
        out=tmp_path / "run",
        provider=ScriptedProvider(answer),
        accept_changes=True,
    )
    votes = again.folder.read_json("summary.json")["by_condition"]["acp"][
        "initial_vote_distribution"
    ]
    assert list(votes) == list(renamed) == again.folder.config["topic"]["options"]
    assert any(renamed[2] in str(f.grid) for f in again.findings)


def test_the_manifest_says_which_roles_a_model_played(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(), models={"moderator": "openai/gpt-4o"})
    roles = {m["asked"]: m["roles"] for m in done.manifest["models"]}
    assert roles["synthetic"] == ["participant", "summarizer"]
    assert roles["openai/gpt-4o"] == ["moderator"]


def delay_last_participants(address: str) -> float:
    """Return a latency for the last participants of a stage."""
    return 0.05 if number(address) > 20 else 0.0


def test_no_phase_starts_before_the_one_it_rests_on_has_ended(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoint.json"
    seen: dict[str, set[int]] = {}

    def watched(request: ModelRequest, address: str) -> str:
        stands = json.loads(checkpoint.read_text()) if checkpoint.exists() else {}
        phase = int(stands.get("last_completed_phase", 0))
        seen.setdefault(address.split("/")[0], set()).add(phase)
        return Cast().usual(request, address)

    settings = {**SETTINGS, "revote": True}
    model = ScriptedProvider(watched, latency=delay_last_participants)
    folkmoot.run("cross_pollination", settings, out=tmp_path / "run", provider=model)
    # Final votes rest on the same five phases, whether those who cast them read, argue or neither.
    assert seen == {
        "initial_vote": {0},
        "clarification": {2},
        "summaries": {3},
        "adversarial_dialogue": {5},
        "cross_pollination": {5},
        "second_vote": {5},
    }
    assert json.loads(checkpoint.read_text())["last_completed_phase"] == 9


def test_dialogues_the_longest_chains_start_before_the_other_final_votes(tmp_path: Path) -> None:
    cast = Cast()
    run_scripted(tmp_path, cast, revote=True, concurrency=1)
    stages = [a.split("/")[0] for a in cast.requests]
    first = [stages.index(s) for s in ("adversarial_dialogue", "cross_pollination", "second_vote")]
    assert first == sorted(first)


def test_a_second_vote_is_a_stage_only_with_a_revote(
    plain_run: tuple[Run, Cast], tmp_path: Path
) -> None:
    cast = Cast()
    revoted = run_scripted(tmp_path, cast, revote=True), cast
    for (done, asked), revote in ((plain_run, False), (revoted, True)):
        assert ("second_vote: started" in done.folder.text("run.log")) is revote
        assert len(asked.of("second_vote")) == 6 * revote
        final = {p["final_choice"] for p in read_participants(done, "simple_voting")}
        assert final == ({JOBS} if revote else {None})


def test_own_prompts_are_sent(tmp_path: Path) -> None:
    (tmp_path / "initial_vote.md").write_text(
        "Vote now: {{ options | join(' or ') }}. Reply with ONLY the exact text."
    )
    cast = Cast()
    run_scripted(tmp_path, cast, prompts=str(tmp_path))
    asked = {r.messages[-1].content for r in cast.of("initial_vote").values()}
    assert asked == {f"Vote now: {' or '.join(OPTIONS)}. Reply with ONLY the exact text."}


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a b", "", "x" * 101])
def test_a_pilot_id_that_names_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="must be a folder name"):
        run_scripted(tmp_path, Cast(), pilot_id=name)
    assert not (tmp_path / "run").exists()


def test_show_lists_participants_and_prints_a_whole_conversation(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(), revote=True)
    listed = render_run_text(done.folder)
    assert all(
        f"\n{p['participant_id']}  condition {p['condition']}" in listed
        for p in read_participants(done)
    )
    p = read_participants(done, "acp")[0]
    page = render_run_text(done.folder, p["participant_id"])
    said = [t["content"] for key in TRANSCRIPT_FIELDS for t in p[key]]
    assert len(said) == 4
    for part in (
        *(p["enriched_persona"], p["initial_choice"], p["opposition_view"], p["final_choice"]),
        *(p["individual_summary"], p["cluster_id"], p["demographics"]["occupation"], *said),
    ):
        assert part in page
    with pytest.raises(InputError, match=r"p_9999 is not in this run .*p_0001"):
        render_run_text(done.folder, "p_9999")


def test_rates_follow_from_the_votes(plain_run: tuple[Run, Cast]) -> None:
    done, _ = plain_run  # all participants end at JOBS
    for condition, row in done.folder.read_json("summary.json")["by_condition"].items():
        own = read_participants(done, condition)
        if condition == "simple_voting":
            continue
        changed = sum(p["initial_choice"] != JOBS for p in own)
        assert row["position_changed"] == changed
        assert row["position_changed_rate"] == pytest.approx(changed / len(own))
        assert row["final_vote_distribution"] == {PARKS: 0, JOBS: len(own), SAFETY: 0}


def test_dialogues_end_at_the_maximum_and_the_participant_hears_it_all(tmp_path: Path) -> None:
    def never_satisfied(request: ModelRequest, address: str) -> str:
        if "ONLY the exact" in request.messages[-1].content:
            return SAFETY
        return f"turn {address[-1]}"

    cast = Cast(clarification=never_satisfied, adversarial_dialogue=never_satisfied)
    done = run_scripted(tmp_path, cast, max_clarification_exchanges=3, max_socratic_exchanges=2)
    own = read_participants(done, "acp")[0]
    assert len(own["clarification_transcript"]) == 6
    assert len(own["adversarial_transcript"]) == 4
    vote = cast.requests[f"adversarial_dialogue/{own['participant_id']}/ask4"]
    for turn in own["adversarial_transcript"]:
        assert turn["content"] in join_messages(vote)


def test_the_moderator_argues_for_the_opposing_view_with_what_was_shown(
    plain_run: tuple[Run, Cast],
) -> None:
    done, cast = plain_run
    for p in read_participants(done, "acp"):
        assert p["opposition_view"] not in (None, p["initial_choice"])
        system = cast.requests[f"adversarial_dialogue/{p['participant_id']}/ask0"].messages[0]
        assert f'Present the opposing view: "{p["opposition_view"]}"' in system.content
        assert p["cross_pollination_content"] in system.content


def test_readers_see_every_description_and_simple_voters_none(tmp_path: Path) -> None:
    cast = Cast()
    done = run_scripted(tmp_path, cast, revote=True, extra_conditions=["names_only"])
    descriptions = [
        c["description"] for c in done.folder.read_json("cluster_embeddings.json")["clusters"]
    ]
    for address, request in cast.of("cross_pollination/p_").items():
        assert all(d in join_messages(request) for d in descriptions), address
    again = cast.of("second_vote")
    assert len(again) == 12
    assert not any(d in join_messages(r) for d in descriptions for r in again.values())


def test_personas_of_others_are_in_no_prompt(
    plain_run: tuple[Run, Cast],
) -> None:
    done, cast = plain_run
    personas = {p["participant_id"]: p["enriched_persona"] for p in read_participants(done)}
    for address, request in cast.requests.items():
        for who, persona in personas.items():
            assert persona not in join_messages(request) or f"/{who}/" in address


def test_agreement_above_the_threshold_ends_the_study_with_all_files(tmp_path: Path) -> None:
    cast = Cast(initial_vote=lambda r, a: SAFETY if number(a) % 12 == 0 else PARKS)
    done = run_scripted(tmp_path, cast)  # 22 of 24
    summary = done.folder.read_json("summary.json")
    assert summary["terminated_early"] and "91.7%" in summary["termination_reason"]
    assert {p["status"] for p in read_participants(done, "acp")} == {"skipped"}
    assert {p["status"] for p in read_participants(done, "simple_voting")} == {"complete"}
    for name in ("cluster_embeddings", "individual_embeddings", "participants", "checkpoint"):
        assert done.folder.has_file(f"{name}.json")
    assert {a.split("/")[0] for a in cast.requests} == {"initial_vote"}


def test_after_an_early_end_the_reason_of_every_missing_vote_is_that_end(tmp_path: Path) -> None:
    cast = Cast(initial_vote=lambda r, a: SAFETY if number(a) % 12 == 0 else PARKS)
    done = run_scripted(tmp_path, cast, revote=True)
    (attrition,) = (finding for finding in done.findings if finding.key == "attrition")
    rows = [dict(zip(attrition.grid.columns, row, strict=True)) for row in attrition.grid.rows]
    assert len(rows) == 4
    for row in rows:
        assert row["no_final_vote"] == row["participants"]
        assert str(row["reasons"]).startswith("terminated early: 91.7% of 24 first votes")


def test_a_cluster_without_a_description_is_kept_and_not_shown(
    plain_run: tuple[Run, Cast], tmp_path: Path
) -> None:
    def declining(request: ModelRequest, address: str) -> str:
        if f"/{PARKS}_cluster_0/" in address:
            raise RefusedError("no", reason="content_filter")
        return Cast().usual(request, address)

    cast = Cast(summaries=declining)
    done = run_scripted(tmp_path, cast)
    kept = {c["cluster_id"]: c for c in done.table("clusters").to_dicts()}
    lost = kept[f"{PARKS}_cluster_0"]
    assert lost["description"] == "" and lost["member_count"] == len(json.loads(lost["member_ids"]))
    filed = done.folder.read_json("cluster_embeddings.json")["clusters"]
    assert [c["embedding"] is None for c in filed] == [c["description"] == "" for c in filed]
    for p in read_participants(done):
        assert (p["cluster_id"] in kept) == (p["individual_summary"] is not None)
    assert f"no description of {PARKS}_cluster_0" in done.folder.text("run.log")
    for content in {p["cross_pollination_content"] for p in read_participants(done)} - {None}:
        assert content.count("Position ") == sum(c["description"] != "" for c in filed)
    # The first finding names a cluster that no reader was shown.
    headline, *_ = compute_findings(plain_run[0].folder)
    assert "shown to no reader" not in " ".join(headline.alarms)
    headline, *_ = compute_findings(done.folder)
    told = f"no description of 1 cluster: {PARKS}_cluster_0."
    assert told in " ".join(headline.alarms)


STAGES = ("initial_vote", "clarification", "summaries", "adversarial_dialogue", "cross_pollination")


# Daily an end before the summaries and one within them.
@pytest.mark.parametrize(
    "stage",
    sample_daily(STAGES, daily=("initial_vote", "summaries"), part="sweeps"),
)
def test_findings_can_be_computed_after_any_failed_stage(tmp_path: Path, stage: str) -> None:
    def refusing(_request: ModelRequest, _address: str) -> str:
        raise RefusedError("no", reason="content_filter")

    done = run_scripted(tmp_path, Cast(**{stage: refusing}), opposition_method="llm_judge")
    assert compute_findings(done.folder)


def test_findings_of_a_run_that_has_hardly_started(tmp_path: Path) -> None:
    with pytest.raises(BudgetReachedError):
        run_scripted(tmp_path, Cast(), budget_calls=3)
    assert compute_findings(RunFolder(tmp_path / "run"))


def test_below_the_minimum_of_responses_nothing_ends(tmp_path: Path) -> None:
    def unanimous(_request: ModelRequest, _address: str) -> str:
        return PARKS

    done = run_scripted(tmp_path, Cast(initial_vote=unanimous), min_responses_for_threshold=25)
    assert not done.folder.read_json("summary.json")["terminated_early"]
    # With a single option there is no opposing view: participants are skipped with the reason.
    assert {p["status"] for p in read_participants(done, "acp")} == {"skipped"}
    assert "no opposing view" in read_participants(done, "acp")[0]["error_message"]


def test_failures_are_marked_with_their_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    def refusing(request: ModelRequest, address: str) -> str:
        if number(address) == 5:
            raise RefusedError("no", reason="content_filter")
        return Cast().usual(request, address) if number(address) != 6 else "I like them all"

    done = run_scripted(tmp_path, Cast(initial_vote=refusing))
    by_id = {p["participant_id"]: p for p in read_participants(done)}
    assert by_id["p_0005"]["status"] == by_id["p_0006"]["status"] == "failed"
    assert "content_filter" in by_id["p_0005"]["error_message"]
    assert "unparsed" in by_id["p_0006"]["error_message"]
    assert sum(p["status"] == "complete" for p in by_id.values()) == 22
    counted = done.folder.read_json("summary.json")["by_condition"].values()
    assert sum(row["failed"] for row in counted) == 2


def test_a_declined_vote_is_recorded_and_reported_as_declined(tmp_path: Path) -> None:
    def declining(request: ModelRequest, address: str) -> str:
        if number(address) not in (5, 6):
            return Cast().usual(request, address)
        return "I'd rather not vote." if request.schema is None else '{"stated": "declined"}'

    done = run_scripted(tmp_path, Cast(initial_vote=declining))
    by_id = {p["participant_id"]: p for p in read_participants(done)}
    for record in (by_id["p_0005"], by_id["p_0006"]):
        assert record["initial_choice"] is record["final_choice"] is None
        assert (record["status"], record["error_message"]) == ("skipped", "initial vote: declined")
    counted = done.folder.read_json("summary.json")["by_condition"].values()
    assert sum(row["skipped"] for row in counted) == 2
    assert sum(row["failed"] for row in counted) == 0
    assert sum(sum(row["initial_vote_distribution"].values()) for row in counted) == 22
    reasons = done.table("participants")["missing_answers"].drop_nulls().to_list()
    assert reasons == ['{"initial_choice": "declined"}'] * 2
    says = next(f.says for f in done.findings if f.key == "votes")
    assert says.endswith("Missing first votes: declined 2.")
    votes = done.table("answers").filter(stage="initial_vote")
    assert votes["missing"].drop_nulls().to_list() == ["declined"] * 2
    assert votes.filter(how="refused")["recorded"].to_list() == ["declined"] * 2
    (told,) = [c for c in check_answers(votes.to_dicts()) if c.key == "refusals"]
    assert told.verdict == "failed" and "8" in told.says and "None" not in told.says


def test_a_final_vote_for_no_option_is_null_with_its_reason(tmp_path: Path) -> None:
    ways = ("none_of_these", "declined", None)  # the last third votes for an option

    def undecided(request: ModelRequest, address: str) -> str:
        way = ways[number(address) % 3]
        if request.schema is not None:
            return json.dumps({"stated": way})
        return JOBS if way is None else "Both have their points."

    done = run_scripted(tmp_path, Cast(cross_pollination=undecided))
    readers = read_participants(done, "simple_passive")
    says = next(f.says for f in done.findings if f.key == "votes")
    for way in ("none_of_these", "declined"):
        odd = [p for p in readers if ways[number(f"/{p['participant_id']}/") % 3] == way]
        assert odd, way
        for record in odd:
            assert record["initial_choice"] and record["final_choice"] is None
            assert (record["status"], record["error_message"]) == ("skipped", f"final vote: {way}")
        assert re.search(rf"Missing final votes: [^.]*\b{way} \d", says), says
    summary = done.folder.read_json("summary.json")["by_condition"]["simple_passive"]
    skipped = sum(ways[number(f"/{p['participant_id']}/") % 3] is not None for p in readers)
    assert (summary["skipped"], summary["failed"]) == (skipped, 0)


PERCENT_OPTIONS = ("10 %", "5 %", "0 %")


def test_options_that_look_like_numbers_are_listed_by_letter(tmp_path: Path) -> None:
    def by_letter(request: ModelRequest, address: str) -> str:
        return "B" if number(address) % 2 else "I choose 0%."

    cast = Cast(initial_vote=by_letter)
    topic = {"description": "How much of it?", "options": list(PERCENT_OPTIONS)}
    done = run_scripted(tmp_path, cast, topic=topic)
    first = {p["participant_id"]: p["initial_choice"] for p in read_participants(done)}
    assert all(c == ("5 %" if int(i[2:]) % 2 else "0 %") for i, c in first.items())
    asked = next(iter(cast.of("initial_vote").values()))
    for message in asked.messages:
        assert "A. 10 %\nB. 5 %\nC. 0 %" in message.content


# The second pair of cases differs in the words of options only.
@pytest.mark.parametrize(
    "options",
    sample_daily(
        [[*PERCENT_OPTIONS], ["C++", "C", "C#"], ["5", "4", "3"], ["Plan A+", "Plan A-", "Plan A"]],
        daily=2,
        part="sweeps",
    ),
)
def test_the_embedded_respondent_votes_on_any_options(options: Any, tmp_path: Path) -> None:
    topic = {"description": "Which one?", "options": options}
    settings = {**SETTINGS, "topic": topic, "revote": True}
    settings["respondent"] = {"off_list": 0.5}
    done = folkmoot.run("cross_pollination", settings, out=tmp_path / "run", model="synthetic")
    votes = done.table("answers").filter(kind="choice")
    assert votes["missing"].null_count() == votes.height
    assert set(votes["value"]) == set(options)
    assert "clarified" in set(votes["how"])


def test_all_fail_and_the_run_still_ends_with_files(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(initial_vote=lambda r, a: "?"))
    assert done.folder.read_json("summary.json")["termination_reason"]
    assert {p["status"] for p in read_participants(done)} == {"failed"}


@pytest.mark.parametrize("method", ["embedding", "cluster_embedding", "llm_judge", "highest_voted"])
def test_the_opposing_view_is_never_the_own_choice(tmp_path: Path, method: str) -> None:
    def judge(request: ModelRequest, _address: str) -> str:
        own = next(o for o in OPTIONS if f'The participant chose: "{o}"' in join_messages(request))
        return own  # a judge who gets it wrong

    done = run_scripted(tmp_path, Cast(opposition=judge), opposition_method=method)
    assert read_participants(done, "acp")
    for p in read_participants(done, "acp"):
        assert p["opposition_view"] in OPTIONS and p["opposition_view"] != p["initial_choice"]


def test_the_judge_reads_the_individual_summary(tmp_path: Path) -> None:
    cast = Cast(opposition=lambda r, a: SAFETY)
    done = run_scripted(tmp_path, cast, opposition_method="llm_judge", judge_sample=4)
    asked = cast.of("opposition")
    for p in read_participants(done, "acp"):
        said = join_messages(asked[f"opposition/{p['participant_id']}/ask0"])
        assert f'Their reasoning: "{p["individual_summary"]}"' in said
        assert said.count("Option: ") == 4


def test_predefined_opposition_follows_the_mapping(tmp_path: Path) -> None:
    mapping = {PARKS: SAFETY, SAFETY: JOBS, JOBS: PARKS}
    done = run_scripted(
        tmp_path, Cast(), opposition_method="predefined", opposition_mapping=mapping
    )
    for p in read_participants(done, "acp"):
        assert p["opposition_view"] == mapping[p["initial_choice"]]


def test_one_participant_a_condition(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(), participants_per_condition=1)
    assert done.folder.read_json("summary.json")["total_participants"] == 4


def test_the_same_seed_draws_the_same_people_and_another_seed_others(tmp_path: Path) -> None:
    def draw_participants(name: str, seed: int) -> list[tuple[str, str]]:
        done = run_scripted(tmp_path / name, Cast(), random_seed=seed, participants_per_condition=2)
        return [(p["condition"], p["base_persona"]) for p in read_participants(done)]

    assert draw_participants("a", 1) == draw_participants("b", 1) != draw_participants("c", 2)


def test_the_vote_distribution_is_shown_when_asked_for(tmp_path: Path) -> None:
    done = run_scripted(tmp_path, Cast(), include_vote_distribution=True)
    assert (
        "## Park improvements (8 first votes, 33%)"
        in read_participants(done, "acp")[0]["cross_pollination_content"]
    )


def test_each_participant_has_a_random_order_of_options(tmp_path: Path) -> None:
    cast = Cast()
    done = run_scripted(tmp_path, cast, option_order="random", participants_per_condition=10)
    shown = {tuple(json.loads(o)) for o in done.table("answers")["options"].drop_nulls()}
    assert len(shown) == 6
    pages = {p["participant_id"]: p["cross_pollination_content"] for p in read_participants(done)}
    for row in done.table("participants").iter_rows(named=True):
        page = pages[row["participant_id"]]
        headings = [line.removeprefix("## ") for line in (page or "").splitlines() if "## " in line]
        assert not page or headings == json.loads(row["options_shown"])
        last = cast.of(f"cross_pollination/{row['participant_id']}/ask0")
        assert all(page in join_messages(request) for request in last.values())
    assert sum(page is not None for page in pages.values()) == 30
    votes = done.table("answers").filter(done.table("answers")["stage"] == "initial_vote")
    for row in votes.iter_rows(named=True):
        assert json.loads(row["options"])[row["position"] - 1] == row["value"]


ROOT = Path(__file__).parents[3]


@pytest.mark.nightly(part="scale")
def test_data_sent_to_each_machine_does_not_grow_with_the_participants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from folkmoot.engine.cluster import pickling as travel

    sizes: list[dict[str, int]] = []
    sent = travel.pickle_function

    def weighed(value: object, what: str, *fn: Any) -> bytes:
        data = sent(value, what, *fn)
        if what.startswith("map() at "):
            sizes[-1][what] = len(data)
        return data

    monkeypatch.setattr(travel, "pickle_function", weighed)
    for limit in (8, 24):
        sizes.append({})
        options = RunOptions("synthetic", tmp_path / str(limit), limit=limit)
        options = replace(options, fork_executor=travel.run_pickled_locally)
        run_study(
            load_study_with_options(ROOT / "examples/cross_pollination.yaml", options), options
        )
    few, many = sizes
    assert {"map() at summaries", "map() at opposition"} <= few.keys() == many.keys()
    grown = {stage: many[stage] - few[stage] for stage in few}
    assert max(grown.values()) < 4_096, grown  # the mean embedding of one more option is 2 KB
