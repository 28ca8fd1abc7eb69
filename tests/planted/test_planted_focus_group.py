"""Planted truths of the focus group: a good and a bad stimulus, a price, the pull of a group; their
nulls, their sizes, other words, and pipelines that are wired wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import folkmoot
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, build_messages
from folkmoot.kit.exposure import MISATTRIBUTED_WORDS
from folkmoot.measures.inference.clustered import paired_difference
from folkmoot.models.request import ModelRequest, ProviderSettings, RespondentHints, StudyPart
from folkmoot.people.sources.grounded import Profile
from folkmoot.provenance import join_texts
from folkmoot.respondent import Respondent
from folkmoot.respondent.mind.reading import read_prompt
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import STUDY, sycophancy
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.findings import LIKELY
from folkmoot.studies.focus_group.participants import Participant
from folkmoot.studies.focus_group.respondent import PART, form_opinion
from folkmoot.studies.focus_group.tables import read_talk
from folkmoot.studies.focus_group.talk.table import TableDiscussion
from folkmoot.studies.focus_group.talk.views import load_wordings, sentence_views, split_sentences
from tests.conftest import SharedFolder
from tests.sweeps import sample_daily

GOOD = "It is simple and quick. Tested and reliable for ten years. Results are crisp and fresh."
BAD = (
    "It takes an hour to set up and the settings are fussy. It breaks often. Meals come out soggy."
)
TWO_STIMULI = {
    "stimuli": [
        {"name": "good", "product_concept": "An oven that reads", "stimulus_material": GOOD},
        {"name": "bad", "product_concept": "An oven that reads", "stimulus_material": BAD},
    ]
}
PRICE_LADDER = {
    "product_concept": "An oven that reads",
    "stimulus_material": GOOD,
    "prices": ["50 dollars", "150 dollars", "450 dollars", "1350 dollars"],
}
ONE_CONCEPT = {"product_concept": "An oven that reads", "stimulus_material": GOOD}
TOLERANCE = 0.10

# The same content, variables and forms, in few other words.
TERSE_PROMPTS = {
    "persona_system": """{{ introduction }}
{{ background }}
{{ circumstances }}
{{ personality }}
{{ voice }}
{{ buying }}
{{ engagement }}
Give your name as {{ who }}. Subject: {{ category }}. Up for debate{{ " (one to one)" if alone }}:
{{ concept }}
{% if opinion %}What went through your head at first: {{ leaning }}; “{{ opinion }}”{% endif %}""",
    "private_opinion": """{{ concept }}
{{ stimulus or "" }}
{{ price or "" }}
Out with it, no one listens{{ " any more" if talked or alone }}. JSON: opinion (text), position
(-1 to 1).""",
    "purchase_intent": """{{ concept }}
{{ stimulus or "" }}
{{ price or "" }}
Pick a line:
{{ options | listed }}""",
    "participant_response": """{{ stimulus or "" }}
“{{ question }}”
{{ length }} {{ company }} At most {{ max_words }} words.
{{ addressed }}{{ probe }}{{ alone }}{{ others }}""",
}


def run_groups(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    prompts: Mapping[str, str] | None = None,
    groups: int = 6,
    **more: Any,
) -> RunFolder:
    """Run a short discussion in several groups with the embedded respondent."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = {
        "category": "kitchen appliances",
        "phases": ["synthesis"],
        "replications": groups,
        "coding": "off",
        "random_seed": 3,
        **settings,
        **more,
    }
    if prompts is not None:
        own = folder / "prompts"
        own.mkdir()
        for name, text in prompts.items():
            (own / f"{name}.md").write_text(text, "utf-8")
        raw["prompts"] = str(own)
    return folkmoot.run(STUDY, raw, out=folder / "run", model="synthetic").folder


