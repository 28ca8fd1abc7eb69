"""The exposure table is computed from the sources of prompts, not from what the code claims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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

# --- two tables at which people talk before they vote ---------------------------------------------

PEOPLE = {"here": ("ann", "bob"), "there": ("cleo", "dan")}


def label(source: Source) -> str:
    return "statements" if source.kind == "utterance" else ""


def votes_at_tables(run: RunFolder) -> Iterator[Decision]:
    """Everybody votes with all in view that was said at their own table."""
    said = run.read_table("utterances").filter("public")
    for table, who in ((table, who) for table, people in PEOPLE.items() for who in people):
        ids = said.filter(scope=table)["utterance_id"].to_list()
        own = [id for id in ids if f"/{who}/" in f"/{id}/"]
        others = [id for id in ids if id not in own]
        shows = {"statements": others, OWN_WORDS: own}
        yield Decision(f"{table}/{who}/vote/ask0", who, table, "vote", shows, (f"{table}/",))


Shown = Mapping[str, Sequence[str]]


async def hold_tables(
    session: Session[StudyConfig], shown: Shown, private: bool = False, plain: bool = False
) -> None:
    """All speak, then all vote. `shown` names the speakers of the statements in each prompt."""
    said = {}
    for table, people in PEOPLE.items():
        for who in people:
            scope = session.child(table, who)
            if private:
                scope.say(Speaker(who), await scope.ask(Speaker(who), "Think."), public=False)
            text = await scope.ask(Speaker(who), "Speak.")
            said[who] = session.child(table).say(Speaker(who), text, address=scope.address)
    for table, people in PEOPLE.items():
        for who in people:
            texts = [said[speaker].quoted_text for speaker in shown.get(who, people)]
            prompt = join_texts("\n", map(str, texts) if plain else texts)
            asked = session.child(table, who, "vote")
            await asked.ask(
                Speaker(who), prompt, answer_type=Choice(("Yes", "No")), about="the bridge"
            )


def talk(folder: Path, shown: Shown, says: str = "No.", **more: bool) -> Run:
    study = Study(
        "tables",
        "Tables",
        StudyConfig,
        partial(hold_tables, shown=shown, **more),
        derived_tables=ExposureTable(votes_at_tables, label),
        tables=(ExposureRow,),
    )
    replies = ScriptedProvider(lambda _request, address: "No" if "/vote/" in address else says)
    return folkmoot.run(study, {}, out=folder / "run", provider=replies)


def list_shown_statements(done: Run, who: str) -> dict[str, list[str]]:
    """Kind → the speakers of its texts in the prompt of a participant."""
    rows = done.table("exposure").filter(pl.col("texts") > 0, participant_id=who)
    names = dict(done.folder.rows("utterances", "utterance_id", "speaker_id"))
    return {
        row["kind"]: [names[id] for id in json.loads(row["text_ids"])]
        for row in rows.iter_rows(named=True)
    }


def test_texts_of_one_word_that_all_say_are_told_apart(tmp_path: Path) -> None:
    done = talk(tmp_path, {"bob": ["ann", "bob", "cleo"], "dan": ["dan"]})
    assert list_shown_statements(done, "ann") == {OWN_WORDS: ["ann"], "statements": ["bob"]}
    assert list_shown_statements(done, "bob") == {
        OWN_WORDS: ["bob"],
        "statements": ["ann"],
        FOREIGN_WORDS: ["cleo"],
    }
    assert list_shown_statements(done, "dan") == {OWN_WORDS: ["dan"]}
    assert set(describe_deviations(done.folder)) == {
        "here, vote: words from elsewhere: excluded by the design, present in 1 of 2 prompts.",
        "there, vote: statements: required by the design, missing from 1 of 2 prompts.",
    }


def test_what_stood_without_its_source_did_not_stand(tmp_path: Path) -> None:
    done = talk(tmp_path, {}, plain=True)
    counted = count_unattributed_characters(done.folder)
    assert len([address for address in counted if "/vote/" in address]) == 4
    assert all(
        "required by the design, missing from" in said for said in describe_deviations(done.folder)
    )


def test_a_private_thought_may_be_what_another_says_aloud(tmp_path: Path) -> None:
    """All participants think and say the same words."""
    done = talk(tmp_path, {}, private=True, says="My shop lives off the lorries that stop.")
    assert not done.table("utterances")["public"].all()
    assert describe_deviations(done.folder) == []


def test_words_under_another_speakers_name_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Utterance.quoted_text.fget
    assert right is not None

    def swap(said: Utterance) -> str:
        is_ann = said.speaker_id == "ann"
        quoted: str = right(said._replace(speaker_id="bob") if is_ann else said)
        return quoted

    monkeypatch.setattr(Utterance, "quoted_text", property(swap))
    done = talk(tmp_path, {})
    assert list_shown_statements(done, "bob")[MISATTRIBUTED_WORDS] == ["ann"]
    assert MISATTRIBUTED_WORDS not in list_shown_statements(done, "dan")


# --- a small study that claims more than it shows ------------------------------------------------


def arms(run: RunFolder) -> dict[str, str]:
    return dict(run.read_table("people").select("participant_id", "condition").iter_rows())


LEAFLET = [quote_value(f"Page {n}.", "material", f"study.leaflet.{n}") for n in (1, 2)]
SPEECH = [quote_value("My shop!", "material", "study.speech")]


def label_material(source: Source) -> str:
    return source.id.removeprefix("study.").partition(".")[0]


def votes(run: RunFolder) -> list[Decision]:
    of = arms(run)
    leaflet = ["study.leaflet.1", "study.leaflet.2"]
    design: dict[str, dict[str, list[str]]] = {
        "reads": {"leaflet": leaflet, "speech": []},
        "hears": {"leaflet": [], "speech": ["study.speech"]},
    }
    return [
        Decision(
            address, who, of[who], "vote", design[of[who]], ("study.leaflet.1", "study.speech")
        )
        for address, who in run.read_table("answers").select("address", "speaker_id").iter_rows()
    ]


def study(*, shows: dict[str, list[str]], **more: object) -> Study:
    async def protocol(session: Session) -> None:
        for n in range(4):
            who, arm = f"p{n}", "reads" if n % 2 else "hears"
            prompt = join_texts("\n\n", [*shows[arm], SourcedText("For or against?")])
            await session.child(who).ask(
                Speaker(who), prompt, answer_type=Choice(("for", "against"))
            )
            session.record("people", {"participant_id": who, "condition": arm})

    design = {
        "derived_tables": ExposureTable(votes, label_material),
        "tables": (ExposureRow,),
        **more,
    }
    return Study(
        name="bridge",
        title="A bridge",
        config=StudyConfig,
        protocol=protocol,
        findings=lambda run: [f for f in [exposure_finding(run)] if f],
        **design,  # type: ignore[arg-type]
    )


def run(folder: Path, study: Study) -> Run:
    return folkmoot.run(study, {}, out=folder / "run", provider=ScriptedProvider(lambda *_: "for"))


def exposure_findings(done: Run) -> list[Finding]:
    """The findings of a run but the engine's own about how closed answers were had."""
    return [finding for finding in done.findings if finding.key != CLOSED_ANSWERS_KEY]


