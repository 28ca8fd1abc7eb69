"""A mediator that follows a minority with a known probability, and planted faults that must show.

With probability `follows`, the embedded mediator gives each member outside the most common first
choice that member's choice on another day (C3). In a round of feedback it does so for the member
who is asked (C5). So the minority coverage of C3 equals `follows`. C5 − C4 is 0 if `follows` is 0,
and grows with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.answer_types import Json
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, build_messages
from folkmoot.kit.exposure import MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.models.request import ModelRequest, ProviderSettings, RespondentHints, StudyPart
from folkmoot.provenance import SourcedText, cell_id, join_texts, quote_value
from folkmoot.respondent import Respondent, SimulatedRespondent
from folkmoot.respondent.mind.reading import read_prompt
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.ballots import confirm_decision
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision
from folkmoot.studies.negotiation.mediation import propose_decision
from folkmoot.studies.negotiation.quotes import list_preferences
from folkmoot.studies.negotiation.respondent import (
    MediationPrompt,
    answer_confirmation,
    respondent_part,
)
from folkmoot.studies.negotiation.rules.replies import PlainSynthesis

PROMPTS = Path(str(STUDY.prompts))

TOLERANCE = 0.10
PROTOCOL = import_module("folkmoot.studies.negotiation.protocol")
MEDIATION = import_module("folkmoot.studies.negotiation.mediation")
SHARE = "minority_coverage_share"


def run_groups(
    out: Path, follows: float, conditions: Sequence[str], groups: int = 1, **settings: Any
) -> Any:
    """Run generated groups with a mediator that follows a minority with probability `follows`."""
    return folkmoot.run(
        replace(STUDY, respondent_part=respondent_part(follows)),
        {
            "conditions": list(conditions),
            "groups_per_type": groups,
            "random_seed": 1,
            "confirm": False,
            "coding": "off",
            **settings,
        },
        out=out,
        model="synthetic",
    )


# Two group types are enough where every group shows the planted value exactly.
FEW: dict[str, Any] = {"group_types": ["family", "spouses"]}


@pytest.fixture(scope="module")
def certain_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Any]:
    """Runs in which the mediator never follows a minority (0), and in which it always does (1)."""
    folder = tmp_path_factory.mktemp("certain")
    return {at: run_groups(folder / str(at), at, ["C4", "C5"], **FEW) for at in (0.0, 1.0)}


def read_estimate(run: Any, condition: str, measure: str = SHARE) -> dict[str, Any]:
    found: dict[str, Any] = run.folder.read_json("comparison.json")["conditions"][condition][
        measure
    ]
    return found


def read_gain(run: Any, measure: str = SHARE) -> float:
    """Return the difference C5 − C4, paired within groups."""
    (row,) = (
        d
        for d in run.folder.read_json("comparison.json")["paired_differences"]
        if (d["of"], d["minus"], d["measure"]) == ("C5", "C4", measure)
    )
    return float(row["estimate"])


@pytest.mark.nightly(part="truths")
def test_c3_finds_how_often_the_mediator_follows_a_minority(tmp_path: Path) -> None:
    certain = {at: run_groups(tmp_path / str(at), at, ["C3"], **FEW) for at in (0.0, 1.0)}
    runs = {0.35: run_groups(tmp_path / "run", 0.35, ["C3"], 2), **certain}
    for follows, run in runs.items():
        found = read_estimate(run, "C3")["estimate"]
        assert abs(found - follows) <= (0.005 if follows in (0, 1) else TOLERANCE), follows
        assert run.table("answers")["missing"].is_null().all()
        assert run.table("answers")["reasks"].sum() == 0
        assert not run.table("decisions")["parse_error"].any()


@pytest.mark.nightly(part="truths")
def test_feedback_adds_nothing_without_it_and_more_with_more(
    certain_runs: dict[float, Any], tmp_path: Path
) -> None:
    never, always = certain_runs[0], certain_runs[1]
    assert (
        read_gain(never)
        == read_gain(never, "satisfaction")
        == read_gain(never, "covered_share")
        == 0
    )
    some = read_gain(run_groups(tmp_path / "run", 0.3, ["C4", "C5"], **FEW))
    assert read_gain(always) - TOLERANCE > some > TOLERANCE / 2


@pytest.mark.nightly(part="wordings")
def test_no_word_of_the_instructions_is_what_the_respondent_reads(
    certain_runs: dict[float, Any], tmp_path: Path
) -> None:
    """The planted value is found even if only the variables of the prompts are kept."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    for path in (Path(STUDY.prompts or "")).glob("*.md"):
        pieces = re.split(r"({{.*?}}|{%.*?%})", path.read_text("utf-8"), flags=re.DOTALL)
        kept = (p if p[:1] == "{" else re.sub(r"[A-Za-z]+", "lorem", p) for p in pieces)
        (folder / path.name).write_text("".join(kept), "utf-8")
    always = run_groups(tmp_path / "always", 1.0, ["C3", "C4", "C5"], prompts=str(folder), **FEW)
    assert read_estimate(always, "C3")["estimate"] == pytest.approx(1, abs=0.02)
    assert read_gain(always) == pytest.approx(read_gain(certain_runs[1]), abs=0.03)
    never = run_groups(tmp_path / "never", 0.0, ["C3", "C4", "C5"], prompts=str(folder), **FEW)
    assert read_estimate(never, "C3")["estimate"] == read_gain(never) == 0


