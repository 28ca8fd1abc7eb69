"""Every text in the prompts of this study has a source and equals the recorded text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot import Run
from folkmoot.engine.session.session import Scope
from folkmoot.kit.exposure import FOREIGN_WORDS, describe_deviations
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.request import Completion, Message, ModelRequest, ProviderSettings, StudyPart
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import Span, concatenate_texts, quote_value
from folkmoot.randomness import generator
from folkmoot.respondent import Respondent
from folkmoot.studies.cross_pollination import STUDY
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from tests.contract.small import small_study
from tests.contract.test_exposure import write_like_a_model
from tests.engine.test_seats import build_seat_host
from tests.helpers_provenance import assert_every_text_has_its_source, write_prompts_in_capitals
from tests.studies.cross_pollination.test_exposure import Talkers
from tests.studies.cross_pollination.test_protocol import JOBS, OPTIONS, PARKS, SAFETY, SETTINGS
from tests.studies.cross_pollination.test_protocol import run_scripted as run_script
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

ALL_MEASURES = {"confidence": True, "ranking": True, "restatement": True, "delayed_vote": True}
PARAPHRASES = Path(__file__).parents[2] / "paraphrases" / "cross_pollination"
MAPPING = {PARKS: SAFETY, JOBS: SAFETY, SAFETY: JOBS}
OWN_CONDITIONS = {
    "argued": {"dialogue": True},
    "asked": {"interview": True},
    "both": {"interview": True, "dialogue": True},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "everything": {
        **ALL_MEASURES,
        "extra_conditions": ["names_only", "empty_argument"],
        "include_vote_distribution": True,
        "option_order": "random",
        "revote": True,
        "summary_draws": 2,
    },
    "judge": {"opposition_method": "llm_judge", "conditions": ["acp"]},
    "mapping": {
        "opposition_method": "predefined",
        "opposition_mapping": MAPPING,
        "conditions": ["acp"],
    },
    "embedding": {"opposition_method": "embedding", "conditions": ["acp"]},
    "highest": {"opposition_method": "highest_voted", "conditions": ["acp"], "coding": "off"},
    "source": {"exposure": "source", "restatement": True},
    "arms": {"exposure": OWN_CONDITIONS, "conditions": list(OWN_CONDITIONS), "restatement": True},
    "agglomerative": {"clustering_algorithm": "agglomerative", "personas": {"source": "grounded"}},
    **{
        f"wording {style}": {**ALL_MEASURES, "prompts": str(PARAPHRASES / style), "revote": True}
        for style in ("plain", "formal", "terse")
    },
}


# Other wordings are daily in test_paraphrases.
DAILY = ("everything", "judge", "embedding", "source", "arms")


def run_synthetic(folder: Path, **changes: Any) -> Run:
    settings = {**SETTINGS, "participants_per_condition": 4, **changes}
    return folkmoot.run("cross_pollination", settings, model="synthetic", out=folder / "run")


def assert_sources(done: Run) -> None:
    assert_every_text_has_its_source(done.folder, done.study)
    assert describe_deviations(done.folder) == []


@pytest.mark.parametrize("variant", sample_daily(VARIANTS, DAILY, part="mutations"))
def test_every_text_in_a_prompt_is_recorded_where_its_source_says(
    tmp_path: Path, variant: str
) -> None:
    done = run_synthetic(tmp_path, **VARIANTS[variant])
    assert done.table("provenance")["address"].n_unique() == done.table("answers").height
    assert_sources(done)


def keep_quoted_texts(request: ModelRequest, seed: int) -> ModelRequest:
    """Return a request with only the quoted texts of each message, in random order."""
    messages, spans = list[Message](), list[Span]()
    for number, message in enumerate(request.messages):
        groups = list[list[Span]]()  # a text and the texts inside it
        for span in (span for span in request.spans if span.message == number):
            inside = bool(groups) and span.end <= groups[-1][0].end
            groups[-1].append(span) if inside else groups.append([span])
        order = generator(seed, (str(number),)).permutation(len(groups))
        content = ""
        for group in (groups[int(place)] for place in order):
            moved = len(content) - group[0].start
            spans += [
                span._replace(start=span.start + moved, end=span.end + moved) for span in group
            ]
            content += message.content[group[0].start : group[0].end] + "\n"
        messages.append(message._replace(content=content))
    return replace(request, messages=tuple(messages), spans=tuple(spans))


# Daily with the judge. All other answers are the same with both methods.
@pytest.mark.parametrize(
    "method",
    sample_daily(["cluster_embedding", "llm_judge"], daily=("llm_judge",), part="mutations"),
)
def test_choices_numbers_rankings_and_codes_need_no_instructions(
    tmp_path: Path, method: str
) -> None:
    """All questions say what they are about, and the texts alone decide the answers."""
    settings = {**SETTINGS, **ALL_MEASURES, "participants_per_condition": 4, "revote": True}
    settings |= {"opposition_method": method, "extra_conditions": ["empty_argument"]}
    config = CrossPollinationConfig.model_validate(settings)
    inner = Respondent(ProviderSettings(seed=42, study=StudyPart(STUDY.respondent_part, config)))
    compared = set[str]()

    def answer(request: ModelRequest, address: str) -> Completion:
        assert request.hints.about
        reply = inner.reply(request, address)
        if request.hints.kind != "text":
            assert inner.reply(keep_quoted_texts(request, 1), address).text == reply.text
            compared.add(f"{request.hints.role} {request.hints.kind}")
        return reply

    folkmoot.run(
        "cross_pollination", settings, provider=ScriptedProvider(answer), out=tmp_path / "run"
    )
    closed = {"participant choice", "participant number", "participant json", "coder json"}
    assert compared - {"judge choice"} == closed
    assert ("judge choice" in compared) is (method == "llm_judge")


def test_sources_are_recorded_in_every_writing_style_of_models(tmp_path: Path) -> None:
    """With markup, quotation marks, odd breaks, braces of templates and other languages."""
    settings = small_study("cross_pollination", tmp_path)
    done = folkmoot.run(
        settings, provider=write_like_a_model("cross_pollination"), out=tmp_path / "run"
    )
    assert_sources(done)


def test_own_prompts_with_filters_keep_the_sources(tmp_path: Path) -> None:
    own = write_prompts_in_capitals(tmp_path / "own", STUDY)
    settings = {**ALL_MEASURES, "prompts": own, "revote": True, "include_vote_distribution": True}
    plain, loud = (
        run_synthetic(tmp_path / "plain", **ALL_MEASURES, revote=True),
        run_synthetic(tmp_path / "loud", **settings),
    )
    assert_sources(loud)
    assert loud.table("provenance")["altered"].any()
    columns = ("condition", "decision", "kind", "expected")
    both = [set(done.table("exposure").select(columns).iter_rows()) for done in (plain, loud)]
    assert both[0] == both[1]


def test_what_two_coders_are_shown_is_recorded_where_its_source_says(tmp_path: Path) -> None:
    models = {"participant": "openai/gpt-4o", "second_coder": "openai/gpt-4o-mini"}
    done = run_script(tmp_path, Talkers(), restatement=True, models=models)
    assert_sources(done)
    coded = done.table("provenance").filter(is_in_stage("second_coding"))
    restated = coded.filter(kind="utterance")
    assert restated["speaker"].n_unique() > 1
    assert {"material", "option", "summary"} < set(coded["kind"])


def test_personas_from_lines_are_recorded_where_their_sources_say(tmp_path: Path) -> None:
    lines = [{"persona": f"A beekeeper who lives on farm number {n}"} for n in range(40)]
    hub = tmp_path / "hub.jsonl"
    hub.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    people = {"source": "persona_hub", "file": str(hub), "pool": str(tmp_path / "pool.json")}
    done = run_synthetic(tmp_path, personas=people)
    assert_sources(done)
    recruited = done.table("provenance").filter(kind="persona", speaker="recruiter")
    assert recruited.height == 2 * done.table("base_personas").height > 0


def test_a_self_description_takes_the_place_of_the_persona(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    settings = {**SETTINGS, "participants_per_condition": 3, "model": "synthetic"}
    settings |= {"seats": {"ids": ["p_0002"], "as": "self"}, "study": "cross_pollination"}
    study.write_text(json.dumps(settings), "utf-8")

    def answer(_chair: object, question: Any) -> str:
        if question.address.startswith("seats/"):
            return json.dumps({"age": 34, "about": "I keep bees."})
        return PARKS if question.view.answer_kind == "choice" else "It is near to my house."

    done = folkmoot.run(study, out=tmp_path / "run", seat_host=build_seat_host(answer))
    assert_sources(done)
    own = done.table("provenance").filter(kind="persona", speaker="p_0002")
    assert set(own["source_id"]) == {"self_descriptions.text/p_0002"}


def test_summaries_record_their_author(tmp_path: Path) -> None:
    """The summary of one interview is the participant's, the description of a cluster is not."""
    done = run_synthetic(tmp_path, conditions=["acp"])
    shown = done.table("provenance").filter(kind="summary")
    described = shown.filter(shown["address"].str.contains("/descriptions/"))
    assert set(described["speaker"]) == set(done.table("participants")["participant_id"])
    read = shown.filter(shown["address"].str.starts_with("adversarial_dialogue/"))
    assert set(read["speaker"]) == {"summarizer"}
    said = done.table("utterances").filter(speaker_id="summarizer")
    assert not said["public"].any()
    addresses = set(done.table("answers")["address"])
    assert set(said["address"]) <= addresses
    assert set(done.table("summaries")["address"]) <= addresses
    assert done.table("utterances").filter(public=True)["turn"].null_count() == 0


