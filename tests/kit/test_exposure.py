"""The exposure table is computed from the sources of prompts, not from the declared design."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Finding, Run, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.study.strict_answers import CLOSED_ANSWERS_KEY
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.exposure import (
    FOREIGN_WORDS,
    MISATTRIBUTED_WORDS,
    OWN_WORDS,
    Decision,
    ExposureRow,
    ExposureTable,
    describe_deviations,
    exposure_finding,
)
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import Source, SourcedText, join_texts, quote_value
from folkmoot.report.document.html import write_report
from folkmoot.storage.run_folder import RunFolder

# --- two groups that talk before they vote --------------------------------------------------------

GROUPS = {"here": ("ann", "bob"), "there": ("cleo", "dan")}


def label_utterances(source: Source) -> str:
    return "statements" if source.kind == "utterance" else ""


def list_group_votes(run: RunFolder) -> Iterator[Decision]:
    """Return the votes. The design shows each speaker all public texts of the group."""
    utterances = run.read_table("utterances").filter("public")
    for group, speaker_id in (
        (group, speaker_id) for group, speaker_ids in GROUPS.items() for speaker_id in speaker_ids
    ):
        ids = utterances.filter(scope=group)["utterance_id"].to_list()
        own_ids = [id for id in ids if f"/{speaker_id}/" in f"/{id}/"]
        other_ids = [id for id in ids if id not in own_ids]
        shows = {"statements": other_ids, OWN_WORDS: own_ids}
        yield Decision(
            f"{group}/{speaker_id}/vote/ask0", speaker_id, group, "vote", shows, (f"{group}/",)
        )


ShownSpeakers = Mapping[str, Sequence[str]]


async def hold_group_talks(
    session: Session[StudyConfig],
    shown: ShownSpeakers,
    private: bool = False,
    without_sources: bool = False,
) -> None:
    """All speak, then all vote. `shown` lists the speakers of the statements in each prompt."""
    utterances = {}
    for group, speaker_ids in GROUPS.items():
        for speaker_id in speaker_ids:
            scope = session.child(group, speaker_id)
            if private:
                scope.say(
                    Speaker(speaker_id),
                    await scope.ask(Speaker(speaker_id), "Think."),
                    public=False,
                )
            text = await scope.ask(Speaker(speaker_id), "Speak.")
            utterances[speaker_id] = session.child(group).say(
                Speaker(speaker_id), text, address=scope.address
            )
    for group, speaker_ids in GROUPS.items():
        for speaker_id in speaker_ids:
            texts = [
                utterances[speaker].quoted_text for speaker in shown.get(speaker_id, speaker_ids)
            ]
            prompt = join_texts("\n", map(str, texts) if without_sources else texts)
            vote_scope = session.child(group, speaker_id, "vote")
            await vote_scope.ask(
                Speaker(speaker_id), prompt, answer_type=Choice(("Yes", "No")), about="the bridge"
            )


def run_group_study(
    folder: Path,
    shown: ShownSpeakers,
    reply: str = "No.",
    decisions: Callable[[RunFolder], Iterator[Decision]] = list_group_votes,
    **settings: bool,
) -> Run:
    study = Study(
        "tables",
        "Tables",
        StudyConfig,
        partial(hold_group_talks, shown=shown, **settings),
        derived_tables=ExposureTable(decisions, label_utterances),
        tables=(ExposureRow,),
    )
    replies = ScriptedProvider(lambda _request, address: "No" if "/vote/" in address else reply)
    return folkmoot.run(study, {}, out=folder / "run", provider=replies)


def list_shown_statements(run: Run, speaker_id: str) -> dict[str, list[str]]:
    """Map each kind of text to the speakers of these texts in a participant's prompt."""
    rows = run.table("exposure").filter(pl.col("texts") > 0, participant_id=speaker_id)
    names = dict(run.folder.rows("utterances", "utterance_id", "speaker_id"))
    return {
        row["kind"]: [names[id] for id in json.loads(row["text_ids"])]
        for row in rows.iter_rows(named=True)
    }