AS_CLAIMED = {"reads": LEAFLET, "hears": SPEECH}


def test_the_matrix_is_clean_where_prompts_hold_what_the_design_says(tmp_path: Path) -> None:
    done = run(tmp_path, study(shows=AS_CLAIMED))
    (finding,) = exposure_findings(done)
    assert finding.grid.columns == ("condition", "decision", "leaflet", "speech")
    assert finding.grid.rows == (
        ("hears", "vote", "0 %", "100 %"),
        ("reads", "vote", "100 %", "0 %"),
    )
    assert (finding.alarms, finding.headline, describe_deviations(done.folder)) == ((), False, [])
    assert done.folder.codebook()["exposure"]["columns"]["share"]["meaning"]
    assert verify_run(done.folder, done.study).is_consistent


def test_a_design_that_the_prompts_do_not_keep_is_shouted_and_stays_a_run(tmp_path: Path) -> None:
    claims = study(shows={"reads": ["A leaflet was shown to you."], "hears": SPEECH + LEAFLET[:1]})
    done = run(tmp_path, claims)
    (finding,) = exposure_findings(done)
    assert finding.alarms == (
        "hears, vote: leaflet: excluded by the design, present in 2 of 2 prompts.",
        "reads, vote: leaflet: required by the design, missing from 2 of 2 prompts.",
    )
    assert finding.headline
    assert ("reads", "vote", "0 % (design: 100 %)", "0 %") in finding.grid.rows
    assert done.manifest["outcome"] == "done" and not done.unusable
    assert verify_run(done.folder, claims).is_consistent


def test_of_texts_that_are_shown_every_one_must_stand(tmp_path: Path) -> None:
    done = run(tmp_path, study(shows={**AS_CLAIMED, "reads": LEAFLET[1:]}))
    (finding,) = exposure_findings(done)
    table = done.table("exposure").filter(condition="reads", kind="leaflet")
    assert table["share"].to_list() == [0.5, 0.5]
    assert ("reads", "vote", "100 % (incomplete)", "0 %") in finding.grid.rows
    assert finding.alarms == (
        "reads, vote: leaflet: required by the design in full, incomplete in 2 of 2 prompts "
        "(the least complete prompt has 50 % of the texts).",
    )


def test_a_declaration_that_fails_costs_the_whole_table_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.kit.exposure.DECISIONS_AT_ONCE", 1)

    def broken(run: RunFolder) -> Iterator[Decision]:
        yield from votes(run)[:2]
        raise KeyError("transcripts")

    done = run(
        tmp_path, study(shows=AS_CLAIMED, derived_tables=ExposureTable(broken, label_material))
    )
    assert done.manifest["outcome"] == "done" and done.table("exposure").is_empty()
    assert exposure_findings(done) == []
    assert "KeyError('transcripts')" in done.folder.text("run.log")


def test_run_report_and_verify_print_the_difference_in_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one prompt replaced by a user's own, which drops the summaries."""
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
    told = "acp, final vote: summaries: required by the design, missing from 4 of 4 prompts."
    ran = CliRunner().invoke(app, ["run", "pilot.yaml"])
    assert ran.exit_code == 0
    assert told in " ".join(ran.output.split())
    verified = CliRunner().invoke(app, ["verify", "outputs/pilot"])
    assert verified.exit_code == 0
    assert told in " ".join(verified.output.split())
    assert write_report(RunFolder("outputs/pilot"), pdf=True).stat().st_size > 10_000
    page = Path("outputs/pilot/report.html").read_text("utf-8")
    assert f'<p class="alarm" role="alert">{told}</p>' in page