def measure_bias(tmp_path: Path) -> float:
    """Return how far the minority coverage of C3 is below the planted value of 1."""
    run = run_groups(tmp_path / "miswired", 1.0, ["C3"], **FEW)
    return 1 - float(read_estimate(run, "C3")["estimate"])


def list_misattributed_decisions(run: Any) -> set[str]:
    """Return the decisions with prompts that attribute words to the wrong speaker."""
    found = run.table("exposure").filter(pl.col("texts") > 0, kind=MISATTRIBUTED_WORDS)
    assert any(MISATTRIBUTED_WORDS in said for said in describe_deviations(run.folder)) is bool(
        len(found)
    )
    return set(found["decision"])


def test_two_speakers_swapped_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: each member's recorded wish is shown as the wish of the next member."""

    def swapped(case: Negotiation, topic: Any) -> list[dict[str, str]]:
        stated = case.stated[topic.id]
        following = zip(stated, [*stated][1:] + [*stated][:1], strict=True)
        turned = {id: stated[other]._replace(speaker_id=id) for id, other in following}
        return list_preferences(replace(case, stated={topic.id: turned}), topic)

    monkeypatch.setattr(MEDIATION, "list_preferences", swapped)
    run = run_groups(tmp_path / "miswired", 1.0, ["C3"], **FEW)
    assert 1 - float(read_estimate(run, "C3")["estimate"]) > 3 * TOLERANCE
    assert list_misattributed_decisions(run) == {"proposal"}


def test_utterances_under_other_names_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swapped(scope: Any, case: Negotiation, decision: SlotDecision) -> SlotDecision:
        said = [line.utterance for line in decision.lines]
        lines = tuple(
            replace(line, utterance=line.utterance._replace(speaker_id=other.speaker_id))
            for line, other in zip(decision.lines, said[1:] + said[:1], strict=True)
        )
        return replace(
            await confirm_decision(scope, case, replace(decision, lines=lines)),
            lines=decision.lines,
        )

    some: dict[str, Any] = {"confirm": True, "group_types": ["strangers"]}
    right = run_groups(tmp_path / "right", 0.5, ["C3", "C5"], **some)
    assert list_misattributed_decisions(right) == set() and describe_deviations(right.folder) == []
    assert read_estimate(right, "C3", "confirmed_share")["estimate"] == 1
    monkeypatch.setattr(PROTOCOL, "confirm_decision", swapped)
    assert list_misattributed_decisions(run_groups(tmp_path / "wrong", 0.5, ["C3"], **some)) == {
        "confirmation"
    }


def test_a_statement_that_does_not_reach_the_mediator_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MEDIATION, "list_preferences", lambda *of: list_preferences(*of)[1:])
    assert measure_bias(tmp_path) > TOLERANCE


