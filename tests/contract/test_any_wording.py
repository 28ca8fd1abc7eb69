"""Effects come from the quoted texts of a prompt and from nothing else in it.

Below the studies every request is rendered anew before the embedded respondent reads it: its quoted
texts in random order, with no instruction or with Latin in place of instructions. The planted
effects keep their sizes. Without the texts that carry arguments there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from folkmoot.engine.study.study import registered_studies
from folkmoot.models.request import FINISH_UNREAD, Completion, Message, ModelRequest
from folkmoot.provenance import Span
from folkmoot.randomness import digest, uniform_values
from folkmoot.respondent import Respondent
from folkmoot.storage.run_folder import RunFolder
from tests.planted import test_planted_focus_group as focus_group
from tests.planted import test_planted_truth as cross_pollination
from tests.studies.negotiation import test_planted_truth as negotiation
from tests.studies.town_hall import test_planted_hall as town_hall
from tests.studies.workbook import test_workbook_planted as workbook

SEED = 1
Texts = list[tuple[str, list[Span]]]
LATIN = (
    "Dic nunc, quaeso, quid de hac re sentias.",
    "1. Nihil aliud: quod sequitur, lege.",
    "“Ave”, inquit Marcus — (A) cum fratribus, (B) sine illis?",
    "Haec verba cuiusdam sunt, non tua;",
    '{"responsum": "…", "numerus": 7}',
    "Quantum a III ad X? Scribe XX verba.",
)


def quoted_texts(request: ModelRequest, message: int) -> Texts:
    """Return the outermost quoted texts of a message, each with the spans inside it."""
    found: Texts = []
    end = -1
    for span in (span for span in request.spans if span.message == message):
        text = request.messages[message].content[span.start : span.end]
        if span.end > end:
            found.append((text, []))
            start, end = span.start, span.end
        found[-1][1].append(span.shift_span(-start))
    return found


def reword_request(
    request: ModelRequest, address: str, dropped: Iterable[str] = ()
) -> ModelRequest:
    """Return a request that holds nothing but the quoted texts, in random order, in one message
    beside the system message. Half of the requests have Latin between them. `dropped` are kinds of
    texts that are left out."""
    system = [0] if request.messages[0].role == "system" else []
    others = [n for n in range(len(request.messages)) if n not in system]
    latin = LATIN if uniform_values(SEED, address) < 0.5 else ("",)
    messages: list[Message] = []
    spans: list[Span] = []
    for role, numbers in (("system", system), ("user", others)):
        texts = [
            (text, inner)
            for number in numbers
            for text, inner in quoted_texts(request, number)
            if inner[0].source.kind not in dropped
        ]
        if not numbers:
            continue
        content = ""
        for n in sorted(range(len(texts)), key=lambda n: digest(address, role, n)):
            text, inner = texts[n]
            content += latin[int(uniform_values(SEED, address, role, n) * len(latin))] + "\n"
            spans += [span.shift_span(len(content), len(messages)) for span in inner]
            content += text + "\n"
        messages.append(Message(role, content))
    return replace(request, messages=tuple(messages), spans=tuple(spans))


# --- the five studies in small, each with effects that texts carry -----------------------------


class StudyEffects(NamedTuple):
    """The runs of a study and the sizes of its planted effects."""

    runs: Sequence[RunFolder]
    effects: Mapping[str, float]

    def count_unreadable(self) -> int:
        """Return how many answers are missing, were asked for again, or have no relation to what
        was asked."""
        answers = pl.concat(
            [run.read_table("answers") for run in self.runs], how="diagonal_relaxed"
        )
        unread = answers["missing"].is_not_null() | (answers["finish"] == FINISH_UNREAD)
        return int(unread.sum() + answers["reasks"].sum())


def play_cross_pollination(folder: Path) -> StudyEffects:
    """Position changes after a dialogue, and those of the same people if nothing persuades them."""
    few: dict[str, Any] = {"max_socratic_exchanges": 2, "conditions": ["acp"]}
    moved = cross_pollination.run_pilot(folder / "moved", 60, **few)
    still = cross_pollination.run_pilot(folder / "still", 60, respondent={"persuasion": 0}, **few)
    acp, noise = (
        run.read_json("summary.json")["by_condition"]["acp"]["position_changed_rate"]
        for run in (moved, still)
    )
    return StudyEffects((moved, still), {"dialogue": acp - noise})


def play_town_hall(folder: Path) -> StudyEffects:
    """What a moderator who names the vulnerable changes in the gap of inclusion."""
    run = town_hall.run_planted_hall(folder, ["quiet", "chaired"], sets=3)
    return StudyEffects(
        [run.folder], {"moderator": town_hall.find_contrast(run, "quiet", "chaired")["estimate"]}
    )


def play_negotiation(folder: Path) -> StudyEffects:
    """Minority coverage of a mediator who follows a minority, against one who ignores it, and what
    rounds of feedback add."""
    often = negotiation.run_groups(folder / "often", 1.0, ["C3", "C4", "C5"])
    never = negotiation.run_groups(folder / "never", 0.0, ["C3"])
    share, least = (negotiation.read_estimate(run, "C3")["estimate"] for run in (often, never))
    effects = {"mediator": share - least, "feedback": negotiation.read_gain(often)}
    return StudyEffects([often.folder, never.folder], effects)


def play_focus_group(folder: Path) -> StudyEffects:
    """Positions on a good and on a bad stimulus."""
    run = focus_group.run_groups(folder, focus_group.TWO_STIMULI, groups=4)
    return StudyEffects([run], {"stimulus": focus_group.compute_gap(run)})


def play_workbook(folder: Path) -> StudyEffects:
    """The share of tokens that a treatment adds."""
    run = workbook.run_game(workbook.make_game(120), folder)
    return StudyEffects([run], {"treatment": workbook.estimate_effect(run).value})


PLAYS: Mapping[str, Callable[[Path], StudyEffects]] = {
    "cross_pollination": play_cross_pollination,
    "town_hall": play_town_hall,
    "negotiation": play_negotiation,
    "focus_group": play_focus_group,
    "workbook": play_workbook,
}

# More than half of the sizes under the shipped prompts: a sign cannot turn by chance.
MIN_EFFECTS = {
    "dialogue": 0.1,
    "moderator": 0.3,
    "mediator": 0.9,
    "feedback": 0.15,
    "stimulus": 0.7,
    "treatment": 0.09,
}
# All other effects are the same. In a dialogue the moderator uses arguments in the order of the
# summaries, so that near ties may be decided differently: for 3 of 60 people.
MAX_DEVIATIONS = {"dialogue": 0.05}
# Two concepts are asked about at two addresses, and two treatments with different people.
MAX_NOISE = {"stimulus": 0.01, "treatment": 0.01}
MAX_ROUNDING = 1e-9
ARGUING_KINDS = ("utterance", "answer", "material", "summary", "proposal")


def test_every_study_is_played() -> None:
    assert sorted(PLAYS) == sorted(registered_studies())


# Daily, test_cross_pollination_sources compares all answers to prompts of quoted texts alone, and
# test_planted_focus_group has no effect of a text that is not shown.
@pytest.mark.nightly(part="wordings")
@pytest.mark.parametrize("study", PLAYS)
def test_quoted_texts_alone_give_the_effects_and_without_them_there_are_none(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = PLAYS[study](tmp_path / "shipped")
    reply = Respondent.reply

    def play_reworded(name: str, dropped: Sequence[str] = ()) -> StudyEffects:
        def reply_to_texts(model: Respondent, request: ModelRequest, address: str) -> Completion:
            return reply(model, reword_request(request, address, dropped), address)

        monkeypatch.setattr(Respondent, "reply", reply_to_texts)
        return PLAYS[study](tmp_path / name)

    bare = play_reworded("bare")
    silent = play_reworded("silent", ARGUING_KINDS)
    for effect, size in shipped.effects.items():
        assert size > MIN_EFFECTS[effect]
        assert bare.effects[effect] == pytest.approx(
            size, abs=MAX_DEVIATIONS.get(effect, MAX_ROUNDING)
        )
        assert silent.effects[effect] == pytest.approx(0, abs=MAX_NOISE.get(effect, MAX_ROUNDING))
    assert bare.count_unreadable() <= shipped.count_unreadable()