def test_equal_one_word_texts_are_distinguished_by_speaker(tmp_path: Path) -> None:
    run = run_group_study(tmp_path, {"bob": ["ann", "bob", "cleo"], "dan": ["dan"]})
    assert list_shown_statements(run, "ann") == {OWN_WORDS: ["ann"], "statements": ["bob"]}
    assert list_shown_statements(run, "bob") == {
        OWN_WORDS: ["bob"],
        "statements": ["ann"],
        FOREIGN_WORDS: ["cleo"],
    }
    assert list_shown_statements(run, "dan") == {OWN_WORDS: ["dan"]}
    assert set(describe_deviations(run.folder)) == {
        "here, vote: words from elsewhere: excluded by the design, present in 1 of 2 prompts.",
        "there, vote: statements: required by the design, missing from 1 of 2 prompts.",
    }


def test_a_decision_without_texts_has_a_row_and_counts_in_shares(tmp_path: Path) -> None:
    """The design leaves all kinds open. One of two participants of each group hears the other."""

    def list_open_votes(run: RunFolder) -> Iterator[Decision]:
        for vote in list_group_votes(run):
            yield replace(vote, expected_kinds={})

    shown = {"ann": ["bob"], "bob": [], "cleo": ["dan"], "dan": []}
    run = run_group_study(tmp_path, shown, decisions=list_open_votes)
    rows = run.table("exposure").rows_by_key("participant_id", named=True)
    assert {who: [row["kind"] for row in own] for who, own in rows.items()} == {
        "ann": ["statements"],
        "bob": [""],
        "cleo": ["statements"],
        "dan": [""],
    }
    finding = exposure_finding(run.folder)
    assert finding is not None and finding.grid.columns == ("condition", "decision", "statements")
    assert [row[-1] for row in finding.grid.rows] == ["50 %", "50 %"]
    decisions = find_decisions(run.folder)
    assert {decision.participant_id for decision in decisions} == {"ann", "bob", "cleo", "dan"}


@pytest.mark.filterwarnings("error:.*tables made of others")
def test_the_table_of_a_run_killed_at_its_start_is_empty_without_a_warning(tmp_path: Path) -> None:
    run = run_group_study(tmp_path, {})
    path = run.folder.path
    (path / "manifest.json").unlink()
    shutil.rmtree(path / "tables")
    (path / "journal.sqlite").write_bytes(b"")
    assert folkmoot.load(path, study=run.study).table("exposure").is_empty()


def test_texts_without_a_source_do_not_count_as_shown(tmp_path: Path) -> None:
    run = run_group_study(tmp_path, {}, without_sources=True)
    unattributed = count_unattributed_characters(run.folder)
    assert len([address for address in unattributed if "/vote/" in address]) == 4
    assert all(
        "required by the design, missing from" in deviation
        for deviation in describe_deviations(run.folder)
    )


def test_a_private_text_may_equal_a_public_one(tmp_path: Path) -> None:
    """All participants think and say the same words."""
    run = run_group_study(
        tmp_path, {}, private=True, reply="My shop lives off the lorries that stop."
    )
    assert not run.table("utterances")["public"].all()
    assert describe_deviations(run.folder) == []


def test_misattributed_words_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Utterance.quoted_text.fget
    assert original is not None

    def quote_under_wrong_name(utterance: Utterance) -> str:
        is_ann = utterance.speaker_id == "ann"
        quoted: str = original(utterance._replace(speaker_id="bob") if is_ann else utterance)
        return quoted

    monkeypatch.setattr(Utterance, "quoted_text", property(quote_under_wrong_name))
    run = run_group_study(tmp_path, {})
    assert list_shown_statements(run, "bob")[MISATTRIBUTED_WORDS] == ["ann"]
    assert MISATTRIBUTED_WORDS not in list_shown_statements(run, "dan")


# --- a small study with prompts that differ from its design --------------------------------------


def read_conditions(run: RunFolder) -> dict[str, str]:
    return dict(run.read_table("people").select("participant_id", "condition").iter_rows())