def is_in_stage(stage: str) -> pl.Expr:
    return pl.col("address").str.starts_with(f"{stage}/")


def change_prompt(monkeypatch: pytest.MonkeyPatch, changed: str, **given: Any) -> None:
    original = Scope.prompt

    def prompt(self: Scope, name: str, **variables: object) -> str:
        more = given if name == changed else {}
        return original(self, name, **{**variables, **more})

    monkeypatch.setattr(Scope, "prompt", prompt)


def test_a_plain_text_in_a_prompt_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak = "The others want the park."
    change_prompt(monkeypatch, "final_vote_after_summary", cross_pollination_content=leak)
    done = run_script(tmp_path, Talkers())
    counted = count_unattributed_characters(done.folder)
    assert set(counted.values()) == {len(leak)}
    assert {address.partition("/")[0] for address in counted} == {"cross_pollination"}


def test_a_text_under_the_source_of_another_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = [
        quote_value(option, "option", "study.topic.options") for option in (*OPTIONS, "A bridge")
    ]
    change_prompt(monkeypatch, "initial_vote", options=planted)
    done = run_script(tmp_path, Talkers())
    found = find_wrong_sources(done.folder, done.study.tables)
    assert {wrong.text for wrong in found} == {"A bridge"}
    assert {option for wrong in found for option in wrong.recorded} == set(OPTIONS)


