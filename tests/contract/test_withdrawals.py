"""A participant of each study type withdraws.

All their words are removed, however files and prompts spell them. Every word of another speaker
stays.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import count, cycle, product
from pathlib import Path

import polars as pl
import pytest
from pydantic import JsonValue

import folkmoot
from folkmoot import Speaker
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.personal_texts import QUOTATION, find_personal_texts
from folkmoot.engine.seats.redaction import WITHDRAWAL_MARK
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.study.study import (
    FAILED_FINDING_KEY,
    compute_findings,
    find_study,
    registered_studies,
)
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import people_of, small_study
from tests.helpers_provenance import write_prompts_in_capitals
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

PLAYABLE = {"negotiation": ("conditions=[C1, C2]",), "town_hall": ("levels=[4]",)}
# Texts in which each @ becomes a word that no other speaker uses.
TEXTS = (
    'She said "@ @ @ @" & <b>@ @</b>: it\'s @ @ @.',
    "@ @ @ @.\n\n- @ @\n- @\n\n“@”",
    '{"a": "@ @ @", "b": ["@"]}',
    "=@ @ @ @",
    "İ @ ß @ ﬁ @ 😀 @ \u2028 @\u00a0@  @",
    "{{ @ @ @ @ }} {% if @ %}",
    "**@ @** _@ @_ `@ @ @` # @",
    "@ @ @ @\r\n@ @\t@ @\r@",
    r"C:\new @ @ \u0041 @ \" @ @\n@",
    "&lt;@ @ &amp; AT&T; @ @",
    "@ @",
    "@",
    " ".join(["@"] * 60) + ".",
)
WORD = re.compile(r"zq[to]\d+z", re.IGNORECASE)
QUOTABLE = re.compile(r"(?:zqt\d+z[ .]?){4,6}", re.IGNORECASE)


def change_texts(text: str, change: Callable[[str], str]) -> str:
    """Return a reply in which each sentence is changed."""

    def walk(value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return change(value) if " " in value else value
        if isinstance(value, list):
            return [walk(part) for part in value]
        return {k: walk(v) for k, v in value.items()} if isinstance(value, dict) else value

    try:
        return json.dumps(walk(json.loads(text)), ensure_ascii=False)
    except ValueError:
        return change(text)


def make_speaking_model(study: str, place: Seat) -> ScriptedProvider:
    """Return a model with unusual texts of the participant, which leading roles quote."""
    people, numbers, texts = people_of(study), count(), cycle(TEXTS)

    def fill(text: str, owner: str) -> str:
        return re.sub("@", lambda _: f"zq{owner}{next(numbers)}z", text)

    def answer(request: ModelRequest, address: str) -> Completion:
        reply, asked = people.reply(request, address), request.hints
        if asked.kind in ("choice", "number"):
            return reply
        who = Speaker(asked.speaker, role=asked.role)
        is_own = place.owns_call(who, address.split("/"))

        def say(_: str) -> str:
            if is_own:
                return fill(next(texts), "t")
            shown = (request.messages[s.message].content[s.start : s.end] for s in request.spans)
            quoted = [match[0] for text in shown for match in QUOTABLE.finditer(text)]
            leads = asked.role != "participant" and quoted
            return (f"“{quoted[0]}”, they said. " if leads else "") + fill("@ @ @ @ @.", "o")

        return reply._replace(text=change_texts(reply.text, say))

    return ScriptedProvider(answer)


def count_words(run: RunFolder) -> Counter[tuple[str, str]]:
    """Count each unusual word in each file, table, request and reply."""
    found: Counter[tuple[str, str]] = Counter()

    def add(where: str, text: str) -> None:
        found.update((where, word.casefold()) for word in WORD.findall(text))

    for path in (p for p in run.path.rglob("*") if p.is_file() and p.suffix != ".sqlite"):
        where = path.relative_to(run.path).as_posix()
        is_table = path.suffix == ".parquet"
        add(where, pl.read_parquet(path).write_json() if is_table else path.read_text("utf-8"))
    with JournalReader(run.path / "journal.sqlite") as journal:
        for entry in journal.read_entries("ask"):
            add(f"prompt {entry.address}", json.dumps(entry.request))
            add(f"reply {entry.address}", entry.reply)
    return found


CASES = [*product(sorted(registered_studies()), ("shipped", "in capitals"))]
# Daily in capitals, where nothing is found by text. test_people takes back a participant's words
# with unchanged prompts daily.
DAILY = [("cross_pollination", "in capitals")]


@pytest.mark.parametrize(("study", "prompts"), sample_daily(CASES, DAILY, part="mutations"))
def test_a_withdrawal_removes_unusual_texts_and_their_quotations(
    study: str, prompts: str, tmp_path: Path
) -> None:
    overrides = PLAYABLE.get(study, ())
    path = small_study(study, tmp_path)
    found = load_study_file(path, overrides)
    place = next(p for p in found.study.seats(found.config, tmp_path) if not p.closed_reason)
    if prompts == "in capitals":
        folder = write_prompts_in_capitals(tmp_path / "own", find_study(study))
        overrides = (*overrides, f"prompts={folder}")
    model = make_speaking_model(study, place)
    out = tmp_path / "run"
    run = folkmoot.run(path, provider=model, model="scripted/x", out=out, overrides=overrides)
    before = count_words(run.folder)
    with JournalReader(out / "journal.sqlite") as journal:
        replies = {entry.address: entry.reply for entry in journal.read_entries("ask")}
    personal = find_personal_texts(run.folder, place)
    withdraw_texts(run.folder, personal, "researcher")
    after = count_words(RunFolder(out))
    assert [at for at in after if at[1].startswith("zqt")] == []
    # A summary of the person's words alone is theirs.
    theirs = {w.casefold() for a in personal.summaries for w in WORD.findall(replies[a])}
    words = {at: n for at, n in before.items() if at[1].startswith("zqo") and at[1] not in theirs}
    assert {at: n for at, n in words.items() if after[at] != n} == {}
    assert len(words) > 50
    quoted = any(reply.use == QUOTATION for reply in personal.replies)
    assert quoted or study == "negotiation"  # no mediator speaks under its first conditions
    wrong = find_wrong_sources(RunFolder(out), find_study(study).tables)
    assert [found for found in wrong if not WITHDRAWAL_MARK.search(found.text)] == []


NAMED = re.compile(r'("(?:target|target_agent|agent_id)": )"[^"]+"')


def test_a_long_text_in_a_field_for_a_name_is_removed(tmp_path: Path) -> None:
    """Tables and logs of repairs hold such a text cut off."""
    path, people = small_study("town_hall", tmp_path), people_of("town_hall")
    found = load_study_file(path, ("levels=[4]",))
    place = next(p for p in found.study.seats(found.config, tmp_path) if not p.closed_reason)
    written = json.dumps(" ".join(f"zqt{number}z" for number in range(100, 140)))

    def answer(request: ModelRequest, address: str) -> Completion:
        reply, asked = people.reply(request, address), request.hints
        who = Speaker(asked.speaker, role=asked.role)
        if asked.kind != "json" or not place.owns_call(who, address.split("/")):
            return reply
        return reply._replace(text=NAMED.sub(rf"\g<1>{written}", reply.text))

    run = folkmoot.run(
        path,
        provider=ScriptedProvider(answer),
        model="scripted/x",
        out=tmp_path / "run",
        overrides=("levels=[4]",),
    ).folder
    before = count_words(run)
    assert any(at.startswith("tables/repairs.") for at, _ in before)
    assert any(at.startswith("logs/") and word == "zqt100z" for at, word in before)
    withdraw_texts(run, find_personal_texts(run, place), "researcher")
    after = count_words(RunFolder(run.path))
    assert [at for at in after if at[1].startswith("zqt")] == []
    # A word that was cut off as well.
    assert "zqt" not in (run.path / "tables" / "repairs.csv").read_text("utf-8")


WISHES = (
    # The option is a part of the text.
    "I would prefer my zqt1z zqt2z museum, please.",
    "Honestly, I want zqt3z!",
    # The option has other punctuation than the text.
    "zqt4z-zqt5z (zqt6z)",
)


@pytest.mark.parametrize("wish", sample_daily(WISHES, daily=1, part="sweeps"))
def test_an_option_that_a_wish_of_the_human_led_to_is_removed(wish: str, tmp_path: Path) -> None:
    path, people = small_study("negotiation", tmp_path), people_of("negotiation")
    overrides = PLAYABLE["negotiation"]
    found = load_study_file(path, overrides)
    place = next(p for p in found.study.seats(found.config, tmp_path) if not p.closed_reason)

    def answer(request: ModelRequest, address: str) -> Completion:
        reply, asked = people.reply(request, address), request.hints
        who = Speaker(asked.speaker, role=asked.role)
        is_wish = address.startswith("preferences/") and place.owns_call(who, address.split("/"))
        return reply._replace(text=wish) if is_wish else reply

    run = folkmoot.run(
        path,
        provider=ScriptedProvider(answer),
        model="scripted/x",
        out=tmp_path / "run",
        overrides=overrides,
    ).folder
    before = count_words(run)
    option_words = {word for at, word in before if at == "tables/options.csv"}
    assert any(word.startswith("zqt") for word in option_words)
    usual_options = run.read_table("options").filter(usual=True)["option"].to_list()
    withdraw_texts(run, find_personal_texts(run, place), "researcher")
    after = RunFolder(run.path)
    assert [at for at in count_words(after) if at[1].startswith("zqt")] == []
    assert after.read_table("options").filter(usual=True)["option"].to_list() == usual_options


# Daily in the type with findings on embeddings, which a withdrawal deletes.
@pytest.mark.parametrize(
    "study", sample_daily(sorted(registered_studies()), ["cross_pollination"], part="mutations")
)
def test_the_findings_stay_after_withdrawals_of_participants_of_all_conditions(
    study: str, tmp_path: Path
) -> None:
    path, overrides = small_study(study, tmp_path), PLAYABLE.get(study, ())
    found = load_study_file(path, overrides)
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run", overrides=overrides).folder
    keys = [finding.key for finding in compute_findings(found.study, run)]
    assert FAILED_FINDING_KEY not in keys
    places = [p for p in found.study.seats(found.config, tmp_path) if not p.closed_reason]
    for place in places[:: max(1, len(places) // 4)]:
        withdraw_texts(run, find_personal_texts(run, place), "researcher")
        run = RunFolder(run.path)
        findings = compute_findings(found.study, run)
        assert [finding.key for finding in findings] == keys, place.name