LEAFLET = [quote_value(f"Page {n}.", "material", f"study.leaflet.{n}") for n in (1, 2)]
SPEECH = [quote_value("My shop!", "material", "study.speech")]


def label_material(source: Source) -> str:
    return source.id.removeprefix("study.").partition(".")[0]


def list_votes(run: RunFolder) -> list[Decision]:
    conditions = read_conditions(run)
    leaflet = ["study.leaflet.1", "study.leaflet.2"]
    design: dict[str, dict[str, list[str]]] = {
        "reads": {"leaflet": leaflet, "speech": []},
        "hears": {"leaflet": [], "speech": ["study.speech"]},
    }
    return [
        Decision(
            address,
            participant_id,
            conditions[participant_id],
            "vote",
            design[conditions[participant_id]],
            ("study.leaflet.1", "study.speech"),
        )
        for address, participant_id in run.read_table("answers")
        .select("address", "speaker_id")
        .iter_rows()
    ]


def make_study(*, shows: dict[str, list[str]], **settings: object) -> Study:
    async def protocol(session: Session) -> None:
        for n in range(4):
            participant_id, condition = f"p{n}", "reads" if n % 2 else "hears"
            prompt = join_texts("\n\n", [*shows[condition], SourcedText("For or against?")])
            await session.child(participant_id).ask(
                Speaker(participant_id), prompt, answer_type=Choice(("for", "against"))
            )
            session.record("people", {"participant_id": participant_id, "condition": condition})

    design = {
        "derived_tables": ExposureTable(list_votes, label_material),
        "tables": (ExposureRow,),
        **settings,
    }
    return Study(
        name="bridge",
        title="A bridge",
        config=StudyConfig,
        protocol=protocol,
        findings=lambda run_study: [
            finding for finding in [exposure_finding(run_study)] if finding
        ],
        **design,  # type: ignore[arg-type]
    )


def run_study(folder: Path, study: Study) -> Run:
    return folkmoot.run(study, {}, out=folder / "run", provider=ScriptedProvider(lambda *_: "for"))


def list_exposure_findings(run: Run) -> list[Finding]:
    """Return the findings of a run without the engine's finding about closed answers."""
    return [finding for finding in run.findings if finding.key != CLOSED_ANSWERS_KEY]


MATCHING_PROMPTS = {"reads": LEAFLET, "hears": SPEECH}


def test_prompts_that_match_the_design_raise_no_alarm(tmp_path: Path) -> None:
    run = run_study(tmp_path, make_study(shows=MATCHING_PROMPTS))
    (finding,) = list_exposure_findings(run)
    assert finding.grid.columns == ("condition", "decision", "leaflet", "speech")
    assert finding.grid.rows == (
        ("hears", "vote", "0 %", "100 %"),
        ("reads", "vote", "100 %", "0 %"),
    )
    assert (finding.alarms, finding.headline, describe_deviations(run.folder)) == ((), False, [])
    assert run.folder.codebook()["exposure"]["columns"]["share"]["meaning"]
    assert verify_run(run.folder, run.study).is_consistent


def test_prompts_that_differ_from_the_design_raise_alarms(tmp_path: Path) -> None:
    study = make_study(
        shows={"reads": ["A leaflet was shown to you."], "hears": SPEECH + LEAFLET[:1]}
    )
    run = run_study(tmp_path, study)
    (finding,) = list_exposure_findings(run)
    assert finding.alarms == (
        "hears, vote: leaflet: excluded by the design, present in 2 of 2 prompts.",
        "reads, vote: leaflet: required by the design, missing from 2 of 2 prompts.",
    )
    assert finding.headline
    assert ("reads", "vote", "0 % (design: 100 %)", "0 %") in finding.grid.rows
    assert run.manifest["outcome"] == "done" and not run.unusable
    assert verify_run(run.folder, study).is_consistent


