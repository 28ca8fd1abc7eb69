"""What stood in the prompts is found in the requests, whatever the code says was shown."""

from __future__ import annotations

import string
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import folkmoot
from folkmoot import Finding, Run, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.conversation.choices import Choice
from folkmoot.engine.strict_answers import COUNTED
from folkmoot.engine.verify import verify_run
from folkmoot.kit.exposure import (
    ELSEWHERE,
    MISNAMED,
    OWN,
    Decision,
    Exposure,
    ExposureRow,
    Index,
    Text,
    differences,
    exposure,
    in_prompts,
    rows,
    sentences_of,
)
from folkmoot.models.scripted import Scripted
from folkmoot.report.html import write_report
from folkmoot.storage.run_folder import RunFolder

LEAFLET = "The old bridge is closed to lorries. It will be rebuilt in stone by next spring."
REBUILT = LEAFLET.partition(". ")[2]
ANN, BOB = "I walk across that bridge with my children.", "My shop lives off the lorries that stop."


def at(who: str = "ann", *scopes: str, **shows: bool) -> Decision:
    return Decision("vote/ask0", who, "arm", "vote", frozenset(scopes), shows)


def found(
    texts: list[Text], *messages: str, who: str = "ann", scopes: tuple[str, ...] = ()
) -> dict[tuple[str, str], float]:
    return {(f.kind, f.id): f.share for f in Index(texts).found(at(who, *scopes), messages)}


def rows_of(decision: Decision, texts: list[Text], *messages: str) -> list[ExposureRow]:
    return list(rows(decision, Index(texts).found(decision, messages)))


words = st.lists(
    st.text(string.ascii_lowercase + "äé", min_size=2, max_size=8), min_size=4, max_size=9
)
texts_of_sentences = st.lists(words, min_size=1, max_size=6, unique_by=tuple)


@given(texts_of_sentences, st.data())
def test_a_text_is_found_whatever_is_done_to_its_form(
    sentences: list[list[str]], data: st.DataObject
) -> None:
    text = ". ".join(" ".join(s) for s in sentences) + "."
    gaps = data.draw(st.lists(st.sampled_from([" ", "\n", "\t", "  \n> "]), min_size=1))
    wrapped = "".join(w + gaps[i % len(gaps)] for i, w in enumerate(text.split(" ")))
    prompt = f'You were told: "{wrapped.upper() if data.draw(st.booleans()) else wrapped}"'
    assert found([Text("leaflet", "l", text)], "Vote now.", prompt) == {("leaflet", "l"): 1}


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=7), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcd"), max_size=40),
)
def test_sentences_are_found_where_they_stand_and_nowhere_else(
    said: list[list[str]], message: list[str]
) -> None:
    """Against every place of every sentence, one by one: sentences that share their first words,
    that stand in each other, and that are shorter than what is looked up first."""
    index = Index(Text("kind", str(n), " ".join(sentence)) for n, sentence in enumerate(said))
    places = [
        {place for place in range(len(message)) if message[place : place + len(s)] == s}
        for s in said
    ]
    wanted = {str(n): 1.0 if there else 0.0 for n, there in enumerate(places)}
    assert {f.id: f.share for f in index.found(at(), [" ".join(message)])} == wanted


def test_an_index_takes_less_memory_than_the_texts_whoever_starts_alike() -> None:
    """A million people's texts must fit, and many sentences start with the same words."""
    texts = [
        Text("view", str(n), f"I would say that number {n} of us {'talks and ' * 200} ends here.")
        for n in range(500)
    ]
    size = sum(len(t.words) for t in texts)
    tracemalloc.start()
    index = Index(texts)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < size / 2
    assert {f.id for f in index.found(at(), [texts[7].words]) if f.share == 1} == {"7"}


@given(texts_of_sentences, st.data())
def test_of_a_text_that_was_cut_the_share_of_words_that_stood_is_given(
    sentences: list[list[str]], data: st.DataObject
) -> None:
    text = "\n".join(" ".join(s) for s in sentences)
    kept = data.draw(st.lists(st.sampled_from(sentences), unique_by=tuple))
    prompt = " | ".join(" ".join(s) for s in kept)
    shares = found([Text("leaflet", "l", text)], f"… {prompt} …")
    # A sentence may also stand where two others of the drawn ones meet, never less than was kept.
    assert shares["leaflet", "l"] >= sum(map(len, kept)) / sum(map(len, sentences))
    if not kept:
        assert shares["leaflet", "l"] == 0


