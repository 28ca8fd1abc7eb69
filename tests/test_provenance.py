"""Texts keep their sources through templates, joins, histories, pickles and tables."""

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
from tests.helpers_provenance import (
    SpanDescription,
    count_unattributed,
    describe_spans,
    list_sources,
)

PARK = quote_value("Park", "option", "study.options")
STREET_VALUE = quote_value("Straße", "value", "street.name/1")
ANN = quote_value("I like trees.", "utterance", "talk/ann/ask0", "ann")
OPTION_SPANS = [("Park", "option", False), ("Jobs", "option", False)]
CAPITAL_OPTION_SPANS = [("PARK", "option", True), ("JOBS", "option", True)]
ANN_SPANS = [("Ann", "value", False)]
STREET_SPANS = [("Straße", "value", False)]
LONGER_NAME_SPAN = ("Ammmm", "value", True)
TRUNCATED_SPANS = [*ANN_SPANS, ("Str", "value", True)]
TEXTS = st.text(min_size=1, max_size=20)


def make_library(folder: Path, template: str, *, custom: bool = False) -> PromptLibrary:
    """Make a library with one prompt. With `own`, a prompt of the researcher replaces it."""
    (folder / "own").mkdir(parents=True)
    (folder / "it.md").write_text("nothing" if custom else template)
    if custom:
        (folder / "own" / "it.md").write_text(template)
    return PromptLibrary(folder, folder / "own" if custom else None)


@pytest.mark.parametrize("custom", [False, True], ids=["shipped", "replaced"])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Hi {{ name }}!", ANN_SPANS),
        ("{{ name | upper }}", [("ANN", "value", True)]),
        ("{{ name | upper | lower }}", [("ann", "value", True)]),
        ("{{ name | trim }}", ANN_SPANS),
        ("{{ both | join(' or ') }}", OPTION_SPANS),
        ("{{ both | listed }}", OPTION_SPANS),
        ("{{ both | map('upper') | join(', ') }}", CAPITAL_OPTION_SPANS),
        ("{{ both | first }}{{ both | last }}", OPTION_SPANS),
        ("{{ both | join | upper }}", CAPITAL_OPTION_SPANS),
        ('{{ "So " ~ name ~ "." }}', ANN_SPANS),
        ("{{ data | json }}", [*ANN_SPANS, (r"a \"b\"", "value", True)]),
        ("{{ name if yes else 'nobody' }}{{ name if not yes else 'then' }}", ANN_SPANS),
        ("{% for o in both %}{{ loop.index }}. {{ o }}\n{% endfor %}", OPTION_SPANS),
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
        # Texts with several sources, also if they become longer or shorter.
        ("{{ (street ~ name) | upper }}", [("STRASSE", "value", True), ("ANN", "value", True)]),
        ("{{ (street ~ '.') | upper }}", [("STRASSE", "value", True)]),
        ("{{ (name ~ ' x' ~ street) | replace('n', 'mm') }}", [LONGER_NAME_SPAN, *STREET_SPANS]),
        ("{{ ('\\n ' ~ name ~ street ~ ' ') | trim }}", [*ANN_SPANS, *STREET_SPANS]),
        ("{{ nested | upper }}", [("STRASSE", "summary", True), ("STRASSE", "value", True)]),
        (
            "{{ (name ~ ' says ' ~ street ~ '.') | truncate(12, true, '…', 0) }}",
            [*ANN_SPANS, ("St", "value", True)],
        ),
        # The truncated text ends like the whole text.
        ("{{ (name ~ ' ' ~ street ~ dot) | truncate(8, true, '.', 0) }}", TRUNCATED_SPANS),
        ("{{ 7 }}{{ 'word' }}{{ missing | default('none given') if false }}", []),
    ],
)
def test_templates_keep_the_sources_of_their_variables(
    template: str, expected: list[SpanDescription], custom: bool, tmp_path: Path
) -> None:
    prompt = make_library(tmp_path / "p", template, custom=custom).render_prompt(
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
        street=STREET_VALUE,
        dot=quote_value(".", "utterance", "x/ask0", "bob"),
        nested=quote_value(STREET_VALUE, "summary", "s.text/1"),
    )
    assert describe_spans(prompt) == expected