def test_a_short_text_of_another_interview_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All participants say the same two letters, and the source still identifies the speaker."""
    original = Scope.prompt
    heard: list[Any] = []

    def prompt(self: Scope, name: str, **variables: Any) -> str:
        if name == "individual_summary":
            heard.append(variables["dialogue"].utterances[1].text)
        if name == "final_vote_after_summary":
            content = variables["cross_pollination_content"]
            variables["cross_pollination_content"] = concatenate_texts((content, heard[0]))
        return original(self, name, **variables)

    def brief(request: ModelRequest, address: str) -> str:
        said = Talkers().usual(request, address)
        return "No." if request.hints.role == "participant" else said

    monkeypatch.setattr(Scope, "prompt", prompt)
    done = run_script(tmp_path, Talkers(clarification=brief))
    other = done.table("exposure").filter(kind=FOREIGN_WORDS)
    ((id,),) = set(map(tuple, map(json.loads, other["text_ids"])))
    said = done.table("utterances").row(by_predicate=pl.col("utterance_id") == id, named=True)
    assert said["text"] == "No."
    readers = done.table("participants").filter(pl.col("condition").str.contains("passive"))
    assert set(other["participant_id"]) == set(readers["participant_id"]) - {said["participant_id"]}
    assert any(FOREIGN_WORDS in sentence for sentence in describe_deviations(done.folder))


def test_replies_that_name_no_option_are_given_back_with_their_source(tmp_path: Path) -> None:
    def unclear(request: ModelRequest, address: str) -> str:
        return PARKS if address.endswith(".r1") else "Let me think about the park."

    done = run_script(tmp_path, Talkers(initial_vote=unclear))
    assert count_unattributed_characters(done.folder) == {}
    assert find_wrong_sources(done.folder, done.study.tables) == []
    assert done.table("provenance").filter(kind="reply").height > 0