def test_sentences_of_a_word_or_two_prove_nothing_unless_there_are_no_others() -> None:
    assert sentences_of("Yes. No! I would rather walk home.") == {
        ("i", "would", "rather", "walk", "home")
    }
    assert sentences_of("299 dollars") == {("299", "dollars")}
    assert sentences_of("…") == set()
    assert found([Text("price", "p", "$299")], "It costs $299 a year.") == {("price", "p"): 1}
    assert found([Text("price", "p", "$299")], "It costs $2990 a year.") == {("price", "p"): 0}


def test_a_few_words_do_not_prove_that_something_unwanted_stood_there() -> None:
    brief = [Text("price", "p", "two museums", scope="here"), Text("price", "q", "no museums", "x")]
    standing = found(brief, "Options: two museums, no museums", scopes=("here",))
    assert standing == {("price", "p"): 1}  # and nothing from elsewhere
    (row,) = rows_of(at("ann", "here", price=False), brief, "Options: two museums")
    assert (row.texts, row.expected) == (0, False)
    (row,) = rows_of(at("ann", "here", price=True), brief, "Options: two museums")
    assert (row.texts, row.expected) == (1, True)


def test_own_words_are_told_from_others_and_from_those_of_another_table() -> None:
    texts = [
        Text("statements", "1", ANN, scope="here", by="ann"),
        Text("statements", "2", BOB, scope="here", by="bob"),
        Text("statements", "3", REBUILT, scope="there", by="cleo"),
        Text("statements", "4", "I think so as well.", scope="there", by="dan"),
    ]
    heard = found(texts, ANN, f"Bob: {BOB}", LEAFLET, "I think so as well.", scopes=("here",))
    assert heard == {(OWN, "1"): 1, ("statements", "2"): 1, (ELSEWHERE, "3"): 1}
    assert found(texts, ANN, scopes=("here",), who="bob") == {
        ("statements", "1"): 1,
        (OWN, "2"): 0,
    }


def test_what_is_said_here_too_shows_nothing_about_elsewhere() -> None:
    texts = [
        Text("statements", "1", BOB, scope="here"),
        Text("statements", "2", BOB, scope="there"),
    ]
    assert found(texts, BOB, scopes=("here",)) == {("statements", "1"): 1}
    assert found(texts, BOB, scopes=("nowhere",)) == {(ELSEWHERE, "1"): 1, (ELSEWHERE, "2"): 1}
    # Words that stand within what somebody here said are theirs.
    longer = Text("statements", "3", f"You all know that {BOB}", scope="here")
    assert found([*texts[1:], longer], f"You all know that {BOB}", scopes=("here",)) == {
        ("statements", "3"): 1
    }
    assert (ELSEWHERE, "2") in found([*texts[1:], longer], BOB, scopes=("here",))
    # An instruction that a speaker repeats stands in everybody's prompt.
    texts.append(Text("", "vote", BOB))
    assert found(texts, BOB, scopes=("nowhere",)) == {}


def test_a_private_thought_may_be_what_another_says_aloud(tmp_path: Path) -> None:
    """The same words, thought in one conversation and said in another; and told, by mistake."""

    async def protocol(session: Session[StudyConfig]) -> None:
        for who, again in (("ann", BOB), ("bob", ""), ("eve", BOB)):
            told = BOB if who == "eve" else ""
            scope = session.at(who)
            speaker = Speaker(who)
            await scope.ask(speaker, f"Think first. {told}")
            await scope.ask(speaker, f"You thought: {again}. Speak.")

    def texts(run: RunFolder) -> list[Text]:
        return [Text("statements", "bob", BOB, scope="bob", by="bob")]

    def decisions(run: RunFolder) -> list[Decision]:
        return [
            Decision(f"{who}/ask1", who, "arm", "statement", frozenset((who,)), {})
            for who in ("ann", "eve")
        ]

    thoughts = Study(
        name="thoughts",
        title="Thoughts",
        config=StudyConfig,
        protocol=protocol,
        afterwards=Exposure(texts, decisions),
        tables=(ExposureRow,),
    )
    run = folkmoot.run(thoughts, {}, out=tmp_path / "run", provider=Scripted(lambda *_: BOB))
    table = run.table("exposure").filter(kind=ELSEWHERE)
    assert table["participant_id"].to_list() == ["eve"]


def misnamed(*messages: str, texts: list[Text] | None = None) -> set[str]:
    said = texts or [
        Text("statements", "ann's", ANN, "here", "ann", name="Ann"),
        Text("statements", "bob's", BOB, "here", "bob", name="Bob Hill"),
    ]
    decision = at("ann", "here", statements=True)
    return {
        t
        for row in rows_of(decision, said, *messages)
        if row.kind == MISNAMED
        for t in row.text_ids
    }