def compute_true_positions(
    run: RunFolder, stimulus: int = 0, price: str | None = None
) -> list[float]:
    """Return the positions of a run's participants by the respondent's model, without prompts."""
    config = DiscussionConfig.model_validate(run.config)
    on = config.for_stimulus(config.concepts[stimulus])
    settings = ProviderSettings(seed=config.random_seed or 0, study=StudyPart(PART, config))
    respondent = Respondent(settings)
    found = []
    for people in run.plan["sealed"]["recruits"]["data"].values():
        for raw in people:
            who = Participant(Profile.model_validate(raw), on)
            texts = who.texts
            told = join_texts("\n", texts.description(who.id, who.description).values())
            ladder = {str(rung): rung for rung in texts.ladder}
            cost = ladder[price] if price else texts.price
            asked = join_texts("\n\n", filter(None, (texts.concept, texts.material, cost)))
            messages, _, spans = build_messages(
                Speaker(who.id, system=told), EMPTY_TRANSCRIPT, asked
            )
            hints = RespondentHints("participant", kind="json", speaker=who.id)
            request = ModelRequest("synthetic", messages, hints=hints, spans=spans)
            found.append(
                form_opinion(respondent.build_mind(read_prompt(request), "truth")).bounded_position
            )
    return found


def read_positions(run: RunFolder, stimulus: str, when: str = "before") -> pl.Series:
    table = run.read_table("statements")
    return table.filter((pl.col("stimulus") == stimulus) & (pl.col("when") == when))["position"]


def compute_gap(run: RunFolder, when: str = "before") -> float:
    """Return the difference of mean positions, good minus bad."""
    good, bad = (read_positions(run, name, when).to_numpy().mean() for name in ("good", "bad"))
    return float(good - bad)


def compute_demand(run: RunFolder, when: str = "before") -> list[float]:
    """Return the share that would buy, by price of the ladder."""
    asked = run.read_table("intents").filter((pl.col("when") == when) & pl.col("ladder"))
    return [
        float((asked.filter(pl.col("price") == price)["score"] >= LIKELY).mean() or 0)  # type: ignore[arg-type]
        for price in PRICE_LADDER["prices"]
    ]


def read_exposure_finding(run: RunFolder) -> str:
    """Return the finding on texts that are missing in prompts or should not be there."""
    return str({f.key: f for f in STUDY.findings(run)}["exposure"])


def check_pull(run: RunFolder) -> sycophancy.SycophancyCheck:
    paths = sorted((run.path / "groups").glob("*/transcript.json"))
    talks = [DiscussionTranscript.model_validate_json(p.read_text("utf-8")) for p in paths]
    return sycophancy.check_transcripts(talks)


@pytest.fixture(scope="session")
def two(shared_folder: SharedFolder) -> RunFolder:
    """A good and a bad stimulus."""
    return RunFolder(
        shared_folder("focus_group/two", lambda folder: run_groups(folder, TWO_STIMULI, groups=4))
        / "run"
    )


@pytest.fixture(scope="session")
def unpersuaded(shared_folder: SharedFolder) -> RunFolder:
    """Groups that like the material, without persuasion."""

    def make(folder: Path) -> None:
        run_groups(folder, WITH_CONTROL, groups=8, respondent={"persuasion": 0})

    return RunFolder(shared_folder("focus_group/unpersuaded", make) / "run")


# --- a good and a bad stimulus -------------------------------------------------------------------


def test_a_good_and_a_bad_stimulus_differ_as_planted(two: RunFolder) -> None:
    run = two
    truth = np.mean(compute_true_positions(run, 0)) - np.mean(compute_true_positions(run, 1))
    assert truth > 0.4
    assert compute_gap(run) == pytest.approx(truth, abs=TOLERANCE)
    assert compute_gap(run, "after") > 0.3
    best = {f.key: f for f in STUDY.findings(run)}["concepts"].says
    assert "Mean positions after the discussion: good +" in best
    assert "bad − good −" in best


def test_two_names_for_one_stimulus_do_not_differ(tmp_path: Path) -> None:
    same = {"stimuli": [TWO_STIMULI["stimuli"][0], {**TWO_STIMULI["stimuli"][0], "name": "bad"}]}
    assert abs(compute_gap(run_groups(tmp_path, same, groups=3))) < 0.03