def test_another_decision_s_proposal_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: each decision gets the proposal for the decision before."""
    last: dict[str, Any] = {}

    async def late(scope: Any, case: Negotiation, topic: Any, tally: Any, *more: Any) -> Any:
        proposal = await propose_decision(scope, case, topic, tally, *more)
        before = last.get(case.group.id, proposal)
        last[case.group.id] = proposal
        return before

    monkeypatch.setattr(PROTOCOL, "propose_decision", late)
    assert measure_bias(tmp_path) > 3 * TOLERANCE


def test_an_ignored_last_round_of_feedback_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = PROTOCOL.hold_feedback

    async def unheard(scope: Any, case: Negotiation, decision: SlotDecision) -> SlotDecision:
        after = await hold(scope, case, decision)
        return replace(decision, feedback=after.feedback, lines=after.lines)

    monkeypatch.setattr(PROTOCOL, "hold_feedback", unheard)
    assert read_gain(run_groups(tmp_path / "run", 1.0, ["C4", "C5"], **FEW)) == 0


# The line of the shipped prompt that shows an utterance of the discussion.
UTTERANCE_LINE = next(
    line.removesuffix('{{ cache if goes_on else "" }}')
    for line in (PROMPTS / "confirm.md").read_text("utf-8").splitlines()
    if line.startswith("{{ line.name }}")
)
SHARE_LINE = (
    "- {{ share.option }} for {{ share.who }}{% if share.when %} ({{ share.when }}){% endif %}\n\n"
)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        pytest.param(UTTERANCE_LINE, SHARE_LINE, marks=pytest.mark.nightly(part="truths")),
        (
            "| {{ line.name }} | {{ line.text }} |",
            "| {{ share.option }} | {{ share.who }} | {{ share.when }} |\n",
        ),
        pytest.param(
            "[{{ loop.index }}] {{ line.name }} » {{ line.text }}",
            '<given to="{{ share.who }}">{{ share.option }}</given>\n',
            marks=pytest.mark.nightly(part="truths"),
        ),
    ],
)
def test_a_record_of_another_decision_is_not_confirmed(
    said: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "prompts"
    copytree(PROMPTS, folder)
    text = (folder / "confirm.md").read_text("utf-8")
    assert UTTERANCE_LINE in text and SHARE_LINE in text
    text = text.replace(UTTERANCE_LINE, said).replace(SHARE_LINE, given)
    (folder / "confirm.md").write_text(text, "utf-8")

    def confirmed(name: str) -> float:
        some = {"confirm": True, "prompts": str(folder), "group_types": ["strangers"]}
        run = run_groups(tmp_path / name, 0.5, ["C3", "C4"], **some)
        assert set(run.table("answers")["finish"]) == {"stop"}
        return min(read_estimate(run, c, "confirmed_share")["estimate"] for c in ("C3", "C4"))

    assert confirmed("right") == 1
    last: dict[str, Any] = {}

    async def mixed_up(scope: Any, case: Negotiation, decision: SlotDecision) -> SlotDecision:
        # Conditions run concurrently, so the key contains the condition.
        place = case.group.id + case.condition.id
        before = last.get(place, decision)
        last[place] = decision
        return await confirm_decision(scope, case, replace(decision, portions=before.portions))

    monkeypatch.setattr(PROTOCOL, "confirm_decision", mixed_up)
    assert confirmed("mixed up") < 0.3


def test_a_mediator_says_no_label_of_a_prompt_and_gives_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    copytree(PROMPTS, folder)
    for name, was, now in (
        ("synthesis_guided", "{{ outcome }}", "As it comes out (take it; keep it): {{ outcome }}"),
        ("feedback", "Current decision:", "So far it stands at this (see below):"),
        (
            "feedback",
            SHARE_LINE,
            "| {{ share.option }} | {{ share.who }} | {{ share.when or '–' }} |\n",
        ),
    ):
        path = folder / f"{name}.md"
        text = path.read_text("utf-8")
        assert was in text
        path.write_text(text.replace(was, now), "utf-8")
    run = run_groups(tmp_path / "run", 1.0, ["C5"], prompts=str(folder), group_types=["spouses"])
    said = " ".join(run.table("decisions")["mediator_words"].drop_nulls())
    assert re.search(r"\. Day 1 [^\n]+Day 2", said) and "comes out" not in said
    revised = run.table("feedback")["revised_decision"].drop_nulls().to_list()
    assert any("another day" in r for r in revised)
    assert not any("–" in r or "stands" in r for r in revised)


@pytest.mark.nightly(part="seeds")
def test_intervals_cover_the_truth(tmp_path: Path) -> None:
    """Over 100 seeds: bias at most .02, coverage .90 to 1 (t over 15 groups; sd .03)."""
    found = [
        read_estimate(run_groups(tmp_path / str(seed), 0.5, ["C3"], 3, random_seed=seed), "C3")
        for seed in range(100)
    ]
    mean = sum(e["estimate"] for e in found) / len(found)
    covered = sum(e["low"] <= 0.5 <= e["high"] for e in found) / len(found)
    assert abs(mean - 0.5) <= 0.02
    assert covered >= 0.90


def quote_name(number: int) -> str:
    return quote_value(
        NAMES[number], "value", cell_id("members.member_name", "g", f"traveler_{number}")
    )


NAMES = {1: "Ann B", 2: "Cleo"}
ME, SYSTEM = Speaker("traveler_1", "Ann B"), Speaker("system", "System", "moderator")
WISHES = [
    quote_value(words, "utterance", f"preferences/g/traveler_{n}/event/ask0", f"traveler_{n}")
    for n, words in ((1, "I want a concert."), (2, "I would like a comedy show."))
]


def quote_share(number: int, option: str, who: str, when: str) -> list[str]:
    """Return the texts of one share of the recorded decision."""
    row = ("g", "C5", "event", "record", number)
    return [
        quote_value(option, "value", cell_id("shown_shares.option", *row)),
        quote_value(who, "value", cell_id("shown_shares.members", *row)),
        quote_value(when, "value", cell_id("shown_shares.time", *row)),
    ]


GIVEN_UP = [
    quote_value(o, "option", cell_id("options.option", "g", "C5", "event", o)) for o in ("film",)
]
SHOWN = [
    *(quote_name(1), quote_name(2), *WISHES, *GIVEN_UP),
    *quote_share(0, "comedy", "everyone", "Day 1"),
    *quote_share(1, "concert", "Ann B", "Day 2"),
]
IN_ORDERS = pytest.mark.parametrize(
    "shown",
    [
        SHOWN,
        SHOWN[::-1],
        [*SHOWN[1::2], *SHOWN[::2]],
        [SourcedText(text.upper(), text.spans) for text in SHOWN if isinstance(text, SourcedText)],
    ],
    ids=["as usual", "backwards", "mixed", "in capitals"],
)


def make_respondent(
    speaker: Speaker, kind: str, shown: Sequence[str], **hints: Any
) -> SimulatedRespondent:
    """Return the respondent for a prompt that contains these texts and no instruction."""
    study = StudyPart(respondent_part(), NegotiationConfig.model_validate({}))
    model = Respondent(ProviderSettings(seed=1, study=study))
    schema = hints.pop("schema", None)
    messages, _, spans = build_messages(speaker, EMPTY_TRANSCRIPT, join_texts(" ", shown))
    asking = RespondentHints(speaker.role, kind=kind, speaker=speaker.id, **hints)
    request = ModelRequest("synthetic", messages, schema=schema, hints=asking, spans=spans)
    return model.build_mind(read_prompt(request), "x")


@IN_ORDERS
def test_wishes_and_shares_are_known_by_their_sources_in_any_order(shown: list[str]) -> None:
    """Dropped options, and names beside a wish or a share, are not read as shares."""
    speakers = {"dialogue.speaker": ["System", *NAMES.values()]}
    options = {"decision.option": ["comedy", "concert", "film", "none_of_these"]}
    schema = Json(PlainSynthesis, options=speakers | options).schema
    at = MediationPrompt(make_respondent(SYSTEM, "json", shown, schema=schema))
    assert {who: text.casefold() for who, text in at.texts.items()} == {
        "Ann B": "i want a concert.", "Cleo": "i would like a comedy show.",
    }  # fmt: skip
    assert [(s["option"], s["members"], str(s["when"]).title()) for s in at.in_force] == [
        ("comedy", [], "Day 1"), ("concert", ["Ann B"], "Day 2"),
    ]  # fmt: skip
    assert at.tally.first_choices() == {"Ann B": "concert", "Cleo": "comedy"}


@IN_ORDERS
@pytest.mark.parametrize(("given", "answer"), [("concert", "yes"), ("film", "no")])
def test_what_is_given_up_is_not_on_record(shown: list[str], given: str, answer: str) -> None:
    said = f"Comedy, and a {given} as well."
    spoken = quote_value(said, "utterance", "negotiation/g-C5/event/ask0#opening", "system")
    mind = make_respondent(ME, "choice", [spoken, *shown], offered=("yes", "no"))
    assert answer_confirmation(mind) == answer
