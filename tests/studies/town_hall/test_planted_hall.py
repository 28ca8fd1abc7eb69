"""Planted effect in the town hall: residents answer those whom the moderator names.

No other difference between levels has an effect. The pipeline finds the planted effect, finds no
other one, and reports miswirings. For the embedded respondent, each sentence that names a resident
makes a reaction to this resident likelier. The score of inclusion measures these reactions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot import Run
from folkmoot.kit.exposure import MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.models.request import Completion, ModelRequest, ProviderSettings, StudyPart
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.respondent import Respondent
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import Meeting, Round, StatementLine
from folkmoot.studies.town_hall.respondent import PART, matters_in
from tests.conftest import SharedFolder
from tests.studies.cross_pollination.test_cross_pollination_sources import keep_quoted_texts

PROMPTS = Path(folkmoot.__file__).parent / "studies" / "town_hall" / "prompts"
STREET = {
    "title": "Shall Mill Street be closed to cars?",
    "background": "For a trial of one year the street would be closed. The bus would go round by "
    "the bridge, deliveries would come before the shops open, and the school would get a new "
    "crossing. The cost is not settled, nor is the noise at the bridge.",
    "contributions": {"owner": "a fee of 40 a year for the parking place"},
    "stakes": {"tenant": "The rent may rise when the street is quiet."},
}
LEVEL_SETTINGS = {
    "quiet": {"context": "separate"},
    "again": {"like": "quiet"},
    "chaired": {"like": "quiet", "moderator": "model"},
}
# Five sets are the fewest with intervals and tests.
FIVE_SETS: dict[str, Any] = {"sets": 5, "residents": {"general": 4}}
SIX_GENERAL = {"residents": {"general": 6}}
CONTROLS = {
    "unlisted": {"like": "chaired", "moderator_list": False},
    "placebo": {"like": "chaired", "labels": "shuffled"},
}


def run_planted_hall(folder: Path, levels: Sequence[str], **more: Any) -> Run:
    settings = {
        "study": "town_hall",
        "topic": STREET,
        "sets": 6,
        "rounds": 3,
        "levels": list(levels),
        "level_settings": {**LEVEL_SETTINGS, **CONTROLS},
        "residents": {"general": 8},
        "coding": "off",
        "random_seed": 5,
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "hall.yaml"
    path.write_text(json.dumps(settings), "utf-8")
    return folkmoot.run(path, model="synthetic", out=folder / "run")


def find_contrast(
    run: Run, before: str, after: str, figure: str = "weighted_inclusivity_score"
) -> Any:
    found = run.table("differences").filter(
        from_level=before, to_level=after, figure=figure, group="gap"
    )
    return found.row(0, named=True)


@pytest.fixture(scope="session")
def run(shared_folder: SharedFolder) -> Run:
    made = shared_folder(
        "hall/planted", lambda at: run_planted_hall(at, ["quiet", "chaired"], **SIX_GENERAL)
    )
    return folkmoot.load(made / "run")


@pytest.fixture(scope="session")
def few_sets(shared_folder: SharedFolder) -> Run:
    """A run with two sets, for assertions about single turns."""

    def make(folder: Path) -> None:
        run_planted_hall(folder, ["quiet", "chaired"], sets=2, **SIX_GENERAL)

    return folkmoot.load(shared_folder("hall/few sets", make) / "run")


@pytest.fixture(scope="session")
def with_controls(shared_folder: SharedFolder) -> Run:
    levels = ["quiet", "chaired", *CONTROLS]
    made = shared_folder("hall/controls", lambda at: run_planted_hall(at, levels, **SIX_GENERAL))
    return folkmoot.load(made / "run")


def test_a_moderator_who_names_the_vulnerable_changes_the_gap(few_sets: Run) -> None:
    """Two sets are too few for an interval or a test, which the night has with six sets."""
    assert find_contrast(few_sets, "quiet", "chaired")["estimate"] > 0.25


@pytest.mark.nightly(part="truths")
def test_a_moderator_who_names_the_vulnerable_has_them_answered(run: Run) -> None:
    found = find_contrast(run, "quiet", "chaired")
    assert found["estimate"] > 0.25 and found["low"] > 0 and found["p"] < 0.05


# Daily, the moderator has the planted effect, and test_controls tests what the list and the labels
# change.
@pytest.mark.nightly(part="truths")
def test_without_the_list_the_effect_is_gone(with_controls: Run) -> None:
    found = find_contrast(with_controls, "chaired", "unlisted")
    assert found["estimate"] < -0.25 and found["p"] < 0.05


@pytest.mark.nightly(part="truths")
def test_the_effect_follows_the_list_and_not_the_person(with_controls: Run) -> None:
    assert find_contrast(with_controls, "quiet", "placebo")["estimate"] > 0.2
    persons = with_controls.table("residents").select(
        "set", "id", pl.col("is_vulnerable").alias("person")
    )
    reactions = with_controls.table("reactions").filter(level="placebo")
    found = reactions.join(persons, left_on=["set", "target"], right_on=["set", "id"])
    level = found.group_by("target_vulnerable", "person").agg(pl.col("reaction_level").mean())
    score = {(r[0], r[1]): r[2] for r in level.iter_rows()}
    assert score[True, False] > score[False, True] + 0.2


def test_residents_who_were_answered_end_more_content(few_sets: Run) -> None:
    rounds = (
        few_sets.table("rounds")
        .group_by("discussion_id", "agent_id")
        .agg(pl.col("total_reaction_count").sum().alias("met"))
    )
    both = few_sets.table("satisfaction").join(rounds, on=["discussion_id", "agent_id"])
    content = both.group_by(pl.col("met") >= 3).agg(pl.col("satisfaction_delta").mean())
    by = {r[0]: r[1] for r in content.iter_rows()}
    assert by[True] > by[False] + 0.5


@pytest.mark.nightly(part="truths")
def test_without_persuasion_every_effect_is_gone(tmp_path: Path) -> None:
    none = run_planted_hall(
        tmp_path, ["quiet", "chaired"], **FIVE_SETS, respondent={"persuasion": 0}
    )
    found = find_contrast(none, "quiet", "chaired")
    assert abs(found["estimate"]) < 0.15 and found["p"] > 0.05


@pytest.mark.nightly(part="truths")
def test_the_shared_session_is_no_other_hall(tmp_path: Path) -> None:
    both = run_planted_hall(tmp_path, ["1", "quiet"], **FIVE_SETS)
    found = find_contrast(both, "1", "quiet")
    assert abs(found["estimate"]) < 0.3 and found["p"] > 0.05


# --- miswirings: each is seen by a named audit ---


def measure_grounded_share(run: Run) -> float:
    """Return the share of references about a matter that their target had raised before."""
    known = sorted(PART.option_names(TownHallConfig.model_validate({"topic": STREET})))
    said = {
        (r["discussion_id"], r["speaker_id"], r["round"]): r["text"]
        for r in run.table("utterances").filter("public").iter_rows(named=True)
    }
    good = []
    for name in run.table("discussions")["discussion_id"]:
        for round_ in run.folder.read_json(f"{name}/discussion_log.json")["rounds"][1:]:
            for turn in round_["turns"]:
                for answer in turn["speaking"]["references"]:
                    before = " ".join(
                        said[name, answer["target_agent"], n] for n in range(1, round_["round"])
                    )
                    about = [m for m in known if f"the {m}" in answer["content"]]
                    good.append(not about or any(m in before for m in about))
    return sum(good) / len(good)


def test_references_concern_what_was_said(few_sets: Run) -> None:
    assert measure_grounded_share(few_sets) == 1
    assert describe_deviations(few_sets.folder) == []


def test_two_swapped_speakers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(self: Meeting, round_: Round, *, excluding: str = "") -> list[StatementLine]:
        said = [
            (i, of.statement) for i in round_.order if (of := round_.recorded[i]) and i != excluding
        ]
        spoken = [(i, words) for i, words in said if words.text]
        turned = [*spoken[1:], *spoken[:1]]
        return self.as_lines((i, words) for (i, _), (_, words) in zip(spoken, turned, strict=True))

    monkeypatch.setattr(Meeting, "statements", swapped)
    wrong = run_planted_hall(tmp_path, ["quiet"], sets=1)
    assert measure_grounded_share(wrong) < 0.9
    told = [d for d in describe_deviations(wrong.folder) if MISATTRIBUTED_WORDS in d]
    assert [d.split(": ")[0] for d in told] == [
        "quiet, reflection",
        "quiet, later statement",
        "quiet, vote",
        "quiet, satisfaction after",
    ]


def test_a_last_round_that_is_not_shown_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Meeting, "remembered_rounds", lambda self, rounds: rounds[:-1])
    deaf = run_planted_hall(tmp_path, ["quiet"], sets=1)
    assert any(
        "others' statements: required by the design" in d for d in describe_deviations(deaf.folder)
    )
    second = deaf.table("reactions").filter(round=2)
    assert (second["reaction"] == "ignore").all()


def write_changed_prompt(folder: Path, name: str, change: Callable[[str], str]) -> str:
    """Write one changed prompt and return its folder."""
    (folder / "prompts").mkdir(parents=True, exist_ok=True)
    text = (PROMPTS / f"{name}.md").read_text("utf-8")
    assert change(text) != text
    (folder / "prompts" / f"{name}.md").write_text(change(text), "utf-8")
    return str(folder / "prompts")


# Daily, the moderator has the planted effect, and test_planted_focus_group has no effect where none
# is planted.
@pytest.mark.nightly(part="truths")
def test_a_moderator_who_is_not_shown_has_no_effect_and_is_found(tmp_path: Path) -> None:
    def deaf(text: str) -> str:
        return re.sub(r"\{\{ (?:e\.)?moderator \}\}", "(…)", text)

    prompts = write_changed_prompt(tmp_path, "heard", deaf)
    unheard = run_planted_hall(tmp_path, ["quiet", "chaired"], prompts=prompts, **FIVE_SETS)
    assert find_contrast(unheard, "quiet", "chaired")["p"] > 0.05
    assert any(
        "moderator's words: required by the design" in d
        for d in describe_deviations(unheard.folder)
    )


# --- other words, same content ---


@pytest.mark.nightly(part="wordings")
def test_answers_need_no_instructions_and_no_order(tmp_path: Path) -> None:
    """All questions say what they are about, and the texts alone decide the answers."""
    levels = {**LEVEL_SETTINGS, "together": {"context": "shared", "moderator": "model"}}
    settings = {
        "topic": STREET,
        "sets": 1,
        "levels": ["chaired", "together", "1"],
        "level_settings": levels,
        "residents": {"general": 4},
        "random_seed": 5,
    }
    config = TownHallConfig.model_validate(settings)
    model = Respondent(ProviderSettings(seed=5, study=StudyPart(PART, config)))
    compared = set[str]()

    def answer(request: ModelRequest, address: str) -> Completion:
        assert request.hints.about
        reply = model.reply(request, address)
        assert model.reply(keep_quoted_texts(request, 1), address).text == reply.text, address
        compared.add(str((request.schema or {})["title"]))
        return reply

    folkmoot.run("town_hall", settings, provider=ScriptedProvider(answer), out=tmp_path / "run")
    assert compared >= PART.answers.keys()


_WORD = re.compile(r"(\{\{.*?\}\}|\{%.*?%\})|[A-Za-z]{2,}", re.DOTALL)


def scramble_words(text: str) -> str:
    """Replace all words of a prompt. Variables, punctuation and JSON braces stay."""
    return _WORD.sub(lambda m: m[1] or "la" * (1 + len(m[0]) // 4), text)


@pytest.mark.nightly(part="truths")
def test_the_effect_stays_when_every_word_of_the_prompts_is_another(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    for file in PROMPTS.glob("*.md"):
        text = file.read_text("utf-8")
        if file.stem != "portrait":  # the description of a resident is content
            text = scramble_words(text)
        (tmp_path / "prompts" / file.name).write_text(text, "utf-8")
    hall_run = run_planted_hall(
        tmp_path, ["quiet", "chaired"], prompts=str(tmp_path / "prompts"), **FIVE_SETS
    )
    found = find_contrast(hall_run, "quiet", "chaired")
    assert found["estimate"] > 0.2 and found["low"] > 0
    assert hall_run.table("rounds")["speaking_parse_error"].sum() == 0
    passed = hall_run.table("items")["passed"]
    assert passed.any() and hall_run.table("items")["text"].n_unique() > 20


def test_matters_are_those_of_the_topic() -> None:
    names = PART.option_names(TownHallConfig.model_validate({"topic": STREET}))
    assert {"bus", "bridge", "new crossing", "noise", "parking place", "rent"} <= set(names)
    assert matters_in("What the rents will be afterwards is not settled.") == ("rents",)


def test_nothing_of_another_topic_is_said_and_tenants_do_not_worry_as_owners(few_sets: Run) -> None:
    people = {(r["set"], r["id"]): r for r in few_sets.table("residents").iter_rows(named=True)}
    fees = 0
    spoken = few_sets.table("utterances").filter("public", speaker_role="resident")
    for row in spoken.iter_rows(named=True):
        for word in ("redevelop", "lift", "renovat", "flat", "demoli"):
            assert word not in row["text"]
        # In the first round all residents raise their own matters.
        if row["round"] == 1 and re.search("the (?:parking place|fee)", row["text"]):
            fees += 1
            assert people[row["set"], row["speaker_id"]]["ownership"] == "owner"
    assert fees


@pytest.mark.nightly(part="truths")
def test_the_moderator_names_speakers_independently_of_ids(with_controls: Run) -> None:
    """A moderator who names residents in the order of ids would rarely name the vulnerable."""
    names = {
        (r["set"], r["name"]): r["id"]
        for r in with_controls.table("residents").iter_rows(named=True)
    }
    named = []
    for row in (
        with_controls.table("utterances").filter(speaker_role="moderator").iter_rows(named=True)
    ):
        for words in re.findall(r"\d+ residents spoke of the [\w ]+, ([^.]+) among", row["text"]):
            named += [names[row["set"], name] for name in words.split(" and ")]
    late = sum(id > "A05" for id in named) / len(named)  # of ten
    assert len(named) > 100 and 0.35 < late < 0.65


def test_counts_that_the_moderator_names_are_right(few_sets: Run) -> None:
    spoken = few_sets.table("utterances").filter(speaker_role="moderator")
    counted = 0
    for row in spoken.iter_rows(named=True):
        for number, matter in re.findall(r"(\d+) residents spoke of (the [\w ]+?),", row["text"]):
            said = few_sets.table("utterances").filter(
                pl.col("round") <= row["round"],
                discussion_id=row["discussion_id"],
                speaker_role="resident",
            )
            about = said.filter(pl.col("text").str.contains(matter, literal=True))
            assert about["speaker_id"].n_unique() >= int(number)
            counted += 1
    assert counted > 3


def test_words_and_stance_agree(few_sets: Run) -> None:
    """The stance of a resident fits their statement."""
    for name in few_sets.table("discussions")["discussion_id"]:
        for round_ in few_sets.folder.read_json(f"{name}/discussion_log.json")["rounds"]:
            for turn in round_["turns"]:
                stance, said = (
                    turn["thinking"]["overall_stance"],
                    turn["speaking"]["full_statement"],
                )
                if "firmly for it" in said or "On the whole I am for it" in said:
                    assert stance in ("support", "strong_support")
                if "against it" in said:
                    assert stance in ("oppose", "strong_oppose")


def test_residents_question_each_other_and_proposals_differ(few_sets: Run) -> None:
    asked = [
        q
        for name in few_sets.table("discussions")["discussion_id"]
        for round_ in few_sets.folder.read_json(f"{name}/discussion_log.json")["rounds"]
        for turn in round_["turns"]
        for q in turn["speaking"]["questions"]
        if q["target"].startswith("A")
    ]
    assert len(asked) > 3
    assert few_sets.table("items")["text"].n_unique() > 10


# --- over seeds ---


@pytest.mark.nightly(part="seeds")
def test_intervals_cover_the_planted_effect_over_seeds(tmp_path: Path) -> None:
    """The mean over all seeds is the effect of this design; 95 % of intervals should hold it."""
    found = [
        find_contrast(
            run_planted_hall(tmp_path / str(seed), ["quiet", "chaired"], random_seed=seed),
            "quiet",
            "chaired",
        )
        for seed in range(100, 140)
    ]
    effect = sum(f["estimate"] for f in found) / len(found)
    assert 0.25 < effect < 0.7
    assert sum(f["low"] <= effect <= f["high"] for f in found) >= 34
    assert sum(f["p"] < 0.05 for f in found) >= 28


@pytest.mark.nightly(part="seeds")
def test_false_alarms_over_seeds_are_rare(tmp_path: Path) -> None:
    alarms, moved = 0, []
    for seed in range(200, 240):
        run = run_planted_hall(tmp_path / str(seed), ["quiet", "again"], random_seed=seed)
        found = find_contrast(run, "quiet", "again")
        alarms += found["p"] < 0.05
        moved.append(found["estimate"])
    assert alarms <= 6
    assert abs(sum(moved) / len(moved)) < 0.08


@pytest.mark.nightly(part="seeds")
def test_other_words_keep_the_effect_over_seeds(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    for file in PROMPTS.glob("*.md"):
        text = file.read_text("utf-8")
        changed = text if file.stem == "portrait" else scramble_words(text)
        (tmp_path / "prompts" / file.name).write_text(changed, "utf-8")
    moved = []
    for seed in range(300, 320):
        own = run_planted_hall(tmp_path / f"a{seed}", ["quiet", "chaired"], random_seed=seed)
        other = run_planted_hall(
            tmp_path / f"b{seed}",
            ["quiet", "chaired"],
            random_seed=seed,
            prompts=str(tmp_path / "prompts"),
        )
        a, b = (find_contrast(r, "quiet", "chaired")["estimate"] for r in (own, other))
        moved.append(b - a)
    # 3 points of a score from 0 to 4, within what twenty seeds can tell.
    found = clustered_mean(moved, range(20))
    assert abs(found.value) < 0.12 or found.low < 0.12


@pytest.mark.nightly(part="wordings")
def test_votes_and_first_satisfaction_do_not_depend_on_the_wording(tmp_path: Path) -> None:
    """Regression: ids near the beginning of a line were read as the first item, which then failed.
    An instruction with a colon after an id was read as a statement of this resident."""
    folder = tmp_path / "prompts"
    copytree(PROMPTS, folder)
    ballot = (folder / "vote.md").read_text("utf-8")
    other = ballot.replace(
        "Reply with only a JSON object with these keys:\n{{ answer_format }}",
        'JSON with {{ items | map(attribute="id") | join(", ") }}: each a reason and a vote.',
    )
    assert other != ballot
    (folder / "vote.md").write_text(other, "utf-8")
    before = (folder / "satisfaction_before.md").read_text("utf-8")
    other = re.sub(r"(?s)Before the meeting.*?\n\n", "To {{ me }} alone, in advance: ", before)
    assert other != before
    (folder / "satisfaction_before.md").write_text(other, "utf-8")
    shipped, changed = (
        run_planted_hall(tmp_path / name, ["quiet"], sets=1, rounds=1, prompts=str(prompts))
        for name, prompts in (("shipped", PROMPTS), ("other", folder))
    )
    assert shipped.table("votes").equals(changed.table("votes"))
    columns = ("pre_satisfaction", "pre_reason")
    befores = [run.table("satisfaction").select(columns) for run in (shipped, changed)]
    assert befores[0].equals(befores[1])