@pytest.mark.parametrize(
    "line",
    ["{name}: {text}", "- **{name}**: “{text}”", "r2 ({name}): {text}", "{name}:\n> {text}",
     "A hint: x. {name} said：{text}", "{name} (Member 3) asks you: “{text}”",
     "| 2 | {name} | {text} |", "[2] {name} » {text}", '<turn n="2" by="{name}">{text}</turn>',
     '<turn by="{name}">\n{text}\n</turn>', '{{"by": "{name}", "words": "{text}"}},'],
)  # fmt: skip
def test_words_under_another_speakers_name_are_told(line: str) -> None:
    def said(*pairs: tuple[str, str]) -> str:
        return "\n".join(line.format(name=name, text=text) for name, text in pairs)

    assert misnamed(said(("Ann", ANN), ("Bob Hill", BOB))) == set()
    assert misnamed(said(("ANN", ANN), ("Bob  Hill", BOB))) == set()
    assert misnamed(said(("Bob Hill", ANN), ("Ann", BOB))) == {"ann's", "bob's"}
    assert misnamed(said(("Ann", ANN), ("Ann", BOB))) == {"bob's"}
    # Nobody's name, a stranger's, or none at all: that shows nothing.
    assert misnamed(said(("A", ANN), ("Bo", BOB)), f"{ANN} {BOB}", f"Ann, {BOB}") == set()


def test_who_says_what_another_said_is_not_misnamed() -> None:
    echo = Text("statements", "echo", f"Well. {BOB} So I was told.", "here", "ann", name="Ann")
    said = [Text("statements", "bob's", BOB, "here", "bob", name="Bob"), echo]
    assert misnamed(f"Bob: {BOB}", f"Ann: {BOB}", texts=said) == set()
    # Nor is somebody whom another quotes, nor who repeats the own words.
    quoting = Text("statements", "q", f"Bob told us: {ANN} Not me.", "here", "cy", name="Cy")
    ann = Text("statements", "ann's", ANN, "here", "ann", name="Ann")
    aloud = f"Ann: {ANN}", f"Cy: Bob told us: {ANN} Not me."
    assert misnamed(*aloud, texts=[*said, ann, quoting]) == set()
    assert misnamed(f"Ann: {ANN} To Bob I say: {ANN}", texts=[*said, ann]) == set()


def test_who_goes_on_from_another_s_words_says_own_ones() -> None:
    # Said by a model of 135 million parameters that took the question over.
    asked = Text("interview", "asked", "What's the first question? I help.", "here", name="Guide")
    answer = "What's the first question you'd like to ask me?"
    echo = Text("interview", "echo", answer, "here", "ann", name="You")
    assert misnamed(asked.words, f"You: {answer}", texts=[asked, echo]) == set()
    assert misnamed(f"You: {answer}", texts=[asked, echo]) == set()
    assert misnamed(f"You: {asked.words}", texts=[asked, echo]) == {"asked"}


def test_what_stands_as_a_message_of_its_own_is_quoted_elsewhere() -> None:
    asked = Text("interview", "asked", BOB, "here", name="Guide")
    said = [asked, Text("interview", "own", f"I ask you: {ANN}", "here", "ann", name="You")]
    again = f"Guide: Once more I ask you: {BOB}"
    assert misnamed(BOB, "You: Well.", again, texts=said) == set()
    assert misnamed(f"You: {BOB}", again, texts=said) == {"asked"}


def test_a_name_in_the_sentence_before_is_no_label() -> None:
    said = [Text("talk", n, w, "here", name=n) for n, w in (("Ann", ANN), ("Bob", BOB))]
    assert misnamed(f"Bob: I go along with Ann there. So, first: “{BOB}”", texts=said) == set()
    assert misnamed(f"I go along with Bob there. Ann: “{BOB}”", texts=said) == {"Bob"}


# --- a small study that claims more than it shows ------------------------------------------------


def arms(run: RunFolder) -> dict[str, str]:
    return dict(run.table("people").select("participant_id", "condition").iter_rows())


def shown(run: RunFolder) -> list[Text]:
    return [Text("leaflet", "leaflet", LEAFLET), Text("speech", "speech", BOB)]


def votes(run: RunFolder) -> list[Decision]:
    of = arms(run)
    design = {
        "reads": {"leaflet": True, "speech": False},
        "hears": {"leaflet": False, "speech": True},
    }
    return [
        Decision(address, who, of[who], "vote", frozenset({who}), design[of[who]])
        for address, who in run.table("answers").select("address", "speaker_id").iter_rows()
    ]