def test_a_text_inserted_by_a_filter_is_unattributed(tmp_path: Path) -> None:
    prompts = make_library(tmp_path / "p", "{{ a | replace('trees', b) }}")
    prompt = prompts.render_prompt("it", a=ANN, b=PARK)
    assert (str(prompt), describe_spans(prompt)) == (
        "I like Park.",
        [("I like Park.", "unattributed", False)],
    )


@given(text=TEXTS, preceding=st.text(max_size=5), custom=st.booleans())
def test_the_span_of_any_text_is_its_position(
    text: str, preceding: str, custom: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("p") / "p"
    prompt = make_library(
        folder, "\n {{ a }}: {{ b }}{{ cache }} end ", custom=custom
    ).render_prompt(
        "it",
        a=quote_value(preceding, "value", "a"),
        b=quote_value(text, "utterance", "x/ask0", "ann"),
    )
    spans = [span for span in prompt.spans if span.source.kind == "utterance"]
    visible_text = text.translate(dict.fromkeys((0xFDD0, 0xFDD1, 0xFDD2)))
    assert "".join(prompt[span.start : span.end] for span in spans) in (visible_text, "")
    assert not set(prompt) & {"\ufdd0", "\ufdd1", "\ufdd2"}


def test_reserved_characters_in_a_text_cannot_move_the_spans_of_others(tmp_path: Path) -> None:
    text_with_reserved = quote_value(
        "\ufdd2\ufdd1Bob said it\ufdd2\ufdd0", "utterance", "x/ask0", "ann"
    )
    prompt = make_library(tmp_path / "p", "{{ a }} and {{ b }}").render_prompt(
        "it", a=text_with_reserved, b=PARK
    )
    assert prompt == "Bob said it and Park"
    assert describe_spans(prompt) == [("Bob said it", "utterance", True), ("Park", "option", False)]
    assert list_sources(prompt)[-1] == PARK.source


def test_a_nested_prompt_keeps_both_sources(tmp_path: Path) -> None:
    prompts = make_library(tmp_path / "p", "It: {{ a }}")
    inner = prompts.render_prompt("it", a=ANN)
    outer = prompts.render_prompt("it", a=quote_value(inner, "persona", "people.portrait/1", "bob"))
    assert outer == "It: It: I like trees."
    assert describe_spans(outer) == [
        ("It: I like trees.", "persona", False),
        ("I like trees.", "utterance", False),
    ]


def test_slices_and_f_strings_count_as_unattributed(tmp_path: Path) -> None:
    prompts = make_library(tmp_path / "p", "{{ a }}{{ b }}{{ c }}")
    prompt = prompts.render_prompt("it", a=ANN[:6], b=f"{ANN}", c=ANN)
    assert count_unattributed(prompt) == 6 + len(ANN)


def test_joins_in_python_keep_sources() -> None:
    text = join_texts(", ", [PARK, "plain", quote_value(4, "value", "n")])
    assert text == "Park, plain, 4"
    assert [span.source.kind for span in text.spans] == ["option", "unattributed", "value"]
    assert (PARK + ANN).spans == concatenate_texts((PARK, ANN)).spans


@given(TEXTS, TEXTS)
def test_sources_survive_pickling_and_texts_equal_their_json(first: str, second: str) -> None:
    text = quote_value(
        join_texts(" ", (quote_value(first, "utterance", "a/ask0", "ann"), second)),
        "summary",
        "s.t/1",
    )
    for value in (text, Prompt(text, text.spans, (1,)), SourcedText(text, text.spans), ANN):
        unpickled = pickle.loads(pickle.dumps(value))
        assert (
            unpickled == value and unpickled.spans == value.spans and type(unpickled) is type(value)
        )
        assert json.loads(json.dumps(value)) == value
    number = pickle.loads(pickle.dumps(quote_value(3, "value", "n")))
    assert number + 1 == 4 and number.source.id == "n"


@given(st.lists(st.sampled_from(["an ", "xx", "x", "", "by"]), max_size=6))
def test_replaced_words_keep_their_sources(parts: list[str]) -> None:
    text = join_texts("|", [quote_value(part, "value", f"v/{i}") for i, part in enumerate(parts)])
    whole = enclose_text(text, Source("material", "study.text"))
    changed = replace_words(whole, "xx", "[image]")
    assert changed == str(whole).replace("xx", "[image]")
    texts_by_source = {span.source.id: changed[span.start : span.end] for span in changed.spans}
    assert texts_by_source == {
        span.source.id: whole[span.start : span.end].replace("xx", "[image]")
        for span in whole.spans
    }
    assert all(
        span.source.altered == ("[image]" in changed[span.start : span.end])
        for span in changed.spans
    )


def test_an_enclosed_text_keeps_unattributed_parts() -> None:
    text = enclose_text(join_texts(" ", [PARK, "leaked"]), Source("material", "study.text"))
    assert count_unattributed(text) == len("leaked")


def test_settings_are_quoted_with_the_keys_of_the_study_file() -> None:
    class Topic(StudyConfig):
        title: str = "Parks"
        sides: tuple[str, ...] = ("for", "against")

    topic = quote_all(Topic(), "material", "study.topic")
    assert topic.title.source == Source("material", "study.topic.title")
    assert [side.source.id for side in topic.sides] == ["study.topic.sides"] * 2
    values_without_text = {"a": None, "b": True, "c": ""}
    assert quote_all(values_without_text, "value", "x") == values_without_text


def test_a_history_has_speaker_and_address_of_each_utterance() -> None:
    bob = Speaker("bob", "Bob", system=str(quote_value("You are Bob.", "persona", "p/1", "bob")))
    history = (
        EMPTY_TRANSCRIPT
        + Utterance("ann", ANN, "Ann")
        + Utterance("bob", "Me too.", id="talk/bob/ask0")
    )
    history += Utterance("cat", "Not I.", "Cat")
    request = build_messages(bob, history, Prompt("And Park?", (PARK.spans[0].shift_span(4),)))
    span_descriptions = [
        (
            request.messages[span.message].content[span.start : span.end],
            span.source.speaker,
            span.source.id,
        )
        for span in request.spans
    ]
    assert span_descriptions == [
        ("You are Bob.", "", ""),
        ("I like trees.", "ann", "talk/ann/ask0"),
        ("Me too.", "bob", "talk/bob/ask0"),
        ("Not I.", "cat", ""),
        ("Park", "", "study.options"),
    ]


def test_a_vote_in_a_history_quotes_the_recorded_answer() -> None:
    vote = quote_value("Park", "answer", "vote/ann/ask0", "ann")
    history = EMPTY_TRANSCRIPT + Utterance("", SourcedText("Vote.")) + Utterance("ann", vote)
    request = build_messages(Speaker("ann"), history, SourcedText("How sure are you?"))
    assert request.spans == (Span(0, 4, Source("answer", "vote/ann/ask0", "ann"), 1),)


class Config(StudyConfig):
    """No settings."""


def run_protocol(protocol: object, folder: Path, answers: dict[str, str]) -> pl.DataFrame:
    from folkmoot import run
    from folkmoot.models.scripted import ScriptedProvider

    study = Study("it", "It", Config, protocol)  # type: ignore[arg-type]
    provider = ScriptedProvider(lambda _request, address: answers.get(address, "Park"))
    return run(study, {}, out=folder, provider=provider).table("provenance")


def test_utterances_are_recorded_once_and_quoted_with_their_address(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        ann, bob = Speaker("ann", "Ann"), Speaker("bob", "Bob")

        async def ask_reason(scope: Scope) -> Quoted:
            utterances = await scope.ask(ann, "Why?")
            assert not isinstance(utterances, Missing)
            return scope.say(ann, utterances, round=2, public=False).quoted_text

        reason = await ask_reason(session.child("reasons"))
        vote = await session.child("vote").ask(ann, "Vote", answer_type=Choice(("Park", "Jobs")))
        assert not isinstance(vote, Missing)
        prompt = f"Ann says: {reason} She votes {vote}."
        await session.child("last").ask(bob, prompt, shows=(reason, vote))
        session.child("end").say(bob, "I have nothing to say.")

    spans = run_protocol(protocol, tmp_path / "run", {"reasons/ask0": "Trees."})
    spans_of_last_prompt = spans.filter(address="last/ask0")
    assert spans_of_last_prompt.select("kind", "source_id", "speaker").rows() == [
        ("unattributed", "", ""),
        ("utterance", "reasons/ask0", "ann"),
        ("unattributed", "", ""),
        ("answer", "vote/ask0", "ann"),
        ("unattributed", "", ""),
    ]
    utterances = pl.read_parquet(tmp_path / "run" / "tables" / "utterances.parquet")
    assert utterances.select("utterance_id", "address", "round", "public", "text").rows() == [
        ("reasons/ask0", "reasons/ask0", 2, False, "Trees."),
        ("end/said0", "", None, True, "I have nothing to say."),
    ]


def test_texts_declared_as_shown_must_occur_in_the_prompt(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(Speaker("ann"), "Look at this.", shows=("that",))

    with pytest.raises(ProtocolError, match="'that' does not occur in the prompt of ann"):
        run_protocol(protocol, tmp_path / "run", {})


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("In the year 1: they vote Ja.\n- Ja\n- Nein", ["Ja"]),
        ("One neighbour votes No.", ["No", "No"]),
        ("Ja or Ja?", ["Ja"]),
    ],
)
def test_a_declared_text_without_a_certain_place_is_refused(
    prompt: str, named: list[str], tmp_path: Path
) -> None:
    async def protocol(session: Session) -> None:
        votes = [quote_value(vote, "answer", f"vote{n}/ask0") for n, vote in enumerate(named)]
        await session.ask(Speaker("ann"), prompt, shows=votes)

    with pytest.raises(ProtocolError, match=r"of ann, so its place is not certain; join .* \+"):
        run_protocol(protocol, tmp_path / "run", {})


@pytest.mark.parametrize(
    ("prompt", "shown", "start"),
    [
        ("Im letzten Jahr stimmte er so: Ja.", "Ja", 31),
        ("Januar? Er stimmt: Ja", "Ja", 19),
        ("隣人は公園に投票", "公園", 3),
        ("Im Jahr sagte er _Ja_", "Ja", 18),
    ],
)
def test_a_declared_text_is_not_a_part_of_a_word(
    prompt: str, shown: str, start: int, tmp_path: Path
) -> None:
    async def protocol(session: Session) -> None:
        vote = quote_value(shown, "answer", "vote/ask0", "bob")
        await session.ask(Speaker("ann"), prompt, shows=(vote,))

    spans = run_protocol(protocol, tmp_path / "run", {}).filter(kind="answer")
    assert spans.select("start", "end").rows() == [(start, start + len(shown))]


def test_parts_joined_by_plus_keep_their_sources(tmp_path: Path) -> None:
    """Also a short text that occurs several times, and beside a declared one."""

    async def protocol(session: Session) -> None:
        vote = quote_value("Ja", "answer", "vote/ask0", "bob")
        options = quote_value("Ja, Nein", "option", "study.options")
        await session.ask(Speaker("ann"), "Im Jahr: " + vote + " Und? " + options)
        await session.ask(Speaker("ann"), "Er sagt: Ja. Und? " + options, shows=(vote,))

    spans = run_protocol(protocol, tmp_path / "run", {}).filter(kind="answer")
    assert spans.select("start", "source_id").rows() == [(9, "vote/ask0")] * 2


def test_declared_texts_have_separate_spans(tmp_path: Path) -> None:
    """Two utterances are equal, and a vote is also a word of an earlier reason."""

    async def protocol(session: Session) -> None:
        agreements = [
            quote_value("I agree.", "utterance", f"{speaker_id}/ask0", speaker_id)
            for speaker_id in ("ann", "bob")
        ]
        vote = quote_value("Park", "answer", "vote/ask0", "ann")
        reason = quote_value("Park and ride.", "utterance", "why/ask0", "ann")
        prompt = "Ann: I agree. Bob: I agree. Why: Park and ride. Vote: Park"
        await session.ask(Speaker("cat"), prompt, shows=(*agreements, vote, reason))

    spans = run_protocol(protocol, tmp_path / "run", {}).filter(pl.col("kind") != "unattributed")
    assert spans.select("start", "source_id").rows() == [
        *((5, "ann/ask0"), (19, "bob/ask0")),
        *((33, "why/ask0"), (54, "vote/ask0")),
    ]


def test_a_reply_quoted_in_a_reask_has_its_speaker(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(Speaker("ann"), "Vote", answer_type=Choice(("Park", "Jobs")))

    spans = run_protocol(protocol, tmp_path / "run", {"ask0": "Something else."})
    reply_spans = spans.filter(address="ask0.r1", kind="reply")
    assert reply_spans.select("message", "start", "end", "source_id", "speaker").rows() == [
        (1, 0, 15, "ask0", "ann")
    ]


UNCLEAR_REPLIES = {
    "propose/ann/ask0": "Plant trees.",
    "propose/bob/ask0": "Plant trees.",
    "vote/bob/ask0": "Well, plant or not.",
    "vote/bob/ask0.r1": "",
    "vote/bob/ask0.r2": "Plant trees.",
}


async def propose_and_vote(session: Session) -> None:
    """Ann and Bob make the same proposal. Each votes on the other's proposal and quotes it."""
    proposals = {}
    for speaker_id in ("ann", "bob"):
        scope = session.child("propose", speaker_id)
        proposal = await scope.ask(Speaker(speaker_id), SourcedText("Propose something."))
        proposals[speaker_id] = scope.say(
            Speaker(speaker_id), str(proposal), address=scope.address
        ).quoted_text
    for speaker_id, other_id in (("ann", "bob"), ("bob", "ann")):
        options = (proposals[other_id], quote_value("Wait.", "option", "study.options"))
        choice = Choice(options, clarify=False)
        scope = session.child("vote", speaker_id)
        vote = await scope.ask(Speaker(speaker_id), choice.formatted_options, answer_type=choice)
        await session.child("why", speaker_id).ask(Speaker(speaker_id), join_texts("", ("", vote)))  # type: ignore[arg-type]


def test_a_reask_keeps_the_sources_of_the_options_and_of_the_reply(tmp_path: Path) -> None:
    spans = run_protocol(
        propose_and_vote, tmp_path / "run", {"vote/ann/ask0": "plant trees", **UNCLEAR_REPLIES}
    )
    columns = ("message", "kind", "source_id", "speaker")
    option_sources = [("utterance", "propose/ann/ask0", "ann"), ("option", "study.options", "")]
    reply = (1, "reply", "vote/bob/ask0", "bob")
    for reask in ("vote/bob/ask0.r1", "vote/bob/ask0.r2"):
        rows = spans.filter(address=reask).select(columns).rows()
        # After an empty reply, the re-ask lists the options again.
        repetitions = 1 if reask.endswith("r1") else 2
        repeated_options = [(2, *source) for source in option_sources] * repetitions
        assert rows == [*((0, *source) for source in option_sources), reply, *repeated_options]
    with JournalReader(tmp_path / "run" / "journal.sqlite") as journal:
        messages = list(journal.messages("vote/bob/ask0.r2"))
    rows = spans.filter(address="vote/bob/ask0.r2").select("message", "start", "end").rows()
    assert [messages[message].content[start:end] for message, start, end in rows] == [
        *("Plant trees.", "Wait.", "Well, plant or not."),
        *("Plant trees.", "Wait.") * 2,
    ]


def test_a_choice_has_the_source_of_its_speaker_among_equal_options(tmp_path: Path) -> None:
    """Choices with the same options share a parser."""
    replies = {"vote/ann/ask0": "plant trees", **UNCLEAR_REPLIES, "vote/bob/ask0": "1"}
    spans = run_protocol(propose_and_vote, tmp_path / "run", replies)
    for speaker_id in ("ann", "bob"):
        rows = (
            spans.filter(address=f"why/{speaker_id}/ask0")
            .select("kind", "source_id", "speaker")
            .rows()
        )
        assert rows == [("answer", f"vote/{speaker_id}/ask0", speaker_id)]


def test_ids_of_cells_name_table_column_and_key() -> None:
    assert cell_id("items.text", "hall", 3) == "items.text/hall/3"
    assert Source("utterance", "a/b/ask0#A01").address == "a/b/ask0"
    assert Source("utterance", "a/b/said0").address == ""
    assert Source("material", "study.topic").address == ""
