"""Coders who do not know the condition code the transcripts, to check the record."""

from __future__ import annotations

import json
import re
from typing import Any

from folkmoot.models.request import ModelRequest
from tests.studies.negotiation.conftest import Runner, reply_sensibly, select_groups


def reply_as_coder(request: ModelRequest, **codes: Any) -> str:
    """Reply as a coder: `codes` by option where units have options, otherwise the first code."""
    item = request.schema["properties"]["codes"]["items"]["properties"]
    text = request.messages[1].content
    if "option" not in item:
        quote = text.split()[0]
        return json.dumps({"codes": [{"code": item["code"]["enum"][0], "quote": quote}]})
    given = [
        {"option": o, "member": m, "code": codes.get(o, "dropped"), "quote": text.split()[0]}
        for o in item["option"]["enum"]
        for m in item["member"]["enum"]
        if "every" not in (o, m)
    ]
    return json.dumps({"codes": given})


def reply(request: ModelRequest, address: str) -> str:
    if request.schema and request.schema["title"] == "Codes":
        return reply_as_coder(request, museums="chosen", barbecue="chosen")
    return reply_sensibly(request, address)


def test_what_is_coded_and_what_the_coder_sees(run_negotiation: Runner) -> None:
    seen: dict[str, str] = {}

    def listening(request: ModelRequest, address: str) -> str:
        if address.startswith("coding/"):
            seen[address] = "\n".join(m.content for m in request.messages)
        return reply(request, address)

    run = run_negotiation(
        listening, groups=select_groups("team", size=2), conditions=["C3", "C4", "C5"], coding="on"
    )
    texts = run.table("texts")
    by = dict(texts.group_by("codebook").len().rows())
    rounds = run.table("decisions").filter(condition="C5")["feedback_rounds"]
    assert by == {"conflict": 8, "mediator": 8, "decision": 8 + 8 + (rounds > 0).sum()}
    assert set(texts.filter(codebook="mediator")["text_id"].str.split("/").list.get(1)) == {"C3"}
    for address, prompt in seen.items():
        # The prompt reveals the condition neither directly nor by a strategy or the form of a turn.
        words = prompt.split("```")[-1] if "```" in prompt else prompt
        assert not re.search(r"\bC[1-5]\b|Strategy:|Next step:|Conflict:", words), address
    talk = next(t for a, t in seen.items() if a.startswith("coding/decision"))
    assert "“" not in talk and "Colleague 1: " in talk


def test_the_report_sets_the_codes_beside_the_record(run_negotiation: Runner) -> None:
    """The scripted mediator gives barbecue (cuisine) and museums (attraction) to all members."""
    run = run_negotiation(reply, groups=select_groups("team"), conditions=["C3"], coding="on")
    found = {f.key: f for f in run.findings}
    assert "coding" in found
    (row,) = found["coded_decisions"].grid.rows
    got = dict(zip(found["coded_decisions"].grid.columns, row, strict=True))
    records = run.table("portions")
    others = records.filter(~records["option"].is_in(["barbecue", "museums"]))
    assert (got["only_coded"], got["only_recorded"]) == (0, len(others))
    assert 0 < got["as_recorded_rate"] < 1
    assert any("scripted/test" in note for note in found["coded_decisions"].notes)
    assert found["coded_purity"].counted == "1 group"
    assert "1 group. 8 of 8 proposals" in found["coded_purity"].says
    assert "8 of 8 sets" in found["coded_conflict"].says


def test_with_coding_off_texts_are_kept_and_nothing_is_found(run_negotiation: Runner) -> None:
    off = run_negotiation(reply, groups=select_groups("pair"), conditions=["C3", "C4"])
    keys = {f.key for f in off.findings}
    assert not off.table("texts").is_empty() and off.table("codes").filter(by="coder").is_empty()
    assert not {"coded_decisions", "coded_purity", "coded_conflict"} & keys


def test_listed_words_are_a_coder_of_their_own(run_negotiation: Runner) -> None:
    def theorising(request: ModelRequest, address: str) -> str:
        if request.schema and request.schema["title"] == "Codes":
            return reply_as_coder(request)
        return reply_sensibly(request, address, resolution_explanation="By majority rule, a diner.")

    run = run_negotiation(theorising, groups=select_groups("pair"), conditions=["C3"], coding="on")
    rule = run.table("codes").filter(by="rule")
    assert set(rule["quote"]) == {"majority rule"} and set(rule["code"]) == {"names_theory"}
    assert set(run.table("decisions")["theory_words"]) == {"majority rule"}
    found = {f.key: f for f in run.findings}
    assert "rule" in [row[1] for row in found["coding"].grid.rows]
