"""Free words are coded by a coder, and the coder is checked."""

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


def coder(codes: Callable[[str, ModelRequest], Codes]) -> ScriptedProvider:
    """A model that codes the text of a request so."""

    def answer(request: ModelRequest, address: str) -> str:
        text = next(m.content for m in request.messages if m.role == "user")
        return json.dumps({"codes": codes(text, request)})

    return ScriptedProvider(answer, keep_requests=True)


def by_words(text: str, _request: ModelRequest | None = None) -> Codes:
    """The codes of someone who reads well."""
    found = []
    if "xpensive" in text:
        found.append({"code": "too_dear", "quote": "too expensive"})
    if "ood value" in text:
        found.append({"code": "fair", "quote": "good value"})
    return found


def run(tmp_path: Path, provider: ScriptedProvider | None = None, **settings: Any) -> folkmoot.Run:
    settings = {"models": {"coder": FIRST}, **settings}
    return folkmoot.run(STUDY, settings, provider=provider or coder(by_words), out=tmp_path / "run")


def codes_by(run: folkmoot.Run, by: str = "coder") -> set[tuple[str, str]]:
    rows = run.table("codes").filter(pl.col("by") == by, pl.col("refused").is_null())
    return set(rows.select("text_id", "code").iter_rows())


def test_a_text_gets_its_codes_with_the_quotes_that_justify_them(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert codes_by(done) == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "fair"),
        ("treated/day2", "(none)"),
        ("treated/day3", "too_dear"),
        ("treated/day3", "fair"),
    }
    read = coding.read_codings(done.folder)["price"]
    assert read.codes_of("treated/day0") == {"too_dear": "too expensive"}
    assert read.codes_of("treated/day2") == {}
    assert read.supports_findings


def test_the_coder_sees_the_text_and_the_codebook_and_nothing_that_tells_the_arm(
    tmp_path: Path,
) -> None:
    provider = coder(by_words)
    run(tmp_path, provider, arm="QQtreatedQQ")
    assert len(provider.seen) == len(DIARIES)
    for address, request in provider.seen:
        system, text = request.messages
        assert text.content in DIARIES
        assert "The price keeps the speaker from buying" in system.content
        sent = json.dumps(request.to_json())
        assert "QQ" not in sent and "p_000" not in sent and "QQ" in address


def test_a_quote_that_is_not_in_the_text_is_refused_asked_again_and_then_dropped(
    tmp_path: Path,
) -> None:
    provider = coder(
        lambda text, _: [
            {"code": "fair", "quote": "worth every penny"},
            *by_words(text),
        ]
    )
    done = run(tmp_path, provider)
    assert codes_by(done) == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "fair"),
        ("treated/day3", "too_dear"),
        ("treated/day3", "fair"),
    }
    refused = done.table("codes").filter(pl.col("refused").is_not_null(), by="coder")
    assert refused.height == len(DIARIES)
    assert set(refused["refused"]) == {"the quote is not in the text: 'worth every penny'"}
    again = [r for a, r in provider.seen if a.endswith("ask0.r1")]
    assert len(again) == len(DIARIES)
    assert "worth every penny" in again[0].messages[-1].content
    # If the only code of a text was refused, the text has no answer. It is not one without codes.
    assert coding.read_codings(done.folder)["price"].codes_of("treated/day2") is None


