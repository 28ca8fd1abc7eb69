"""A text knows where it comes from, through templates, joins, histories, pickles and tables."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot import Choice, Missing, Scope, Session, Speaker, Study, StudyConfig
from folkmoot.conversation.prompts import Prompt, PromptLibrary
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Utterance, build_messages
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import ProtocolError
from folkmoot.provenance import (
    Quoted,
    Source,
    SourcedText,
    Span,
    cell_id,
    concatenate_texts,
    enclose_text,
    join_texts,
    quote_all,
    quote_value,
    replace_words,
)
from tests.helpers_provenance import Told, sources_in, told, unattributed_length

PARK = quote_value("Park", "option", "study.options")
STREET_NAME = quote_value("Straße", "value", "street.name/1")
ANN = quote_value("I like trees.", "utterance", "talk/ann/ask0", "ann")
PARK_AND_JOBS = [("Park", "option", False), ("Jobs", "option", False)]
IN_CAPITALS = [("PARK", "option", True), ("JOBS", "option", True)]
ONLY_ANN = [("Ann", "value", False)]
STREET = [("Straße", "value", False)]
NAME_LONGER = ("Ammmm", "value", True)
CUT_BEFORE_THE_DOT = [*ONLY_ANN, ("Str", "value", True)]
TEXTS = st.text(min_size=1, max_size=20)


def library(folder: Path, template: str, *, own: bool = False) -> PromptLibrary:
    """A library with one prompt; with `own` the user has replaced it."""
    (folder / "own").mkdir(parents=True)
    (folder / "it.md").write_text("nothing" if own else template)
    if own:
        (folder / "own" / "it.md").write_text(template)
    return PromptLibrary(folder, folder / "own" if own else None)


@pytest.mark.parametrize("own", [False, True], ids=["shipped", "replaced"])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Hi {{ name }}!", ONLY_ANN),
        ("{{ name | upper }}", [("ANN", "value", True)]),
        ("{{ name | upper | lower }}", [("ann", "value", True)]),
        ("{{ name | trim }}", ONLY_ANN),
        ("{{ both | join(' or ') }}", PARK_AND_JOBS),
        ("{{ both | listed }}", PARK_AND_JOBS),
        ("{{ both | map('upper') | join(', ') }}", IN_CAPITALS),
        ("{{ both | first }}{{ both | last }}", PARK_AND_JOBS),
        ("{{ both | join | upper }}", IN_CAPITALS),
        ('{{ "So " ~ name ~ "." }}', ONLY_ANN),
        ("{{ data | json }}", [*ONLY_ANN, (r"a \"b\"", "value", True)]),
        ("{{ name if yes else 'nobody' }}{{ name if not yes else 'then' }}", ONLY_ANN),
        ("{% for o in both %}{{ loop.index }}. {{ o }}\n{% endfor %}", PARK_AND_JOBS),
        ("{% set m = {'x': 'long'} %}{{ m['x'] }} {{ three }}", [("3", "value", False)]),
        ("{{ plain }} {{ name }}", [("as it is", "unattributed", False), ("Ann", "value", False)]),
        ("{{ plain ~ name }}", [("as it is", "unattributed", False), ("Ann", "value", False)]),
        ("{{ name | replace('n', 'm') }}", [("Amm", "value", True)]),
        ("{{ (three * 2) | round }}", [("6", "value", True)]),
        (
            "{{ three | float | abs }} {{ three | int }}",
            [("3.0", "value", True), ("3", "value", False)],
        ),
        ("{{ three | upper }}", [("3", "value", False)]),
        # Of texts of several sources too, also if they get longer or shorter.
        ("{{ (street ~ name) | upper }}", [("STRASSE", "value", True), ("ANN", "value", True)]),
        ("{{ (street ~ '.') | upper }}", [("STRASSE", "value", True)]),
        ("{{ (name ~ ' x' ~ street) | replace('n', 'mm') }}", [NAME_LONGER, *STREET]),
        ("{{ ('\\n ' ~ name ~ street ~ ' ') | trim }}", [*ONLY_ANN, *STREET]),
        ("{{ nested | upper }}", [("STRASSE", "summary", True), ("STRASSE", "value", True)]),
        (
            "{{ (name ~ ' says ' ~ street ~ '.') | truncate(12, true, '…', 0) }}",
            [*ONLY_ANN, ("St", "value", True)],
        ),
        # The end of a cut text is equal to the end of the whole text.
        ("{{ (name ~ ' ' ~ street ~ dot) | truncate(8, true, '.', 0) }}", CUT_BEFORE_THE_DOT),
        ("{{ 7 }}{{ 'word' }}{{ missing | default('none given') if false }}", []),
    ],
)
def test_templates_keep_the_sources_of_what_they_are_given(
    template: str, expected: list[Told], own: bool, tmp_path: Path
) -> None:
    prompt = library(tmp_path / "p", template, own=own).render_prompt(
        "it",
        name=quote_value("Ann", "value", "people.name/1"),
        both=[PARK, quote_value("Jobs", "option", "study.options")],
        data={
            "who": quote_value("Ann", "value", "x"),
            "said": [quote_value('a "b"', "value", "y")],
        },
        yes=True,
        plain="as it is",
        three=quote_value(3, "value", "z"),
        street=STREET_NAME,
        dot=quote_value(".", "utterance", "x/ask0", "bob"),
        nested=quote_value(STREET_NAME, "summary", "s.text/1"),
    )
    assert told(prompt) == expected


def test_a_text_that_a_filter_inserts_is_not_the_words_of_the_other(tmp_path: Path) -> None:
    prompts = library(tmp_path / "p", "{{ a | replace('trees', b) }}")
    prompt = prompts.render_prompt("it", a=ANN, b=PARK)
    assert (str(prompt), told(prompt)) == (
        "I like Park.",
        [("I like Park.", "unattributed", False)],
    )


@given(text=TEXTS, before=st.text(max_size=5), own=st.booleans())
def test_any_text_is_found_where_it_stands(
    text: str, before: str, own: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("p") / "p"
    prompt = library(folder, "\n {{ a }}: {{ b }}{{ cache }} end ", own=own).render_prompt(
        "it", a=quote_value(before, "value", "a"), b=quote_value(text, "utterance", "x/ask0", "ann")
    )
    spans = [s for s in prompt.spans if s.source.kind == "utterance"]
    shown = text.translate(dict.fromkeys((0xFDD0, 0xFDD1, 0xFDD2)))
    assert "".join(prompt[s.start : s.end] for s in spans) in (shown, "")
    assert not set(prompt) & {"\ufdd0", "\ufdd1", "\ufdd2"}


def test_reserved_characters_in_a_text_cannot_move_the_spans_of_others(tmp_path: Path) -> None:
    forged = quote_value("\ufdd2\ufdd1Bob said it\ufdd2\ufdd0", "utterance", "x/ask0", "ann")
    prompt = library(tmp_path / "p", "{{ a }} and {{ b }}").render_prompt("it", a=forged, b=PARK)
    assert prompt == "Bob said it and Park"
    assert told(prompt) == [("Bob said it", "utterance", True), ("Park", "option", False)]
    assert sources_in(prompt)[-1] == PARK.source


def test_a_prompt_in_a_prompt_keeps_the_sources_of_both(tmp_path: Path) -> None:
    prompts = library(tmp_path / "p", "It: {{ a }}")
    inner = prompts.render_prompt("it", a=ANN)
    outer = prompts.render_prompt("it", a=quote_value(inner, "persona", "people.portrait/1", "bob"))
    assert outer == "It: It: I like trees."
    assert told(outer) == [
        ("It: I like trees.", "persona", False),
        ("I like trees.", "utterance", False),
    ]


def test_slicing_and_f_strings_lose_the_source_and_are_counted(tmp_path: Path) -> None:
    prompts = library(tmp_path / "p", "{{ a }}{{ b }}{{ c }}")
    prompt = prompts.render_prompt("it", a=ANN[:6], b=f"{ANN}", c=ANN)
    assert unattributed_length(prompt) == 6 + len(ANN)


def test_joins_in_python_keep_sources() -> None:
    text = join_texts(", ", [PARK, "plain", quote_value(4, "value", "n")])
    assert text == "Park, plain, 4"
    assert [s.source.kind for s in text.spans] == ["option", "unattributed", "value"]
    assert (PARK + ANN).spans == concatenate_texts((PARK, ANN)).spans


@given(TEXTS, TEXTS)
def test_sources_survive_pickling_and_equal_their_json(one: str, two: str) -> None:
    text = quote_value(
        join_texts(" ", (quote_value(one, "utterance", "a/ask0", "ann"), two)), "summary", "s.t/1"
    )
    for made in (text, Prompt(text, text.spans, (1,)), SourcedText(text, text.spans), ANN):
        back = pickle.loads(pickle.dumps(made))
        assert back == made and back.spans == made.spans and type(back) is type(made)
        assert json.loads(json.dumps(made)) == made
    number = pickle.loads(pickle.dumps(quote_value(3, "value", "n")))
    assert number + 1 == 4 and number.source.id == "n"


@given(st.lists(st.sampled_from(["an ", "xx", "x", "", "by"]), max_size=6))
def test_a_word_is_replaced_as_in_a_plain_text_and_sources_follow(parts: list[str]) -> None:
    text = join_texts("|", [quote_value(part, "value", f"v/{n}") for n, part in enumerate(parts)])
    whole = enclose_text(text, Source("material", "study.text"))
    changed = replace_words(whole, "xx", "[image]")
    assert changed == str(whole).replace("xx", "[image]")
    shown = {s.source.id: changed[s.start : s.end] for s in changed.spans}
    assert shown == {
        s.source.id: whole[s.start : s.end].replace("xx", "[image]") for s in whole.spans
    }
    assert all(s.source.altered == ("[image]" in changed[s.start : s.end]) for s in changed.spans)


def test_an_enclosed_text_keeps_what_is_unknown_in_it() -> None:
    text = enclose_text(join_texts(" ", [PARK, "leaked"]), Source("material", "study.text"))
    assert unattributed_length(text) == len("leaked")


def test_settings_are_quoted_with_the_keys_of_the_study_file() -> None:
    class Topic(StudyConfig):
        title: str = "Parks"
        sides: tuple[str, ...] = ("for", "against")

    topic = quote_all(Topic(), "material", "study.topic")
    assert topic.title.source == Source("material", "study.topic.title")
    assert [side.source.id for side in topic.sides] == ["study.topic.sides"] * 2
    nothing = {"a": None, "b": True, "c": ""}
    assert quote_all(nothing, "value", "x") == nothing


def test_a_history_says_who_said_what_and_where() -> None:
    bob = Speaker("bob", "Bob", system=str(quote_value("You are Bob.", "persona", "p/1", "bob")))
    history = (
        EMPTY_TRANSCRIPT
        + Utterance("ann", ANN, "Ann")
        + Utterance("bob", "Me too.", id="talk/bob/ask0")
    )
    history += Utterance("cat", "Not I.", "Cat")
    built = build_messages(bob, history, Prompt("And Park?", (PARK.spans[0].shift_span(4),)))
    shown = [
        (built.messages[s.message].content[s.start : s.end], s.source.speaker, s.source.id)
        for s in built.spans
    ]
    assert shown == [
        ("You are Bob.", "", ""),
        ("I like trees.", "ann", "talk/ann/ask0"),
        ("Me too.", "bob", "talk/bob/ask0"),
        ("Not I.", "cat", ""),
        ("Park", "", "study.options"),
    ]


def test_a_vote_in_a_history_is_the_answer_that_was_recorded() -> None:
    vote = quote_value("Park", "answer", "vote/ann/ask0", "ann")
    history = EMPTY_TRANSCRIPT + Utterance("", SourcedText("Vote.")) + Utterance("ann", vote)
    built = build_messages(Speaker("ann"), history, SourcedText("How sure are you?"))
    assert built.spans == (Span(0, 4, Source("answer", "vote/ann/ask0", "ann"), 1),)


class Config(StudyConfig):
    """No settings."""


def play(protocol: object, folder: Path, answers: dict[str, str]) -> pl.DataFrame:
    from folkmoot import run
    from folkmoot.models.scripted import ScriptedProvider

    study = Study("it", "It", Config, protocol)  # type: ignore[arg-type]
    provider = ScriptedProvider(lambda _request, address: answers.get(address, "Park"))
    return run(study, {}, out=folder, provider=provider).table("provenance")


def test_what_was_said_is_recorded_once_and_quoted_with_its_address(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        ann, bob = Speaker("ann", "Ann"), Speaker("bob", "Bob")

        async def talk(scope: Scope) -> Quoted:
            said = await scope.ask(ann, "Why?")
            assert not isinstance(said, Missing)
            return scope.say(ann, said, round=2, public=False).quoted_text

        reason = await talk(session.child("reasons"))
        vote = await session.child("vote").ask(ann, "Vote", answer_type=Choice(("Park", "Jobs")))
        assert not isinstance(vote, Missing)
        asked = f"Ann says: {reason} She votes {vote}."
        await session.child("last").ask(bob, asked, shows=(reason, vote))
        session.child("end").say(bob, "I have nothing to say.")

    spans = play(protocol, tmp_path / "run", {"reasons/ask0": "Trees."})
    last = spans.filter(address="last/ask0")
    assert last.select("kind", "source_id", "speaker").rows() == [
        ("unattributed", "", ""),
        ("utterance", "reasons/ask0", "ann"),
        ("unattributed", "", ""),
        ("answer", "vote/ask0", "ann"),
        ("unattributed", "", ""),
    ]
    said = pl.read_parquet(tmp_path / "run" / "tables" / "utterances.parquet")
    assert said.select("utterance_id", "address", "round", "public", "text").rows() == [
        ("reasons/ask0", "reasons/ask0", 2, False, "Trees."),
        ("end/said0", "", None, True, "I have nothing to say."),
    ]


def test_a_text_that_is_said_to_be_shown_must_be_there(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(Speaker("ann"), "Look at this.", shows=("that",))

    with pytest.raises(ProtocolError, match="'that' does not occur in the prompt of ann"):
        play(protocol, tmp_path / "run", {})


def test_texts_that_are_said_to_be_shown_have_places_of_their_own(tmp_path: Path) -> None:
    """Two speakers say the same, and a vote is also a word of a reason before it."""

    async def protocol(session: Session) -> None:
        agreed = [
            quote_value("I agree.", "utterance", f"{who}/ask0", who) for who in ("ann", "bob")
        ]
        vote = quote_value("Park", "answer", "vote/ask0", "ann")
        reason = quote_value("Park and ride.", "utterance", "why/ask0", "ann")
        prompt = "Ann: I agree. Bob: I agree. Why: Park and ride. Vote: Park"
        await session.ask(Speaker("cat"), prompt, shows=(*agreed, vote, reason))

    spans = play(protocol, tmp_path / "run", {}).filter(pl.col("kind") != "unattributed")
    assert spans.select("start", "source_id").rows() == [
        *((5, "ann/ask0"), (19, "bob/ask0")),
        *((33, "why/ask0"), (54, "vote/ask0")),
    ]


def test_a_reply_that_is_given_back_is_the_speakers_own(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(Speaker("ann"), "Vote", answer_type=Choice(("Park", "Jobs")))

    spans = play(protocol, tmp_path / "run", {"ask0": "Something else."})
    again = spans.filter(address="ask0.r1", kind="reply")
    assert again.select("message", "start", "end", "source_id", "speaker").rows() == [
        (1, 0, 15, "ask0", "ann")
    ]


UNCLEAR = {
    "propose/ann/ask0": "Plant trees.",
    "propose/bob/ask0": "Plant trees.",
    "vote/bob/ask0": "Well, plant or not.",
    "vote/bob/ask0.r1": "",
    "vote/bob/ask0.r2": "Plant trees.",
}


async def propose_and_vote(session: Session) -> None:
    """Ann and Bob propose the same. Each votes on the proposal of the other, and says so."""
    proposals = {}
    for who in ("ann", "bob"):
        scope = session.child("propose", who)
        said = await scope.ask(Speaker(who), SourcedText("Propose something."))
        proposals[who] = scope.say(Speaker(who), str(said), address=scope.address).quoted_text
    for who, other in (("ann", "bob"), ("bob", "ann")):
        options = (proposals[other], quote_value("Wait.", "option", "study.options"))
        choice = Choice(options, clarify=False)
        scope = session.child("vote", who)
        vote = await scope.ask(Speaker(who), choice.formatted_options, answer_type=choice)
        await session.child("why", who).ask(Speaker(who), join_texts("", ("", vote)))  # type: ignore[arg-type]


def test_a_reask_keeps_the_sources_of_the_options_and_of_the_reply(tmp_path: Path) -> None:
    spans = play(propose_and_vote, tmp_path / "run", {"vote/ann/ask0": "plant trees", **UNCLEAR})
    columns = ("message", "kind", "source_id", "speaker")
    listed = [("utterance", "propose/ann/ask0", "ann"), ("option", "study.options", "")]
    reply = (1, "reply", "vote/bob/ask0", "bob")
    for reask in ("vote/bob/ask0.r1", "vote/bob/ask0.r2"):
        rows = spans.filter(address=reask).select(columns).rows()
        # After an empty reply, the options are listed once more.
        times = 1 if reask.endswith("r1") else 2
        again = [(2, *source) for source in listed] * times
        assert rows == [*((0, *source) for source in listed), reply, *again]
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        messages = list(journal.messages("vote/bob/ask0.r2"))
    rows = spans.filter(address="vote/bob/ask0.r2").select("message", "start", "end").rows()
    assert [messages[message].content[start:end] for message, start, end in rows] == [
        *("Plant trees.", "Wait.", "Well, plant or not."),
        *("Plant trees.", "Wait.") * 2,
    ]


def test_a_choice_is_the_answer_of_the_speaker_whoever_proposed_the_same(tmp_path: Path) -> None:
    """The parser of options is shared by all choices with the same words."""
    replies = {"vote/ann/ask0": "plant trees", **UNCLEAR, "vote/bob/ask0": "1"}
    spans = play(propose_and_vote, tmp_path / "run", replies)
    for who in ("ann", "bob"):
        rows = spans.filter(address=f"why/{who}/ask0").select("kind", "source_id", "speaker").rows()
        assert rows == [("answer", f"vote/{who}/ask0", who)]


def test_ids_of_cells_name_table_column_and_key() -> None:
    assert cell_id("items.text", "hall", 3) == "items.text/hall/3"
    assert Source("utterance", "a/b/ask0#A01").address == "a/b/ask0"
    assert Source("utterance", "a/b/said0").address == ""
    assert Source("material", "study.topic").address == ""
