"""Planted effects: the tables show the effect of a treatment's words on contributions, and a named
check finds each planted fault.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, build_messages
from folkmoot.engine.journal.journal import Journal
from folkmoot.kit.exposure import MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.measures.inference.clustered import clustered_difference
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.models.request import ModelRequest, ProviderSettings, RespondentHints
from folkmoot.provenance import cell_id, join_texts, quote_value
from folkmoot.respondent import Respondent
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook import STUDY, sessions
from tests.conftest import SharedFolder
from tests.studies.workbook.workbook_builder import (
    TASK_COLUMNS,
    make_task_row,
    make_workbook,
    save_workbook,
    with_setting,
)

APPEAL = (
    "Groups before you did best when everybody gave, and worst when each waited for the others."
)
WARNING = "Those who were careful did not lose: nobody else looks after your own gain."
PLAIN = "The tokens are paid out in money after the game."
GIVE = "How many of your 20 tokens do you put into the pot? {response_options}"
RULES = "You hold 20 tokens. What is put into the pot is doubled and divided equally."
SEED = 11
# Participants of the games. 20 groups of 4 are enough to find the planted effect or its absence.
PEOPLE = 80


def make_game(
    people: int,
    treated: str = f"{PLAIN} {APPEAL}",
    *,
    group: int = 4,
    rounds: int = 1,
    plain: str = PLAIN,
) -> dict[str, list[list[Any]]]:
    """Make a public-goods game in groups with two treatments."""
    made = make_workbook()
    made["treatments"] = [
        ["treatment_label", "treatment_description"],
        ["plain", plain],
        ["treated", treated],
    ]
    made["agent_roles"] = [
        ["role_label", "role_description"],
        ["Facilitator", "You lead the session."],
        ["Member", "You are a member of the group."],
    ]
    made["interview_prompts"] = [
        list(TASK_COLUMNS),
        make_task_row("c", "context", 0, RULES, "context"),
        *(
            make_task_row(
                f"g{k}",
                "private_question",
                k,
                GIVE,
                f"give_{k}",
                var_type="integer",
                response_options="(0, 20)",
                validate_response=1,
            )
            for k in range(1, rounds + 1)
        ),
    ]
    del made["constants"], made["computed"]
    made["constants"] = [["name", "value"]]
    made["agent_profiles"] = [
        ["ID", "age", "town", "word"],
        ["ID", "How old are you?", "Where do you live?", "What would you say about yourself?"],
        *([f"p{i}", 20 + i % 60, f"Town {i}", f"I like number {i}."] for i in range(people)),
    ]
    for key, value in (("num_agents_per_session", group), ("num_sessions", people // group)):
        made = with_setting(made, key, value)
    return with_setting(made, "max_conversation_length", 1000)


def run_game(made: dict[str, Any], folder: Path, seed: int = SEED, **options: Any) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    path = save_workbook(with_setting(made, "random_seed", seed), folder / "book.xlsx")
    return folkmoot.run(path, out=folder / "run", model="synthetic", **options).folder


def read_shares(run: RunFolder, variable: str = "give_1") -> pl.DataFrame:
    return (
        run.read_table("responses")
        .filter(pl.col("var_name") == variable)
        .select("participant_id", "session", "treatment", share=pl.col("number") / 20)
    )


def estimate_effect(run: RunFolder) -> Estimate:
    """Return the difference treated − plain, with its interval clustered by session."""
    given = read_shares(run)
    treated = (given["treatment"] == "treated").to_list()
    return clustered_difference(given["share"].to_numpy(), treated, given["session"].to_list())


def measure_true_effect(
    folder: Path, treated: str = f"{PLAIN} {APPEAL}", people: int = 240
) -> float:
    """Return the mean change of a share if all participants are under both treatments."""
    both = []
    for words in (treated, PLAIN):
        run = run_game(make_game(people, words, plain=words), folder / str(len(both)))
        both.append(read_shares(run).sort("participant_id")["share"].to_numpy())
    return float(np.mean(both[0] - both[1]))


@pytest.fixture(scope="session")
def healthy_run(shared_folder: SharedFolder) -> RunFolder:
    made = shared_folder("workbook/healthy", lambda folder: run_game(make_game(240), folder))
    return RunFolder(made / "run")


def test_the_effect_of_a_treatment_comes_out_with_its_size(
    healthy_run: RunFolder, tmp_path: Path
) -> None:
    planted = measure_true_effect(tmp_path, people=PEOPLE)
    assert 0.08 < planted < 0.2
    got = estimate_effect(healthy_run)
    assert got.low < planted < got.high and abs(got.value - planted) < 0.1
    assert got.low > 0


@pytest.mark.nightly(part="truths")
def test_words_for_holding_back_lower_contributions(tmp_path: Path) -> None:
    got = estimate_effect(run_game(make_game(240, f"{PLAIN} {WARNING}"), tmp_path))
    assert got.high < 0


def test_a_treatment_that_says_nothing_of_giving_has_no_effect(tmp_path: Path) -> None:
    assert measure_true_effect(tmp_path, "The tokens are of blue plastic.", people=40) == 0
    null = estimate_effect(
        run_game(make_game(PEOPLE, "The tokens are of blue plastic."), tmp_path / "null")
    )
    assert null.low < 0 < null.high


def test_no_strength_no_effect(tmp_path: Path) -> None:
    got = estimate_effect(
        run_game(make_game(PEOPLE), tmp_path, overrides=("respondent.persuasion=0",))
    )
    assert got.low < 0 < got.high


def test_the_report_says_it(healthy_run: RunFolder) -> None:
    (found,) = [f for f in STUDY.findings(healthy_run) if f.key == "treatment_give_1"]
    assert "treated" in found.says


# --- other words, same content --------------------------------------------------------------------


def write_reworded_prompts(folder: Path) -> Path:
    """Write our prompts with other sentences, but with the same variables and tags."""
    source = Path(sessions.__file__).parent / "prompts"
    folder.mkdir()
    for path in source.glob("*.md"):
        lines = []
        for line in path.read_text().splitlines():
            kept = re.findall(r"\{\{.*?\}\}|\{%.*?%\}", line)
            only_tags = not re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\W", "", line)
            lines.append(line if only_tags else "Indeed: " + " ~ ".join(kept) if kept else "Now.")
        (folder / path.name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.nightly(part="wordings")
def test_the_effect_does_not_hang_on_the_words_of_our_prompts(
    healthy_run: RunFolder, tmp_path: Path
) -> None:
    prompts = write_reworded_prompts(tmp_path / "prompts")
    other = run_game(make_game(240), tmp_path / "other", overrides=(f"prompts={prompts}",))
    system = json.loads((other.path / "market.json").read_text())["sessions"][0]
    assert "Stay this person" not in json.dumps(system)
    assert abs(estimate_effect(other).value - estimate_effect(healthy_run).value) < 0.03
    first, second = (read_shares(r).sort("participant_id")["share"] for r in (healthy_run, other))
    assert np.corrcoef(first, second)[0, 1] > 0.9


# Prompts of variables alone, in another order.
BARE = {
    "system": "{{ context }}\n{{ facilitator }}\n{{ treatment }}\n{{ backstory }}\n{{ role }}\n"
    "{% for line in profile %}\n{{ line.answer }}\n{{ line.question }}\n{% endfor %}\n{{ called }}",
    "question": "{{ options }}\n{{ text }}\n{% for peer in peers %}\n{{ peer.text }}\n"
    "{{ peer.name }}\n{% endfor %}",
    "turn": "{{ options }}\n{{ called }}",
    "special": "{{ context }}\n{{ treatment }}\n{{ role }}\n{{ label }}",
}


@pytest.mark.nightly(part="wordings")
def test_nothing_hangs_on_instructions_and_on_the_order_of_texts(
    healthy_run: RunFolder, games_run: RunFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name, text in BARE.items():
        (folder / f"{name}.md").write_text(text, "utf-8")
    own = (f"prompts={folder}",)
    bare = run_game(make_game(240), tmp_path / "bare", overrides=own)
    assert (bare.read_table("responses")["finish"] == "stop").all()
    assert (
        read_shares(bare)
        .sort("participant_id")
        .equals(read_shares(healthy_run).sort("participant_id"))
    )
    rounds = run_game(make_game(PEOPLE, rounds=3), tmp_path / "rounds", overrides=own)
    assert rounds.read_table("responses")["number"].equals(
        games_run.read_table("responses")["number"]
    )


@pytest.mark.nightly(part="wordings")
def test_the_effect_does_not_hang_on_the_words_of_the_rules(
    healthy_run: RunFolder, tmp_path: Path
) -> None:
    """The same game in other words, with the words of the appeal in another sentence."""
    made = make_game(
        240,
        "The coins are yours to take home. Everybody did best who shared; worst off were groups in "
        "which one waited for another.",
        plain="The coins are yours to take home.",
    )
    made["interview_prompts"][1][5] = "Each has 20 coins. The box is doubled and shared out evenly."
    asks = "And now, what part of your 20 coins goes into the box? {response_options}"
    made["interview_prompts"][2][5] = asks
    other = estimate_effect(run_game(made, tmp_path))
    assert abs(other.value - estimate_effect(healthy_run).value) < 0.03 and other.low > 0


def test_the_effect_comes_from_the_text_alone(tmp_path: Path, monkeypatch: Any) -> None:
    """Without the text of the treatment in the prompt, its label has no effect."""
    told = sessions.render_system_texts
    monkeypatch.setattr(sessions, "render_system_texts", lambda *a: (told(*a)[0], "", told(*a)[2]))
    got = estimate_effect(run_game(make_game(PEOPLE), tmp_path))
    assert got.low < 0 < got.high


# --- people and groups ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def games_run(shared_folder: SharedFolder) -> RunFolder:
    made = shared_folder(
        "workbook/games", lambda folder: run_game(make_game(PEOPLE, rounds=3), folder)
    )
    return RunFolder(made / "run")


def estimate_influence(run: RunFolder, later: int) -> float:
    """Return the coefficient of the others' last amounts, given the participant's first amount."""
    of = ["participant_id", "session"]
    before = read_shares(run, f"give_{later - 1}").with_columns(
        others=(pl.col("share").sum().over("session") - pl.col("share"))
        / (pl.col("share").count().over("session") - 1)
    )
    both = before.join(read_shares(run), on=of, suffix="_first")
    both = both.join(read_shares(run, f"give_{later}"), on=of, suffix="_now")
    known = np.column_stack([np.ones(len(both)), both["others"], both["share_first"]])
    return float(np.linalg.lstsq(known, both["share_now"].to_numpy(), rcond=None)[0][1])


def test_people_follow_what_the_others_gave_and_wear_out(games_run: RunFolder) -> None:
    assert estimate_influence(games_run, 2) > 0.1 and estimate_influence(games_run, 3) > 0.05
    means = [float(read_shares(games_run, f"give_{k}")["share"].mean()) for k in (1, 2, 3)]  # type: ignore[arg-type]
    assert means[0] > means[1] > means[2]


def test_one_person_gives_alike_each_time(games_run: RunFolder) -> None:
    first, second = (
        read_shares(games_run, f"give_{k}").sort("participant_id")["share"] for k in (1, 2)
    )
    assert np.corrcoef(first, second)[0, 1] > 0.6


def test_amounts_in_the_discussion_agree_with_the_answers(tmp_path: Path) -> None:
    made = make_game(40)
    talk = make_task_row("t", "discussion", 1, "What should the group do with the tokens?", "talk")
    give = made["interview_prompts"][2]
    give[2] = 2
    made["interview_prompts"] = [*made["interview_prompts"][:2], talk, give]
    run = run_game(made, tmp_path)
    said = run.read_table("responses").filter(pl.col("var_name") == "talk")
    given = dict(read_shares(run).select("participant_id", "share").iter_rows())
    off = []
    for who, text in said.select("participant_id", "value").iter_rows():
        amounts = [int(n) for n in re.findall(r"\d+", re.sub(r"of (?:my )?20|Member \d", "", text))]
        assert "tokens" in text or amounts or "we" in text.split(), text
        off += [abs(amounts[0] / 20 - given[who])] if amounts else []
    assert len(off) > 20 and np.mean(off) < 0.15


def test_earlier_amounts_in_a_question_do_not_make_its_answer_an_amount(tmp_path: Path) -> None:
    """Ratings of fairness do not change with the words for giving."""

    def fair(words: str, folder: Path) -> list[float]:
        made = make_game(40, words, plain=words)
        asks = "You gave {{ give_1 }} tokens. How fair was it to you? {response_options}"
        more = {"var_type": "float", "response_options": "(0, 100)", "validate_response": 1}
        made["interview_prompts"].append(
            make_task_row("f", "private_question", 2, asks, "fair", **more)
        )
        answered = run_game(made, folder).read_table("responses").sort("participant_id")
        return answered.filter(var_name="fair")["number"].to_list()

    assert fair(APPEAL, tmp_path / "appeal") == fair(WARNING, tmp_path / "warning")


def test_a_workbook_in_another_language_is_answered_by_its_form(tmp_path: Path) -> None:
    made = make_game(8)
    made["treatments"][1][1] = made["treatments"][2][1] = "Der Raum ist hell."
    checked = {"validate_response": 1, "var_type": "integer"}
    ranged = make_task_row(
        "a", "private_question", 1, "Wie alt wirkt er? {response_options}", "a", **checked
    )
    worded = make_task_row("b", "public_question", 2, "Wie sicher sind Sie?", "b", **checked)
    chosen = make_task_row("c", "public_question", 3, "Und nun?", "c", validate_response=1)
    ranged[8], worded[8], chosen[8] = "(18, 90)", "Eine Zahl von 1 bis 7", '["ja", "nein"]'
    context = make_task_row("x", "context", 0, "Sie sehen ein Bild.", "context")
    made["interview_prompts"] = [list(TASK_COLUMNS), context, ranged, worded, chosen]
    given = run_game(made, tmp_path).read_table("responses")
    assert (given["status"] == "valid").all() and (given["finish"] == "stop").all()
    assert given.filter(var_name="a")["number"].is_between(18, 90).all()
    assert given.filter(var_name="b")["number"].is_between(1, 7).all()
    assert given.filter(var_name="b")["number"].n_unique() > 1


def test_replies_on_other_topics_contain_no_word_of_a_game(tmp_path: Path) -> None:
    made = make_game(8)
    made["treatments"][1][1] = made["treatments"][2][1] = "The room is bright."
    made["interview_prompts"] = [
        list(TASK_COLUMNS),
        make_task_row("c", "context", 0, "You talk about bicycles in the old town.", "context"),
        make_task_row("t", "discussion", 1, "Should bicycles be banned from the old town?", "talk"),
    ]
    run = run_game(made, tmp_path)
    said = " ".join(run.read_table("responses")["value"])
    assert not re.search(r"token|pot\b|give|amount", said)
    assert re.search(r"bicycle|old town", said, re.IGNORECASE)


def reply_of_study_part(asked: RespondentHints, *texts: str) -> str:
    """Return the reply to a prompt that contains only these texts, in reversed order."""
    prompt = join_texts("\n", texts[::-1])
    messages = build_messages(Speaker(asked.speaker, system="Acta."), EMPTY_TRANSCRIPT, prompt)
    request = ModelRequest("synthetic", messages.messages, hints=asked, spans=messages.spans)
    from_part = Respondent(ProviderSettings(seed=1, study=None))
    from_part._answers = {**from_part._answers, **STUDY.respondent_part.answers}  # type: ignore[union-attr]
    return from_part.reply(request, "x").text


def quote_utterance(who: str, words: str) -> str:
    return quote_value(words, "utterance", f"market/s1/talk/{who}/ask0", who)


STAKE = quote_value(
    "You hold 20 tokens; how many do you put into the pot?", "material", "study.workbook.prompts.c"
)


def test_the_minutes_count_right() -> None:
    """The minutes count who speaks for giving, and who for holding back."""
    heard = [
        quote_utterance("ann", "Let's trust each other and start high."),
        quote_utterance("bob", "I'd be careful, one can only lose."),
        quote_utterance("cy", "Everybody should set an example."),
        quote_utterance("dee", "I have no view on that yet."),
    ]
    minutes = RespondentHints("summarizer", "text", about=STAKE, speaker="minutes")
    said = reply_of_study_part(minutes, STAKE, *heard)
    assert "Of 4 who spoke about it, 2 spoke for giving much, 1 for holding back, and 1" in said


def test_what_others_gave_draws() -> None:
    def amount_given(amount: int) -> int:
        others = [quote_utterance(who, str(amount)) for who in ("ann", "bob", "cy")]
        hints = RespondentHints(
            "participant", "number", offered=("0", "20"), about=STAKE, speaker="dee"
        )
        return int(reply_of_study_part(hints, STAKE, *others))

    assert amount_given(20) > amount_given(0)


def test_a_backstory_is_made_from_profile_answers() -> None:
    lines = [
        quote_value(words, "persona", cell_id("assignment.profile", "p1", n), "p1")
        for n, words in enumerate(("I bake bread.", "34"))
    ]
    said = reply_of_study_part(RespondentHints("biographer", "text", speaker="p1"), *lines)
    assert said == "This is me: 34; I bake bread."


# --- planted faults are found ---------------------------------------------------------------------


def run_miswired_game(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, by: Callable[..., Any]
) -> RunFolder:
    monkeypatch.setattr(target, name, by)
    return run_game(make_game(PEOPLE, rounds=3), folder)


def test_a_treatment_that_is_not_shown_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = sessions.render_system_texts
    run = run_miswired_game(
        tmp_path,
        monkeypatch,
        sessions,
        "render_system_texts",
        lambda *a: (told(*a)[0], "", told(*a)[2]),
    )
    assert estimate_effect(run).low < 0
    (found,) = [f for f in STUDY.findings(run) if f.key == "exposure"]
    assert "treatment: required by the design, missing from" in repr(found)


def test_swapped_treatments_turn_the_effect_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(at: Any, who: Any, role: Any) -> Any:
        first, treatment, context = told(at, who, role)
        others = [t.description for t in at.experiment.treatments.values()]
        return first, next(t for t in others if t != treatment), context

    told = sessions.render_system_texts
    run = run_miswired_game(tmp_path, monkeypatch, sessions, "render_system_texts", swapped)
    assert estimate_effect(run).high < 0


def test_words_under_other_names_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_game(4)
    made["interview_prompts"] = [
        list(TASK_COLUMNS),
        make_task_row("c", "context", 0, "You talk about bicycles in the old town.", "context"),
        make_task_row("t", "discussion", 1, "Should bicycles be banned from the old town?", "talk"),
        make_task_row("u", "discussion", 2, "And what about lorries in the old town?", "lorries"),
    ]
    assert describe_deviations(run_game(made, tmp_path / "right")) == []
    tell = sessions.SessionState.add_to_history

    def swapped(self: Any, ids: Any, said: Any) -> None:
        seats = dict(zip([s.id for s in self.taken_seats], self.taken_seats[1:], strict=False))
        other = seats.get(said.speaker_id)
        if other is not None:
            said = said._replace(speaker_id=other.id, name=other.name)
        tell(self, ids, said)

    monkeypatch.setattr(sessions.SessionState, "add_to_history", swapped)
    assert MISATTRIBUTED_WORDS in str(describe_deviations(run_game(made, tmp_path / "wrong")))


def test_unheard_answers_have_no_influence(
    games_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = sessions.SessionState.add_to_history

    def deaf(self: Any, ids: Any, said: Any) -> None:
        tell(self, [i for i in ids if said.speaker_id in (i, "Facilitator")], said)

    run = run_miswired_game(tmp_path, monkeypatch, sessions.SessionState, "add_to_history", deaf)
    assert estimate_influence(run, 2) < 0.5 * estimate_influence(games_run, 2)


def test_an_unheard_last_round_is_found(
    games_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The amounts of a round are in the prompts of the next round, except for a planted fault."""
    tell = sessions.SessionState.add_to_history

    def forgetful(self: Any, ids: Any, said: Any) -> None:
        keeps = said.stage != "g2" or said.speaker_id == "Facilitator"
        tell(self, ids if keeps else [i for i in ids if i == said.speaker_id], said)

    run = run_miswired_game(
        tmp_path, monkeypatch, sessions.SessionState, "add_to_history", forgetful
    )
    assert count_unheard(games_run, 2) == count_unheard(games_run, 3) == count_unheard(run, 2) == 0
    assert count_unheard(run, 3) == PEOPLE