def test_a_quote_put_right_on_the_second_try_counts(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        text = next(m.content for m in request.messages if m.role == "user")
        codes = by_words(text) if address.endswith("r1") else [{"code": "fair", "quote": "never"}]
        return json.dumps({"codes": codes})

    done = run(tmp_path, ScriptedProvider(answer))
    assert codes_by(done) == codes_by(run(tmp_path / "other"))
    assert done.table("answers")["reasks"].to_list() == [1] * len(DIARIES)


def test_a_second_coder_codes_the_sealed_sample_and_alpha_is_known(tmp_path: Path) -> None:
    def two(text: str, request: ModelRequest) -> Codes:
        codes = by_words(text)
        return [c for c in codes if c["code"] != "fair"] if request.model == SECOND else codes

    models = {"coder": FIRST, "second_coder": SECOND}
    done = run(tmp_path, coder(two), models=models)
    assert codes_by(done, "second_coder") == {
        ("treated/day0", "too_dear"),
        ("treated/day1", "(none)"),
        ("treated/day2", "(none)"),
        ("treated/day3", "too_dear"),
    }
    read = coding.read_codings(done.folder)["price"]
    second = next(c for c in read.coders if c.coder_role == "second_coder")
    assert second.name == SECOND
    # 8 units (4 texts, 2 codes), 4 + 2 given of 16; 2 disagreements: 1 − 15·(2·2)/(2·6·10) = .5.
    assert read.agreement_with(second).value == pytest.approx(0.5)
    assert read.agreement_with(second, "too_dear").value == pytest.approx(1.0)
    assert "α = 0.50" in read.note and SECOND in read.note

    # A smaller sample: its texts are fixed in the plan, and only they are asked for twice.
    provider = coder(two)
    few = run(tmp_path / "few", provider, models=models, coding={"sample": 2})
    sealed = few.folder.plan["sealed"]["coding price"]["data"]["sample"]
    assert len(sealed) == 2
    assert {t for t, _ in codes_by(few, "second_coder")} == set(sealed)
    assert sum(r.model == SECOND for _, r in provider.seen) == 2
    again = run(tmp_path / "again", coder(two), models=models, coding={"sample": 2})
    assert again.folder.plan["sealed"]["coding price"]["data"]["sample"] == sealed


@pytest.mark.parametrize(
    "models",
    [
        {"coder": FIRST, "second_coder": FIRST},
        {"coder": "gpt-4o", "second_coder": FIRST},
        {"second_coder": FIRST},
    ],
    ids=["the same name", "another name of it", "the run's own model"],
)
def test_the_same_coder_twice_is_refused_before_anything_is_asked(
    tmp_path: Path, models: dict[str, str]
) -> None:
    provider = coder(by_words)
    with pytest.raises(InputError, match="is already the coder"):
        run(tmp_path, provider, models=models, model=FIRST)
    assert not provider.calls


def test_one_model_in_every_seat_leaves_no_second_coder(tmp_path: Path) -> None:
    settings = {"models": {"coder": FIRST, "second_coder": SECOND}}
    done = folkmoot.run(STUDY, settings, model="synthetic", out=tmp_path / "run")
    assert not codes_by(done, "second_coder")
    assert "there is no second coder" in done.folder.text("run.log")
    assert (
        "the reliability of the codes is unknown" in coding.read_codings(done.folder)["price"].note
    )


def test_a_phrase_rule_is_compared_and_never_used(tmp_path: Path) -> None:
    nobody = coder(lambda text, _: [])
    done = run(tmp_path, nobody)
    assert codes_by(done, "rule") >= {("treated/day0", "too_dear"), ("treated/day3", "too_dear")}
    read = coding.read_codings(done.folder)["price"]
    assert not any(read.codes_by_text.values())
    found = coding.coding_finding(done.folder)
    assert found is not None
    rule = next(r for r in found.grid.rows if r[1] == "rule")
    alpha = dict(zip(found.grid.columns, rule, strict=True))["alpha"]
    assert isinstance(alpha, float) and alpha < 0.1


def test_codes_of_the_embedded_coder_are_marked_and_support_no_finding(tmp_path: Path) -> None:
    done = folkmoot.run(STUDY, {}, model="synthetic", out=tmp_path / "run")
    read = coding.read_codings(done.folder)["price"]
    assert read.codes_of("treated/day0") == {"too_dear": "Honestly, it’s far too expensive for me."}
    assert read.codes_of("treated/day2") == {}
    assert set(done.table("codes").filter(by="coder")["coder_kind"]) == {"embedded"}
    assert not read.supports_findings and "support no finding" in read.note
    assert done.folder.is_synthetic
    assert done.table("answers")["reasks"].sum() == 0


def test_with_coding_off_the_texts_are_kept_and_nobody_is_asked(tmp_path: Path) -> None:
    provider = coder(by_words)
    done = run(tmp_path, provider, coding=False)
    assert not provider.calls
    assert done.table("texts")["text"].to_list() == list(DIARIES)
    assert not codes_by(done)
    read = coding.read_codings(done.folder)["price"]
    assert not read.supports_findings and read.single_code("treated/day0") is None


def test_an_empty_text_is_not_coded_and_says_so(tmp_path: Path) -> None:
    provider = coder(by_words)
    done = run(tmp_path, provider, diaries=("  ", DIARIES[0]))
    assert provider.calls == 1
    row = done.table("codes").filter(text_id="treated/day0").row(0, named=True)
    assert row["code"] is None and row["refused"] == "no text"


def test_a_codebook_of_ones_own_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "price.yaml").write_text(
        "name: price\nquestion: Is it about a dog?\ncodes:\n  - {name: dog, definition: A dog.}\n"
    )
    provider = coder(lambda text, _: [{"code": "Dog", "quote": "dog"}] if "dog" in text else [])
    done = run(tmp_path, provider, coding={"codebooks": str(own)})
    assert ("treated/day2", "dog") in codes_by(done)


def test_a_mistake_in_a_codebook_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "price.yaml"
    path.write_text(
        "name: price\nquestion: What?\nchoose: many\ncodes:\n"
        "  - {name: dear, definition: Too dear.}\n  - {name: dog, definiton: A dog.}\n"
    )
    with pytest.raises(InputError) as told:
        coding.read_codebook(path)
    lines = {(p.where, p.key) for p in told.value.problems}
    assert ("3", "choose") in lines and any(where == "6" for where, _ in lines)
    assert all(p.file == str(path) for p in told.value.problems)


def test_a_text_that_the_model_will_not_read_is_missing_with_its_reason(tmp_path: Path) -> None:
    def refuses(text: str, _request: ModelRequest) -> Codes:
        if "dog" in text:
            raise RefusedError("too long for me", reason="too_long")
        return by_words(text)

    done = run(tmp_path, coder(refuses))
    row = done.table("codes").filter(text_id="treated/day2", by="coder").row(0, named=True)
    assert row["code"] is None and row["refused"] == "too_long"
    assert coding.read_codings(done.folder)["price"].codes_of("treated/day2") is None


def test_coders_are_asked_at_temperature_zero(tmp_path: Path) -> None:
    provider = coder(by_words)
    run(tmp_path, provider, temperature=1.3)
    assert {r.temperature for _, r in provider.seen} == {0.0}


@pytest.mark.parametrize(
    "texts",
    [
        [coding.TextToCode("a", "Hm."), coding.TextToCode("a", "Oh.")],
        [coding.TextToCode("a", "Hm.")],
    ],
    ids=["duplicate id", "no values"],
)
def test_texts_that_could_not_be_told_apart_are_refused(texts: list[coding.TextToCode]) -> None:
    slots = {} if len(texts) == 2 else {"who": "of whom"}
    codes = (coding.Code(name="yes", definition="Yes."),)
    book = coding.Codebook(name="b", question="?", slots=slots, codes=codes)
    with pytest.raises(ProtocolError, match="coding by b"):
        require_unique_texts(texts, book)