def study(*, shows: dict[str, str], **more: object) -> Study:
    async def protocol(session: Session) -> None:
        for n in range(4):
            who, arm = f"p{n}", "reads" if n % 2 else "hears"
            prompt = f"{shows[arm]}\n\nFor or against?"
            await session.at(who).ask(Speaker(who), prompt, answer=Choice(("for", "against")))
            session.record("people", {"participant_id": who, "condition": arm})

    design = {"afterwards": Exposure(shown, votes), "tables": (ExposureRow,), **more}
    return Study(
        name="bridge",
        title="A bridge",
        config=StudyConfig,
        protocol=protocol,
        findings=lambda run: [f for f in [exposure(run)] if f],
        **design,  # type: ignore[arg-type]
    )


def run(folder: Path, study: Study) -> Run:
    return folkmoot.run(study, {}, out=folder / "run", provider=Scripted(lambda *_: "for"))


def exposure_findings(done: Run) -> list[Finding]:
    """The findings of a run but the engine's own about how closed answers were had."""
    return [finding for finding in done.findings() if finding.key != COUNTED]


AS_CLAIMED = {"reads": LEAFLET, "hears": BOB}


def test_the_matrix_is_clean_where_prompts_hold_what_the_design_says(tmp_path: Path) -> None:
    done = run(tmp_path, study(shows=AS_CLAIMED))
    (finding,) = exposure_findings(done)
    assert finding.grid.columns == ("condition", "decision", "leaflet", "speech")
    assert finding.grid.rows == (
        ("hears", "vote", "0 %", "100 %"),
        ("reads", "vote", "100 %", "0 %"),
    )
    assert (finding.alarms, finding.headline, differences(done.folder)) == ((), False, [])
    assert in_prompts(done.folder, "p1") == {"vote": ["leaflet"]}
    assert done.folder.codebook()["exposure"]["columns"]["share"]["meaning"]
    assert verify_run(done.folder, done.study).consistent


def test_a_design_that_the_prompts_do_not_keep_is_shouted_and_stays_a_run(tmp_path: Path) -> None:
    claims = study(shows={"reads": "A leaflet was shown to you.", "hears": f"{BOB} {LEAFLET}"})
    done = run(tmp_path, claims)
    (finding,) = exposure_findings(done)
    assert finding.alarms == (
        "hears, vote: leaflet should not stand in the prompt and did in 2 of 2.",
        "reads, vote: leaflet should stand in the prompt and did not in 2 of 2.",
    )
    assert finding.headline
    assert ("reads", "vote", "0 %, not 100 %", "0 %") in finding.grid.rows
    assert done.manifest["outcome"] == "done" and not done.unusable
    assert verify_run(done.folder, claims).consistent


def test_a_text_that_stood_in_part_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, study(shows={**AS_CLAIMED, "reads": REBUILT}))
    (finding,) = exposure_findings(done)
    share = len(REBUILT.split()) / len(LEAFLET.split())
    table = done.table("exposure").filter(condition="reads", kind="leaflet")
    assert table["share"].to_list() == pytest.approx([share, share])
    assert ("reads", "vote", "100 %, in part", "0 %") in finding.grid.rows
    assert finding.alarms == (
        "reads, vote: leaflet should stand in the prompt in full and stood in part in 2 of 2 "
        "(at the least 56 % of the words).",
    )


def test_of_texts_that_are_shown_every_one_must_stand() -> None:
    texts = [Text("statements", "1", BOB, "here", "bob"), Text("statements", "2", ANN, "here", "c")]
    (row,) = rows_of(at("ann", "here", statements=True), texts, BOB)
    assert (row.text_ids, row.share) == (["1"], 0.5)
    (row,) = rows_of(at("ann", "here", statements=True), texts, BOB, ANN)
    assert (row.text_ids, row.share) == (["1", "2"], 1)
    (row,) = rows_of(at("ann", "here"), texts, BOB)  # where nothing is expected, of what stood
    assert (row.text_ids, row.share) == (["1"], 1)


def test_a_declaration_that_fails_costs_the_table_and_not_the_run(tmp_path: Path) -> None:
    def broken(_run: RunFolder) -> list[Text]:
        raise KeyError("transcripts")

    done = run(tmp_path, study(shows=AS_CLAIMED, afterwards=Exposure(broken, votes)))
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
        "participants_per_condition: 4\nmin_responses_for_threshold: 5\npersonas: {source: quota}\n"
    )
    told = "acp, final vote: summaries should stand in the prompt and did not in 4 of 4."
    ran = CliRunner().invoke(app, ["run", "pilot.yaml"])
    assert ran.exit_code == 0
    assert told in " ".join(ran.output.split())
    verified = CliRunner().invoke(app, ["verify", "outputs/pilot"])
    assert verified.exit_code == 0
    assert told in " ".join(verified.output.split())
    assert write_report(RunFolder("outputs/pilot"), pdf=True).stat().st_size > 10_000
    page = Path("outputs/pilot/report.html").read_text("utf-8")
    assert f'<p class="alarm" role="alert">{told}</p>' in page
