"""Coding of free texts: objections, needs and themes of all groups with quotes, and whether stated
positions fit the texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import write_report
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.reading import kind_and_name
from tests.studies.focus_group.at_hand import ANSWER_TEXTS
from tests.studies.focus_group.test_focus_group_run import reply_plainly, run_focus_group

CODES_BY_TEXT = {
    ANSWER_TEXTS[0]: ("need_easy", "save me time"),
    ANSWER_TEXTS[1]: ("objection_fit", "I don't need that"),
    ANSWER_TEXTS[2]: ("objection_price", "the price is too high"),
}


def code_correctly(request: ModelRequest, address: str) -> str:
    """Return the replies of a coder who codes the scripted participants correctly."""
    text = request.messages[-1].content
    if address.startswith("coding/remarks"):
        found = [CODES_BY_TEXT[text]] if text in CODES_BY_TEXT else []
        return json.dumps({"codes": [{"code": c, "quote": q} for c, q in found]})
    if address.startswith("coding/opinion"):
        return json.dumps({"codes": [{"code": "favourable", "quote": "It has its points."}]})
    return reply_plainly(request, address)


def read_findings(run: RunFolder) -> dict[str, Finding]:
    return {f.key: f for f in STUDY.findings(run)}


THREE_GROUPS = "replications: 3\nnum_personas: 4\nmax_responses_per_question: 3\n"


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, ScriptedProvider]:
    """A run with the coder `code_correctly`, and its model. Tests only read it."""
    model = ScriptedProvider(code_correctly, keep_requests=True)
    return run_focus_group(tmp_path_factory.mktemp("coded"), THREE_GROUPS, provider=model), model


def test_objections_and_needs_are_counted_by_people_over_all_groups(
    coded: tuple[RunFolder, ScriptedProvider],
) -> None:
    run, _ = coded
    said = read_talk(run).filter(speaker_role="participant")
    talk = said.filter(said["phase"] != "warmup")
    rows = {(r[0], r[1]): r for r in read_findings(run)["remarks"].grid.rows}
    for line, (code, quote) in CODES_BY_TEXT.items():
        who = talk.filter(text=line).select("group", "speaker_id").unique()
        kind, name = kind_and_name(code)
        assert rows[kind, name][2:5] == (who.height, who.height / 12, who["group"].n_unique())
        assert quote in str(rows[kind, name][-1])
    assert len(rows) == len(CODES_BY_TEXT)
    assert "of 12 people, in 3 of 3 groups" in read_findings(run)["remarks"].says
    assert any("Coded by" in note for note in read_findings(run)["remarks"].notes)
    (concept,) = run.read_json("topline.json")["concepts"]
    by_turn = {(r["group"], r["turn"]): r["text"] for r in said.iter_rows(named=True)}
    for kind in ("objections", "needs"):
        for each in concept[kind]:
            assert each["people"] == rows[kind[:-1], each["theme"]][2]
            for quote in each["quotes"]:
                assert quote["quote"] in by_turn[quote["group"], quote["turn"]]
                assert quote["link"].startswith(f"groups/{quote['group']}/transcript.html#turn-")
    assert "### Needs" in run.text("topline.md") and "save me time" in run.text("topline.md")
    assert "support no finding" not in run.text("topline.md")


def test_answers_of_the_warm_up_are_said_not_to_be_coded(
    coded: tuple[RunFolder, ScriptedProvider], tmp_path: Path
) -> None:
    not_coded = "Answers of the warm-up are not coded"
    assert any(not_coded in note for note in read_findings(coded[0])["remarks"].notes)
    assert not_coded not in coded[0].text("topline.md")
    warm_up = run_focus_group(
        tmp_path, "num_personas: 3\nphases: [warmup]\n", provider=ScriptedProvider(code_correctly)
    )
    page = warm_up.text("topline.md")
    assert not_coded in page and "Nothing has been coded yet" not in page


def test_a_topline_says_that_the_embedded_coder_supports_nothing(tmp_path: Path) -> None:
    run = run_focus_group(tmp_path, "num_personas: 3\n", provider=None, model="synthetic")
    note = run.read_json("topline.json")["coding_note"]
    assert "support no finding" in note and note in run.text("topline.md")


def test_codes_of_the_embedded_coder_are_never_laid_out_like_findings(tmp_path: Path) -> None:
    """One line names the missing finding. Only the table contains the codes."""
    concepts = (
        "stimuli:\n  - {name: a, product_concept: An oven}\n  - {name: b, product_concept: A box}\n"
    )
    run = run_focus_group(
        tmp_path, f"num_personas: 3\n{concepts}", provider=None, model="synthetic"
    )
    codes = run.read_table("codes")
    given = codes.filter(codes["codebook"] == "remarks")["code"].unique().to_list()
    assert len([code for code in given if code and code.startswith("objection")]) >= 1
    said = read_findings(run)
    for key in ("remarks_a", "remarks_b", "words_and_positions_a", "words_and_positions_b"):
        assert "would be shown here" in said[key].says and "support no finding" in said[key].says
        assert said[key].grid.rows == () and said[key].chart is None and not said[key].headline
    text = run.text("topline.md")
    assert "would be shown here" in text
    assert "### Objections\n" not in text and "Most frequent objection" not in text
    for concept in run.read_json("topline.json")["concepts"]:
        assert concept["objections"] == concept["needs"] == concept["themes"] == []


def test_the_coder_knows_neither_group_nor_concept_nor_person(
    coded: tuple[RunFolder, ScriptedProvider],
) -> None:
    run, scripted = coded
    names = run.read_table("personas")["name"].to_list()
    asked = [r for a, r in scripted.seen if a.startswith("coding/")]
    assert asked
    for request in asked:
        told = "\n".join(m.content for m in request.messages)
        assert "group_0" not in told and "scans ready meals" not in told
        assert not any(name in told for name in names)


def test_stated_positions_are_held_against_the_words(
    coded: tuple[RunFolder, ScriptedProvider], tmp_path: Path
) -> None:
    def stating(request: ModelRequest, address: str) -> str:
        if request.schema is not None and request.schema["title"] == "PrivateOpinion":
            return json.dumps({"opinion": "It has its points.", "position": 0.5})
        return code_correctly(request, address)

    found = read_findings(
        run_focus_group(tmp_path, THREE_GROUPS, provider=ScriptedProvider(stating))
    )["words_and_positions"]
    assert "same side in 100 % of 24 private statements" in found.says
    mixed, _ = coded
    statements = mixed.read_table("statements")
    stated = statements.filter(statements["when"] != "retest")["position"]  # these are not coded
    row = read_findings(mixed)["words_and_positions"].grid.rows[0]
    assert row[1] == pytest.approx((stated >= 0.05).sum() / 24)


def test_replies_of_a_second_coder_are_no_replies_of_participants(
    coded: tuple[RunFolder, ScriptedProvider], tmp_path: Path
) -> None:
    def code_badly_second(request: ModelRequest, address: str) -> str:
        if address.startswith("second_coding/opinion"):
            return json.dumps({"codes": [{"code": "declined", "quote": ""}]})
        if address.startswith("second_coding/"):
            return "I can't help with that."
        return code_correctly(request, address)

    second_coder = "models: {second_coder: openai/gpt-4o}\n"
    run = run_focus_group(
        tmp_path, THREE_GROUPS + second_coder, provider=ScriptedProvider(code_badly_second)
    )
    reasons = run.read_table("answers").filter(role="second_coder")["missing"]
    assert {"declined", "unparsed"} <= {*reasons} and len(reasons) > 20
    of_one_coder = read_findings(coded[0])["respondent_checks"]
    assert read_findings(run)["respondent_checks"] == of_one_coder
    page = write_report(run).read_text("utf-8")
    assert "answers have no valid value" not in page
    assert "3 groups" in page and "4 groups" not in page and "5 groups" not in page


def test_without_a_coder_nothing_is_found_and_it_is_said(tmp_path: Path) -> None:
    run = run_focus_group(tmp_path, "coding: off\n", provider=ScriptedProvider(code_correctly))
    assert not {"remarks", "words_and_positions"} & set(read_findings(run))
    assert "Nothing has been coded yet" in run.text("topline.md")
    assert run.read_table("texts").height > 20 and run.read_table("codes").is_empty()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("objection_price", ("objection", "price")),
        ("need_easy", ("need", "easy")),
        ("taste_sweet", ("theme", "taste_sweet")),
        ("objection", ("theme", "objection")),
    ],
)
def test_codes_of_a_users_own_codebook_are_themes(code: str, kind: tuple[str, str]) -> None:
    assert kind_and_name(code) == kind