def test_a_stimulus_that_is_not_shown_has_no_effect_and_the_exposure_reports_it(
    tmp_path: Path,
) -> None:
    """Miswired: the material is dropped from the private questions."""
    blind = {
        "private_opinion": TERSE_PROMPTS["private_opinion"].replace('{{ stimulus or "" }}\n', "")
    }
    run = run_groups(tmp_path, TWO_STIMULI, prompts=blind, groups=3)
    assert abs(compute_gap(run)) < 0.03
    assert "material: required by the design" in read_exposure_finding(run)


# Daily, test_paraphrases and test_any_wording have other words.
@pytest.mark.nightly(part="truths")
def test_other_words_of_the_same_content_have_the_same_effect(tmp_path: Path) -> None:
    # Both with the same six groups, because the two runs are compared closely.
    plain = run_groups(tmp_path / "plain", TWO_STIMULI)
    terse = run_groups(tmp_path / "terse", TWO_STIMULI, prompts=TERSE_PROMPTS)
    assert compute_gap(terse) == pytest.approx(compute_gap(plain), abs=0.03)
    assert compute_gap(terse, "after") == pytest.approx(compute_gap(plain, "after"), abs=0.06)


# --- a price -------------------------------------------------------------------------------------


@pytest.mark.nightly(part="truths")
def test_demand_falls_with_the_price_as_planted(tmp_path: Path) -> None:
    run = run_groups(tmp_path, PRICE_LADDER)
    shares = compute_demand(run)
    assert shares == sorted(shares, reverse=True) and shares[0] - shares[-1] > 0.3
    for price, share in zip(PRICE_LADDER["prices"], shares, strict=True):
        true = np.mean([p >= 0.2 for p in compute_true_positions(run, price=price)])
        assert share == pytest.approx(true, abs=0.15)


def test_a_price_that_is_not_shown_has_no_effect(tmp_path: Path) -> None:
    """Miswired: the question about intent does not say the price."""
    blind = {"purchase_intent": TERSE_PROMPTS["purchase_intent"].replace('{{ price or "" }}\n', "")}
    shares = compute_demand(run_groups(tmp_path, PRICE_LADDER, prompts=blind, groups=3))
    assert max(shares) - min(shares) < 0.08


# --- the group -----------------------------------------------------------------------------------

WITH_CONTROL = {**ONE_CONCEPT, "control": "alone", "questions_per_phase": 3}


# Daily, test_focus_group_sycophancy finds the same in constructed groups.
@pytest.mark.nightly(part="truths")
def test_a_group_pulls(tmp_path: Path) -> None:
    pulled = check_pull(run_groups(tmp_path, WITH_CONTROL, groups=14))
    assert pulled.beyond_alone.value > 0.03 and pulled.beyond_alone.p < 0.05
    assert pulled.judge().verdict != "passed"


@pytest.mark.nightly(part="truths")
def test_without_persuasion_a_group_does_not_pull(unpersuaded: RunFolder) -> None:
    null = check_pull(unpersuaded)
    assert abs(null.beyond_alone.value) < 0.03 and null.judge().verdict != "failed"


# Material of which people think differently, and one that most like: the pull of a group has more
# and less to move.
DIVISIVE_MATERIAL = f"{GOOD} {BAD}"


# Daily, test_focus_group_sycophancy finds the same in constructed groups.
@pytest.mark.nightly(part="truths")
def test_a_sycophantic_group_fails_and_one_without_persuasion_does_not(
    unpersuaded: RunFolder, tmp_path: Path
) -> None:
    pleasing = check_pull(
        run_groups(tmp_path, WITH_CONTROL, groups=8, respondent={"sycophancy": 0.9})
    )
    assert pleasing.judge().verdict == "failed", pleasing.judge().says
    null = check_pull(unpersuaded)
    assert null.judge().verdict != "failed", null.judge().says


@pytest.mark.nightly(part="truths")
def test_so_it_is_with_divisive_material(tmp_path: Path) -> None:
    of = {**WITH_CONTROL, "stimulus_material": DIVISIVE_MATERIAL}
    pleasing = check_pull(run_groups(tmp_path / "a", of, groups=8, respondent={"sycophancy": 0.9}))
    assert pleasing.judge().verdict == "failed", pleasing.judge().says
    null = check_pull(run_groups(tmp_path / "b", of, groups=8, respondent={"persuasion": 0}))
    assert null.judge().verdict != "failed", null.judge().says


