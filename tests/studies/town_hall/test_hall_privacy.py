"""Read every prompt of a run and search it for private texts of other residents."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from folkmoot.kit.exposure import describe_deviations
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

from .hall_script import (
    CallKey,
    answer_in_any_session,
    answer_in_one_session,
    answer_plainly,
    make_model,
    make_reflection,
    parse_address,
    run_hall,
    small_hall,
)

PRIVATE_MARK = re.compile(r"secret-(\w+)-(A\d+)-(\d)")
PUBLIC_MARK = re.compile(r"public-(A\d+)-(\d)")


def answer_with_marks(key: CallKey, request: ModelRequest) -> Any:
    """Return answers in which each private and public text names its resident, stage and round."""
    stage, who, number = key
    said = answer_plainly(key, request)
    secret = f"secret-{stage}-{who}-{number}"
    if stage == "think":
        said |= {"key_concerns": [secret], "strategic_notes": secret}
        if number and number > 1:
            other = "A02" if who == "A01" else "A01"
            said["reactions"] = [
                {
                    "target_agent": other,
                    "target_summary": secret,
                    "my_feeling": "angry",
                    "agree_level": 2,
                    "reason": secret,
                    "want_to_respond": True,
                }
            ]
    if stage == "speak":
        said |= {"full_statement": f"public-{who}-{number}", "new_points": [secret]}
    if stage == "reflect":
        said = make_reflection("neutral", "oppose", "harden", next_round_strategy=secret)
        said["stance_evolution"]["change_reason"] = secret
    if stage in ("before", "after"):
        said["reason"] = f"secret-{stage}-{who}-0"
    if stage == "vote":
        said = {i: {"vote": "no", "reason": f"secret-vote-{who}-0"} for i in said}
    if stage == "moderator":
        said["spoken"] = f"moderated-{number}"
    return said


Prompts = list[tuple[CallKey, str]]  # the key and the text of each prompt


class ReadPrompts(Protocol):
    def __call__(self, level: str, history: str = "all") -> Prompts: ...


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> ReadPrompts:
    """Return a function of the level and of the history: all prompts of that level. A hall with all
    levels is run once for each history."""

    @cache
    def run_levels(history: str) -> ScriptedProvider:
        folder = tmp_path_factory.mktemp("hall")
        model = make_model(answer_in_any_session(answer_with_marks), keep=True)
        settings = {"levels": ["1", "2-1", "4"], "history": history}
        run_hall(folder, small_hall(folder) | settings, model)
        return model

    def read_prompts(level: str, history: str = "all") -> Prompts:
        return [
            (parse_address(address), "\n".join(m.content for m in request.messages))
            for address, request in run_levels(history).seen
            if address.startswith(f"set01_lv{level}/")
        ]

    return read_prompts


@pytest.fixture(scope="module", params=["2-1", "4"])
def seen(request: pytest.FixtureRequest, prompts: ReadPrompts) -> Prompts:
    return prompts(request.param)


def test_private_texts_are_in_no_prompt_of_another_resident(
    seen: list[tuple[CallKey, str]],
) -> None:
    found = 0
    for (_, reader, _), text in seen:
        for _, owner, _ in PRIVATE_MARK.findall(text):
            found += 1
            assert owner == reader
    assert found  # the residents' own words do come back to them


def test_thoughts_go_into_the_same_turn_only(seen: list[tuple[CallKey, str]]) -> None:
    for (stage, _, number), text in seen:
        for kind, _, when in PRIVATE_MARK.findall(text):
            if kind == "think":
                assert (stage, str(number)) == ("speak", when)


def test_reflections_feed_the_next_think_only(seen: list[tuple[CallKey, str]]) -> None:
    fed = set()
    for (stage, reader, number), text in seen:
        for kind, owner, when in PRIVATE_MARK.findall(text):
            if kind == "reflect":
                assert (stage, number) == ("think", int(when) + 1)
                fed.add((owner, when))
            assert kind not in ("before", "after", "vote")
        if stage == "think" and number and number > 1:
            assert f"secret-reflect-{reader}-{number - 1}" in text
    assert fed == {(f"A0{i}", str(r)) for i in range(1, 6) for r in (1, 2)}


def test_a_round_hears_the_rounds_before_and_not_itself(seen: list[tuple[CallKey, str]]) -> None:
    for (stage, _, number), text in seen:
        rounds = {int(r) for _, r in PUBLIC_MARK.findall(text)}
        if number and stage in ("think", "speak", "reflect"):
            assert rounds == set(range(1, number + (stage == "reflect")))


@pytest.mark.parametrize(("history", "rounds"), [("all", {1, 2, 3}), ("last", {3})])
def test_every_level_has_the_same_rounds_before_it(
    prompts: ReadPrompts, history: str, rounds: set[int]
) -> None:
    """The prompts of a decision have the same statements at levels 1 and 2-1, so that the two
    levels differ only in the sharing of a session."""
    shared: dict[Any, Any] = {}
    for (stage, _, number), text in prompts("1", history):
        shared[stage, number] = set(PUBLIC_MARK.findall(text))
    for (stage, _, number), text in prompts("2-1", history):
        if stage in ("think", "speak"):
            assert set(PUBLIC_MARK.findall(text)) == shared["session", number]
        if stage in ("vote", "after"):
            assert set(PUBLIC_MARK.findall(text)) == shared[stage, None]
            assert {int(r) for _, r in PUBLIC_MARK.findall(text)} == rounds
            assert {who for who, _ in PUBLIC_MARK.findall(text)} == {f"A0{i}" for i in range(1, 6)}


@pytest.mark.parametrize(
    ("history", "after_first"),
    [("all", {("think", 3), ("speak", 3), ("reflect", 2), ("vote", None), ("after", None),
              ("moderator", 3)}),
     ("last", set())],
)  # fmt: skip
def test_the_moderator_is_heard_from_the_reflection_on_the_round_on(
    prompts: ReadPrompts, history: str, after_first: set[Any]
) -> None:
    """Residents read it, and the moderator reads their own last text."""
    heard: dict[str, set[tuple[str, int | None]]] = {"1": set(), "2": set(), "3": set()}
    for (stage, _, number), text in prompts("4", history):
        for when in re.findall(r"moderated-(\d)", text):
            heard[when].add((stage, number))
    first = {("reflect", 1), ("think", 2), ("speak", 2), ("moderator", 2)}
    assert heard["1"] == first | after_first
    assert {("reflect", 2), ("think", 3), ("speak", 3), ("moderator", 3)} <= heard["2"]
    assert heard["3"] == {("vote", None), ("after", None)}


@pytest.mark.parametrize("history", ["all", "last"])
def test_the_moderator_has_the_rounds_that_residents_look_back_on(
    prompts: ReadPrompts, history: str
) -> None:
    rounds: dict[tuple[str, int], set[int]] = {}
    for (stage, _, number), text in prompts("4", history):
        if stage in ("moderator", "reflect"):
            rounds[stage, number or 0] = {int(when) for _, when in PUBLIC_MARK.findall(text)}
    for number in (1, 2):
        assert rounds["moderator", number] == rounds["reflect", number]
    assert rounds["moderator", 3] == ({1, 2, 3} if history == "all" else {3})


def test_a_shared_session_reflects_on_what_the_moderator_said_too(tmp_path: Path) -> None:
    settings = {"level_settings": {"1": {"moderator": "model"}}}
    model = make_model(answer_in_one_session(answer_with_marks), keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["1"], **settings}, model)
    seen = [(a, r.messages[-1].content) for a, r in model.seen if "/reflect" in a]
    assert [re.findall(r"moderated-(\d)", text) for _, text in seen] == [["1"], ["1", "2"]]
    log = hall_run.folder.read_json("set01_lv1/reflection_log.json")["rounds"]
    assert [len(r["reflections"]) for r in log] == [5, 5]
    quality = hall_run.folder.read_json("set01_lv1/metrics_summary.json")["quality"]
    assert quality["reflections_unread"] == quality["rounds_split"] == 0
    assert describe_deviations(hall_run.folder) == []


def test_a_question_without_a_statement_is_in_no_prompt(tmp_path: Path) -> None:
    """No resident can answer it. It is recorded as it was given."""

    def mute(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[:2] == ("speak", "A01"):
            targets = ("A02", "all", "moderator", "planner")
            asked = [{"target": t, "content": "unheard"} for t in targets]
            said |= {"questions": asked, "full_statement": ""}
        return said

    model = make_model(answer_in_any_session(mute), keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["1", "4"]}, model)
    assert not [a for a, r in model.seen if "unheard" in r.messages[-1].content]
    for level in ("1", "4"):
        log = hall_run.folder.read_json(f"set01_lv{level}/discussion_log.json")
        turns = log["rounds"][0]["turns"]
        said = next(t["speaking"] for t in turns if t["agent_id"] == "A01")
        assert len(said["questions"]) == 4 and said["full_statement"] == "", level


@pytest.mark.parametrize(("level", "offered"), [("1", False), ("2-1", False), ("4", True)])
def test_a_question_to_the_moderator_is_asked_for_where_there_is_one(
    prompts: ReadPrompts, level: str, offered: bool
) -> None:
    seen = prompts(level)
    asking = [text for _, text in seen if "A question goes to an id, to all" in text]
    assert asking and all(("to the moderator or to" in text) == offered for text in asking)


def test_questions_are_in_the_prompts_of_their_addressees(tmp_path: Path) -> None:
    put = {"A02": "to-a-resident", "all": "to-everyone", "moderator": "to-the-chair",
           "planner": "to-the-planner"}  # fmt: skip

    def curious(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[:2] == ("speak", "A01"):
            asked = [{"target": t, "content": f"{words}-{key[2]}"} for t, words in put.items()]
            said |= {"questions": asked, "full_statement": "I have questions."}
        return said

    model = make_model(answer_in_any_session(curious), keep=True)
    run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["1", "4"]}, model)
    reached: dict[tuple[str, str], set[Any]] = {}
    for address, request in model.seen:
        (stage, who, number), text = parse_address(address), request.messages[-1].content
        level = address.partition("/")[0].removeprefix("set01_lv")
        for words in put.values():
            for when in re.findall(rf"{words}-(\d)", text):
                if stage in ("think", "speak", "session", "moderator"):
                    assert number == int(when) + (stage != "moderator")
                reached.setdefault((level, words), set()).add(who)
    assert reached == {
        # One session answers for all residents, and there is no moderator.
        ("1", "to-a-resident"): {"session", "vote"},
        ("1", "to-everyone"): {"session", "vote"},
        ("1", "to-the-planner"): {"plan"},
        ("4", "to-a-resident"): {"A02"},
        ("4", "to-everyone"): {"A02", "A03", "A04", "A05", "moderator"},
        ("4", "to-the-chair"): {"moderator"},
        ("4", "to-the-planner"): {"plan"},
    }


def test_without_thinking_the_statements_are_heard_when_speaking(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"level_settings": {"2-1": {"think": False}}}

    def answer_speaking(key: CallKey, request: ModelRequest) -> Any:
        # Without THINK the one call of a turn is SPEAK.
        stage = "speak" if key[0] == "think" else key[0]
        return answer_with_marks((stage, *key[1:]), request)

    model = make_model(answer_speaking, keep=True)
    hall_run = run_hall(tmp_path, settings, model)
    turns = [(parse_address(a), r.messages[-1].content) for a, r in model.seen if "/turns/" in a]
    assert len(turns) == 3 * 5
    for (_, reader, number), text in turns:
        others = {int(r) for w, r in PUBLIC_MARK.findall(text) if w != reader}
        assert number and others == set(range(1, number))
    assert hall_run.table("rounds")["overall_stance"].null_count() == 15


def test_planner_and_closing_text_do_not_know_who_is_vulnerable(prompts: ReadPrompts) -> None:
    for (stage, _, _), text in prompts("4"):
        if stage in ("plan", "consensus", "vote"):
            assert "profile 0" not in text and "vulnerable" not in text.lower()
        if stage == "moderator":
            listed = re.findall(r"(A\d+) \(\w+\) is the (profile \d)", text)
            assert listed == [("A04", "profile 0"), ("A05", "profile 1")]


def test_thoughts_of_a_shared_session_go_into_no_prompt(prompts: ReadPrompts) -> None:
    """The shared session does not repeat thoughts. The call of the next round quotes a reflection
    under the name of its resident."""
    seen = prompts("1")
    kinds = {(k, s, r) for (s, _, r), text in seen for k, _, r in PRIVATE_MARK.findall(text)}
    assert {k for k, _, _ in kinds} == {"reflect"}
    for (stage, _, number), text in seen:
        for line in text.splitlines():
            for kind, owner, when in PRIVATE_MARK.findall(line):
                assert (kind, stage, number) == ("reflect", "session", int(when) + 1)
                assert line.startswith(f"{owner} noted:")