def count_unheard(run: RunFolder, later: int) -> int:
    """Count the participants with prompts that lack an amount of the round before."""
    with Journal(run.path / "journal.sqlite") as journal:
        put = {
            tuple(e.address.split("/")[1:4]): e.request["messages"][-1]["content"].splitlines()
            for e in journal.read_entries()
        }
    last = read_shares(run, f"give_{later - 1}").join(
        run.read_table("assignment").select("participant_id", "name"), on="participant_id"
    )
    missing = 0
    for (session,), people in last.group_by("session"):
        said = {r["participant_id"]: f"{r['name']}: {r['share'] * 20:g}" for r in people.to_dicts()}
        for who in said:
            others = {line for other, line in said.items() if other != who}
            missing += not others <= set(put[f"market.{session}", f"g{later}", who])
    return missing


def test_answers_under_other_names_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exchanged names, amounts of a participant no longer correlate between rounds."""
    note = sessions.SessionState.note

    def swapped(self: Any, response: Any) -> None:
        ids = [s.id for s in self.taken_seats]
        place = (ids.index(response.speaker_id) + response.place) % len(ids)
        note(self, replace(response, speaker_id=ids[place]))

    run = run_miswired_game(tmp_path, monkeypatch, sessions.SessionState, "note", swapped)
    first, second = (read_shares(run, f"give_{k}").sort("participant_id")["share"] for k in (1, 2))
    assert np.corrcoef(first, second)[0, 1] < 0.3


# --- over seeds -----------------------------------------------------------------------------------


@pytest.mark.nightly(part="seeds")
def test_intervals_cover_the_truth_over_seeds(tmp_path: Path) -> None:
    """Each seed has other participants and another true effect."""
    covered, estimates, truths, false_alarms = 0, [], [], 0
    for seed in range(60):
        folder = tmp_path / str(seed)
        both = [
            read_shares(run_game(make_game(120, w, plain=w), folder / n, seed)).sort(
                "participant_id"
            )["share"]
            for n, w in (("a", f"{PLAIN} {APPEAL}"), ("b", PLAIN))
        ]
        planted = float((both[0] - both[1]).mean())  # type: ignore[arg-type]
        got = estimate_effect(run_game(make_game(120), folder / "c", seed))
        null = estimate_effect(run_game(make_game(120, PLAIN), folder / "d", seed))
        covered += got.low < planted < got.high
        false_alarms += not null.low < 0 < null.high
        estimates.append(got.value)
        truths.append(planted)
        shutil.rmtree(folder)
    assert 52 <= covered <= 60 and false_alarms <= 8
    assert abs(np.mean(estimates) - np.mean(truths)) < 0.03