def test_a_prompt_with_only_some_texts_is_incomplete(tmp_path: Path) -> None:
    run = run_study(tmp_path, make_study(shows={**MATCHING_PROMPTS, "reads": LEAFLET[1:]}))
    (finding,) = list_exposure_findings(run)
    table = run.table("exposure").filter(condition="reads", kind="leaflet")
    assert table["share"].to_list() == [0.5, 0.5]
    assert ("reads", "vote", "100 % (incomplete)", "0 %") in finding.grid.rows
    assert finding.alarms == (
        "reads, vote: leaflet: required by the design in full, incomplete in 2 of 2 prompts "
        "(the least complete prompt has 50 % of the texts).",
    )


def test_an_error_in_a_declaration_stops_the_run_and_its_correction_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.kit.exposure.DECISIONS_AT_ONCE", 1)
    calls = []

    def answer(_request: object, address: str) -> str:
        calls.append(address)
        return "for"

    def list_votes_and_fail(run: RunFolder) -> Iterator[Decision]:
        yield from list_votes(run)[:2]
        raise KeyError("transcripts")

    def run_with(declaration: Callable[[RunFolder], Iterable[Decision]]) -> Run:
        exposure = ExposureTable(declaration, label_material)
        study = make_study(shows=MATCHING_PROMPTS, derived_tables=exposure)
        return folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(answer))

    with pytest.raises(KeyError, match="transcripts"):
        run_with(list_votes_and_fail)
    # An empty table of a finished run would say that no prompt was a decision.
    assert not RunFolder(tmp_path / "run").is_finished
    assert len(calls) == 4
    run = run_with(list_votes)
    assert len(calls) == 4 and run.table("exposure").height == 8
    assert list_exposure_findings(run)


def test_run_verify_and_report_show_the_deviation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A custom prompt leaves out the summaries."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "final_vote_after_dialogue.md").write_text(
        "{% for turn in dialogue %}{{ turn.text }}\n{% endfor %}\n"
        "Now make your final choice. Respond with ONLY the exact text of your chosen option."
    )
    (tmp_path / "pilot.yaml").write_text(
        "study: cross_pollination\npilot_id: pilot\nprompts: prompts\n"
        "topic: {description: One purpose can be funded., options: [Parks, Jobs, Streets]}\n"
        "conditions: [simple_voting, acp]\npersonas: {source: quota}\n"
        "participants_per_condition: 4\nmin_responses_for_threshold: 5\n"
    )
    deviation = "acp, final vote: summaries: required by the design, missing from 4 of 4 prompts."
    run_result = CliRunner().invoke(app, ["run", "pilot.yaml"])
    assert run_result.exit_code == 0
    assert deviation in " ".join(run_result.output.split())
    verify_result = CliRunner().invoke(app, ["verify", "outputs/pilot"])
    assert verify_result.exit_code == 0
    assert deviation in " ".join(verify_result.output.split())
    assert write_report(RunFolder("outputs/pilot"), pdf=True).stat().st_size > 10_000
    page = Path("outputs/pilot/report.html").read_text("utf-8")
    assert f'<p class="alarm" role="alert">{deviation}</p>' in page


def test_a_decision_that_the_run_did_not_ask_is_reported_and_has_no_share(tmp_path: Path) -> None:
    def list_all_votes(run: RunFolder) -> list[Decision]:
        votes = list_votes(run)
        return [*votes, replace(votes[0], address="p9/ask0", participant_id="p9")]

    exposure = ExposureTable(list_all_votes, label_material)
    run = run_study(tmp_path, make_study(shows=MATCHING_PROMPTS, derived_tables=exposure))
    rows = run.table("exposure").filter(participant_id="p9").rows(named=True)
    assert [(row["kind"], row["texts"], row["share"]) for row in rows] == [("no question", 0, None)]
    (finding,) = list_exposure_findings(run)
    assert finding.alarms == (
        "hears, vote: the run asked no question at 1 of 3 addresses of the design, such as "
        "p9/ask0.",
    )
    # The cells count the prompts that exist.
    (hears,) = [row for row in finding.grid.rows if row[0] == "hears"]
    assert "100 %" in hears