@pytest.mark.nightly(part="seeds")
@pytest.mark.parametrize("knobs", [{"sycophancy": 0.9}, {"persuasion": 0}], ids=str)
def test_over_many_seeds_eight_groups_tell_pleasing_from_nothing(
    knobs: dict[str, float], tmp_path: Path
) -> None:
    verdicts = [
        check_pull(
            run_groups(
                tmp_path / str(seed), WITH_CONTROL, groups=8, respondent=knobs, random_seed=seed
            )
        )
        .judge()
        .verdict
        for seed in range(20)
    ]
    failed = verdicts.count("failed")
    print(f"{knobs}: {failed} of 20 fail, {verdicts.count('passed')} pass")
    assert failed >= 19 if "sycophancy" in knobs else failed == 0


def check_null_runs(folder: Path, seeds: Iterable[int]) -> list[sycophancy.SycophancyCheck]:
    """Return the checks of runs without persuasion."""
    return [
        check_pull(
            run_groups(
                folder / str(seed),
                {**ONE_CONCEPT, "questions_per_phase": 2},
                respondent={"persuasion": 0},
                random_seed=seed,
            )
        )
        for seed in seeds
    ]


# Daily, test_focus_group_sycophancy has groups without change.
@pytest.mark.nightly(part="truths")
def test_noise_alone_is_no_convergence_and_the_pull_of_a_group_is(tmp_path: Path) -> None:
    null = check_null_runs(tmp_path / "null", range(2))
    assert not any(check.converge_p < 0.05 for check in null)
    assert all(check.judge().verdict == "not known" for check in null)
    pulled = check_pull(
        run_groups(tmp_path / "pulled", {**ONE_CONCEPT, "questions_per_phase": 3}, groups=10)
    )
    assert pulled.converge_p < 0.05 and pulled.towards.value > 0.02


def test_a_discussion_that_is_not_shown_does_not_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: participants who speak or are asked later do not get the utterances."""
    monkeypatch.setattr(Participant, "_latest_messages", lambda _self, _context: EMPTY_TRANSCRIPT)
    run = run_groups(tmp_path, WITH_CONTROL)
    assert check_pull(run).judge().verdict != "failed"
    assert "others' statements: required by the design" in read_exposure_finding(run)


# Daily, test_planted_truth catches miswirings.
@pytest.mark.nightly(part="truths")
def test_two_speakers_whose_names_are_swapped_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Miswired: each utterance is attributed to the next participant. References then name a
    speaker who did not say it."""
    right = run_groups(tmp_path / "a", {**ONE_CONCEPT, "questions_per_phase": 6}, groups=4)
    assert compute_misattributed_share(
        right
    ) < 0.02 and MISATTRIBUTED_WORDS not in read_exposure_finding(right)
    question = TableDiscussion.question

    async def swapped(talk: TableDiscussion, scope: Any, *about: Any) -> None:
        before = len(talk.messages)
        await question(talk, scope, *about)
        following = {p.id: talk.participants[n - 1] for n, p in enumerate(talk.participants)}
        for number, message in enumerate(talk.messages[before:], before):
            if other := following.get(message.speaker_id):
                misnamed = {"speaker_id": other.id, "speaker_name": other.name}
                talk.messages[number] = message.model_copy(update=misnamed)

    monkeypatch.setattr(TableDiscussion, "question", swapped)
    run = run_groups(tmp_path / "b", {**ONE_CONCEPT, "questions_per_phase": 6}, groups=4)
    assert compute_misattributed_share(run) > 0.2
    assert f"intent after: {MISATTRIBUTED_WORDS}: excluded by the design" in read_exposure_finding(
        run
    )


