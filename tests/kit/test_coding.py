"""A coder assigns codes to free text, and its reliability is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.errors import InputError, ProtocolError, RefusedError
from folkmoot.kit import coding
from folkmoot.kit.coding.coder import require_unique_texts
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from tests.kit.diary import DIARIES, STUDY

FIRST, SECOND = "openai/gpt-4o", "anthropic/claude-haiku-4.5"
Codes = list[dict[str, Any]]


def make_coder(choose_codes: Callable[[str, ModelRequest], Codes]) -> ScriptedProvider:
    """Make a provider that answers with the chosen codes for the text of a request."""

    def answer(request: ModelRequest, address: str) -> str:
        text = next(message.content for message in request.messages if message.role == "user")
        return json.dumps({"codes": choose_codes(text, request)})

    return ScriptedProvider(answer, keep_requests=True)


def code_by_words(text: str, _request: ModelRequest | None = None) -> Codes:
    """Return the correct codes of a diary text."""
    codes = []
    if "xpensive" in text:
        codes.append({"code": "too_dear", "quote": "too expensive"})
    if "ood value" in text:
        codes.append({"code": "fair", "quote": "good value"})
    return codes


def run_diary(
    tmp_path: Path, provider: ScriptedProvider | None = None, **settings: Any
) -> folkmoot.Run:
    settings = {"models": {"coder": FIRST}, **settings}
    return folkmoot.run(
        STUDY, settings, provider=provider or make_coder(code_by_words), out=tmp_path / "run"
    )


def read_codes_by(run: folkmoot.Run, coder_role: str = "coder") -> set[tuple[str, str]]:
    rows = run.table("codes").filter(pl.col("by") == coder_role, pl.col("refused").is_null())
    return set(rows.select("text_id", "code").iter_rows())


def test_codes_of_a_text_have_their_quotes(tmp_path: Path) -> None:
    coded_run = run_diary(tmp_path)
    assert read_codes_by(coded_run) == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "fair"),
        ("treated/day2", "(none)"),
        ("treated/day3", "too_dear"),
        ("treated/day3", "fair"),
    }
    results = coding.read_codings(coded_run.folder)["price"]
    assert results.codes_of("treated/day0") == {"too_dear": "too expensive"}
    assert results.codes_of("treated/day2") == {}
    assert results.supports_findings


def test_the_coder_prompt_does_not_reveal_the_condition(
    tmp_path: Path,
) -> None:
    provider = make_coder(code_by_words)
    run_diary(tmp_path, provider, arm="QQtreatedQQ")
    assert len(provider.seen) == len(DIARIES)
    for address, request in provider.seen:
        system, text = request.messages
        assert text.content in DIARIES
        assert "The price keeps the speaker from buying" in system.content
        request_json = json.dumps(request.to_json())
        assert "QQ" not in request_json and "p_000" not in request_json and "QQ" in address


def test_a_quote_that_is_not_in_the_text_causes_a_reask_and_is_dropped(
    tmp_path: Path,
) -> None:
    provider = make_coder(
        lambda text, _: [
            {"code": "fair", "quote": "worth every penny"},
            *code_by_words(text),
        ]
    )
    coded_run = run_diary(tmp_path, provider)
    assert read_codes_by(coded_run) == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "fair"),
        ("treated/day3", "too_dear"),
        ("treated/day3", "fair"),
    }
    rejected = coded_run.table("codes").filter(pl.col("refused").is_not_null(), by="coder")
    assert rejected.height == len(DIARIES)
    assert set(rejected["refused"]) == {"the quote is not in the text: 'worth every penny'"}
    reasks = [request for address, request in provider.seen if address.endswith("ask0.r1")]
    assert len(reasks) == len(DIARIES)
    assert "worth every penny" in reasks[0].messages[-1].content
    # A text with only rejected codes has a missing answer, and not an empty list of codes.
    assert coding.read_codings(coded_run.folder)["price"].codes_of("treated/day2") is None


def test_a_quote_that_is_corrected_after_a_reask_counts(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        text = next(message.content for message in request.messages if message.role == "user")
        codes = (
            code_by_words(text) if address.endswith("r1") else [{"code": "fair", "quote": "never"}]
        )
        return json.dumps({"codes": codes})

    coded_run = run_diary(tmp_path, ScriptedProvider(answer))
    assert read_codes_by(coded_run) == read_codes_by(run_diary(tmp_path / "other"))
    assert coded_run.table("answers")["reasks"].to_list() == [1] * len(DIARIES)


def test_a_second_coder_codes_the_sealed_sample_and_gives_alpha(tmp_path: Path) -> None:
    def choose_codes(text: str, request: ModelRequest) -> Codes:
        codes = code_by_words(text)
        return (
            [item for item in codes if item["code"] != "fair"] if request.model == SECOND else codes
        )

    models = {"coder": FIRST, "second_coder": SECOND}
    coded_run = run_diary(tmp_path, make_coder(choose_codes), models=models)
    assert read_codes_by(coded_run, "second_coder") == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "(none)"),
        ("treated/day2", "(none)"),
        ("treated/day3", "too_dear"),
    }
    results = coding.read_codings(coded_run.folder)["price"]
    second = next(item for item in results.coders if item.coder_role == "second_coder")
    assert second.name == SECOND
    # 8 units (4 texts, 2 codes), 4 + 2 given of 16; 2 disagreements: 1 − 15·(2·2)/(2·6·10) = .5.
    assert results.agreement_with(second).value == pytest.approx(0.5)
    assert results.agreement_with(second, "too_dear").value == pytest.approx(1.0)
    assert "α = 0.50" in results.note and SECOND in results.note

    # A smaller sample: its texts are fixed in the plan, and the second coder codes only them.
    provider = make_coder(choose_codes)
    sample_run = run_diary(tmp_path / "few", provider, models=models, coding={"sample": 2})
    sealed = sample_run.folder.plan["sealed"]["coding price"]["data"]["sample"]
    assert len(sealed) == 2
    assert {text_id for text_id, _ in read_codes_by(sample_run, "second_coder")} == set(sealed)
    assert sum(sent.model == SECOND for _, sent in provider.seen) == 2
    second_run = run_diary(
        tmp_path / "again", make_coder(choose_codes), models=models, coding={"sample": 2}
    )
    assert second_run.folder.plan["sealed"]["coding price"]["data"]["sample"] == sealed


@pytest.mark.parametrize(
    "models",
    [
        {"coder": FIRST, "second_coder": FIRST},
        {"coder": "gpt-4o", "second_coder": FIRST},
        {"second_coder": FIRST},
    ],
    ids=["the same name", "another name of it", "the run's own model"],
)
def test_the_same_model_as_both_coders_is_refused_before_the_first_call(
    tmp_path: Path, models: dict[str, str]
) -> None:
    provider = make_coder(code_by_words)
    with pytest.raises(InputError, match="is already the coder"):
        run_diary(tmp_path, provider, models=models, model=FIRST)
    assert not provider.calls


def test_one_model_for_all_roles_gives_no_second_coder(tmp_path: Path) -> None:
    settings = {"models": {"coder": FIRST, "second_coder": SECOND}}
    coded_run = folkmoot.run(STUDY, settings, model="synthetic", out=tmp_path / "run")
    assert not read_codes_by(coded_run, "second_coder")
    assert "there is no second coder" in coded_run.folder.text("run.log")
    assert (
        "the reliability of the codes is unknown"
        in coding.read_codings(coded_run.folder)["price"].note
    )


def test_a_phrase_rule_is_compared_but_not_used(tmp_path: Path) -> None:
    empty_coder = make_coder(lambda text, _: [])
    coded_run = run_diary(tmp_path, empty_coder)
    assert read_codes_by(coded_run, "rule") >= {
        ("treated/day0", "too_dear"),
        ("treated/day3", "too_dear"),
    }
    results = coding.read_codings(coded_run.folder)["price"]
    assert not any(results.codes_by_text.values())
    finding = coding.coding_finding(coded_run.folder)
    assert finding is not None
    rule_row = next(row for row in finding.grid.rows if row[1] == "rule")
    alpha = dict(zip(finding.grid.columns, rule_row, strict=True))["alpha"]
    assert isinstance(alpha, float) and alpha < 0.1


def test_codes_of_the_embedded_coder_support_no_finding(tmp_path: Path) -> None:
    coded_run = folkmoot.run(STUDY, {}, model="synthetic", out=tmp_path / "run")
    results = coding.read_codings(coded_run.folder)["price"]
    assert results.codes_of("treated/day0") == {
        "too_dear": "Honestly, it’s far too expensive for me."
    }
    assert results.codes_of("treated/day2") == {}
    assert set(coded_run.table("codes").filter(by="coder")["coder_kind"]) == {"embedded"}
    assert not results.supports_findings and "support no finding" in results.note
    assert coded_run.folder.is_synthetic
    assert coded_run.table("answers")["reasks"].sum() == 0


def test_with_coding_off_the_texts_are_kept_without_calls(tmp_path: Path) -> None:
    provider = make_coder(code_by_words)
    coded_run = run_diary(tmp_path, provider, coding=False)
    assert not provider.calls
    assert coded_run.table("texts")["text"].to_list() == list(DIARIES)
    assert not read_codes_by(coded_run)
    results = coding.read_codings(coded_run.folder)["price"]
    assert not results.supports_findings and results.single_code("treated/day0") is None


def test_an_empty_text_is_not_coded_and_has_a_reason(tmp_path: Path) -> None:
    provider = make_coder(code_by_words)
    coded_run = run_diary(tmp_path, provider, diaries=("  ", DIARIES[0]))
    assert provider.calls == 1
    row = coded_run.table("codes").filter(text_id="treated/day0").row(0, named=True)
    assert row["code"] is None and row["refused"] == "no text"


def test_a_custom_codebook_replaces_the_shipped_one(tmp_path: Path) -> None:
    codebook_folder = tmp_path / "mine"
    codebook_folder.mkdir()
    (codebook_folder / "price.yaml").write_text(
        "name: price\nquestion: Is it about a dog?\ncodes:\n  - {name: dog, definition: A dog.}\n"
    )
    provider = make_coder(
        lambda text, _: [{"code": "Dog", "quote": "dog"}] if "dog" in text else []
    )
    coded_run = run_diary(tmp_path, provider, coding={"codebooks": str(codebook_folder)})
    assert ("treated/day2", "dog") in read_codes_by(coded_run)


def test_a_mistake_in_a_codebook_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "price.yaml"
    path.write_text(
        "name: price\nquestion: What?\nchoose: many\ncodes:\n"
        "  - {name: dear, definition: Too dear.}\n  - {name: dog, definiton: A dog.}\n"
    )
    with pytest.raises(InputError) as caught:
        coding.read_codebook(path)
    lines = {(problem.where, problem.key) for problem in caught.value.problems}
    assert ("3", "choose") in lines and any(where == "6" for where, _ in lines)
    assert all(problem.file == str(path) for problem in caught.value.problems)


def test_a_refused_text_is_missing_with_its_reason(tmp_path: Path) -> None:
    def refuse_text(text: str, _request: ModelRequest) -> Codes:
        if "dog" in text:
            raise RefusedError("too long for me", reason="too_long")
        return code_by_words(text)

    coded_run = run_diary(tmp_path, make_coder(refuse_text))
    row = coded_run.table("codes").filter(text_id="treated/day2", by="coder").row(0, named=True)
    assert row["code"] is None and row["refused"] == "too_long"
    assert coding.read_codings(coded_run.folder)["price"].codes_of("treated/day2") is None


def test_coders_use_temperature_zero(tmp_path: Path) -> None:
    provider = make_coder(code_by_words)
    run_diary(tmp_path, provider, temperature=1.3)
    assert {request.temperature for _, request in provider.seen} == {0.0}


@pytest.mark.parametrize(
    "texts",
    [
        [coding.TextToCode("a", "Hm."), coding.TextToCode("a", "Oh.")],
        [coding.TextToCode("a", "Hm.")],
    ],
    ids=["duplicate id", "no values"],
)
def test_ambiguous_texts_are_refused(texts: list[coding.TextToCode]) -> None:
    slots = {} if len(texts) == 2 else {"who": "of whom"}
    codes = (coding.Code(name="yes", definition="Yes."),)
    codebook = coding.Codebook(name="b", question="?", slots=slots, codes=codes)
    with pytest.raises(ProtocolError, match="coding by b"):
        require_unique_texts(texts, codebook)