def compute_misattributed_share(run: RunFolder) -> float:
    """Return the share of references to a speaker who had said nothing about the matter."""
    matters = {of["matter"]: concern for concern, of in load_wordings()["concerns"].items()}
    wrong = n = 0
    for (group,), talk in read_talk(run).group_by("group", maintain_order=True):
        own = run.read_table("personas").filter(pl.col("group") == group)
        names = {r["name"].split()[0]: r["persona_id"] for r in own.iter_rows(named=True)}
        rows = talk.to_dicts()
        for i, row in enumerate(rows):
            if row["speaker_role"] != "participant":
                continue
            first = split_sentences(row["text"])[0]
            who = [w for w in names if w in first]
            about = [c for matter, c in matters.items() if matter in first]
            if who and about:
                said = [r["text"] for r in rows[:i] if r["speaker_id"] == names[who[0]]]
                spoken = {
                    v.concern for t in said for s in split_sentences(t) for v in sentence_views(s)
                }
                n += 1
                wrong += about[0] not in spoken
    assert n > 20
    return wrong / n


# --- many seeds ----------------------------------------------------------------------------------


@pytest.mark.nightly(part="seeds")
def test_over_many_seeds_noise_alone_is_called_convergence_in_one_of_twenty(tmp_path: Path) -> None:
    checks = check_null_runs(tmp_path, range(120))
    rejected = sum(check.converge_p < 0.05 for check in checks)
    assert rejected <= binom.ppf(0.995, len(checks), 0.05)
    assert abs(float(np.mean([check.towards.value for check in checks]))) < 0.01


@pytest.mark.nightly(part="seeds")
def test_over_many_seeds_the_interval_covers_the_planted_difference(tmp_path: Path) -> None:
    covered, errors = [], []
    for seed in range(40):
        run = run_groups(tmp_path / str(seed), TWO_STIMULI, random_seed=seed)
        truth = np.array(compute_true_positions(run, 0)) - np.array(compute_true_positions(run, 1))
        table = run.read_table("statements").filter(pl.col("when") == "before")
        good, bad = (table.filter(pl.col("stimulus") == s) for s in ("good", "bad"))
        e = paired_difference(good["position"], bad["position"], good["group"].to_list())
        errors.append(e.value - truth.mean())
        covered.append(e.low <= truth.mean() <= e.high)
    assert abs(np.mean(errors)) < 0.006 * 2  # .6 points of a scale of two
    assert np.mean(covered) >= 0.9


@pytest.mark.nightly(part="truths")
def test_over_twenty_seeds_at_300_other_words_stay_within_three_points(tmp_path: Path) -> None:
    found: dict[str, list[float]] = {"plain": [], "terse": []}
    for seed in range(20):
        for name, prompts in (("plain", None), ("terse", TERSE_PROMPTS)):
            folder = tmp_path / f"{name}{seed}"
            run = run_groups(folder, TWO_STIMULI, prompts=prompts, groups=38, random_seed=seed)
            bought = run.read_table("intents").filter(pl.col("when") == "after")
            share = {
                s: float((bought.filter(pl.col("stimulus") == s)["score"] >= LIKELY).mean() or 0)  # type: ignore[arg-type]
                for s in ("good", "bad")
            }
            found[name].append(share["good"] - share["bad"])
    assert np.mean(found["terse"]) == pytest.approx(np.mean(found["plain"]), abs=0.03)


LISTS = ('join("; ")', 'join(" / ")', 'join(" | ")')


@pytest.mark.parametrize("seated", sample_daily(LISTS, LISTS[1:2], part="mutations"))
def test_a_moderator_knows_the_names_in_any_list(seated: str, tmp_path: Path) -> None:
    text = (Path(str(STUDY.prompts)) / "moderator_system.md").read_text("utf-8")
    listed = 'At the table sit {{ names | join(", ") }}.'
    assert listed in text
    own = {"moderator_system": text.replace(listed, f"seated: {{{{ names | {seated} }}}}")}
    run = run_groups(tmp_path, {**ONE_CONCEPT, "questions_per_phase": 3}, prompts=own, groups=2)
    said = read_talk(run)
    names = "|".join(said.filter(speaker_role="participant")["speaker_name"].unique())
    asked = said.filter(speaker_role="moderator")["text"]
    assert asked.str.contains(rf"\b(?:{names})\b").sum() >= 2
