"""Settings of the respondent: planted effects are listed, and each pathology has its effect."""

from __future__ import annotations

import json

import numpy as np
import pytest

from folkmoot.conversation.answer_types import ParsedAnswer
from folkmoot.conversation.choices import Choice
from folkmoot.errors import InputError
from folkmoot.models.request import (
    FINISH_LENGTH,
    Message,
    ModelRequest,
    ProviderSettings,
    RespondentHints,
)
from folkmoot.respondent import (
    MODEL_SERVED,
    PATHOLOGIES,
    Respondent,
    RespondentSettings,
    planted_effects,
)
from tests.respondent.town import CARE, OPTIONS, Town, make_system_prompt


def test_planted_states_the_effect_sizes_in_force() -> None:
    told = planted_effects(
        {"kappa_read": 1, "factor_addressed": 4, "persuasion": 0.5, "refusals": 0.1}
    )
    factor = RespondentSettings().factor_interviewed
    assert told["kappa"] == {
        "read": 0.5,
        "read_after_interview": 0.5 * factor,
        "argued_and_answered": 2.0,
    }
    assert told["pathologies"] == {"refusals": 0.1}
    assert "SYNTHETIC" in told["notice"]
    assert planted_effects()["pathologies"] == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kapa_read": 1}, "did you mean kappa_read?"),
        ({"kappa_adversarial": 5}, "no such setting"),
        ({"refusals": 1.5}, "from 0 to 1"),
        ({"persuasion": -1}, "negative"),
        ({"noise": "much"}, "not a number"),
        ({"position": 0}, "1 is the first"),
        ({"malformed": True}, "not a number"),
    ],
)
def test_a_wrong_setting_is_named_with_its_mend(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=r"respondent\.") as caught:
        RespondentSettings.from_mapping(options)
    assert says in str(caught.value)


def test_all_wrong_settings_are_listed_at_once() -> None:
    with pytest.raises(InputError) as caught:
        RespondentSettings.from_mapping({"refusals": 2, "nonsense": 1})
    assert len(caught.value.problems) == 2


def test_all_pathologies_are_off_by_default_and_none_is_missing_from_the_list() -> None:
    others = {"kappa_read", "factor_interviewed", "factor_addressed", "persuasion", "noise"}
    assert set(PATHOLOGIES) == set(RespondentSettings.model_fields) - others - {"position"}
    assert not any(getattr(RespondentSettings(), name) for name in PATHOLOGIES)


def test_every_reply_is_marked_and_counts_tokens() -> None:
    request = ModelRequest("x", (Message("user", "Well, what do you say to that?"),))
    reply = Respondent(ProviderSettings()).reply(request, "a")
    assert reply.model_served == MODEL_SERVED and MODEL_SERVED.endswith(" SYNTHETIC")
    assert reply.usage.input_tokens and reply.usage.output_tokens


def measure_share(knobs: dict[str, float], what: str, count: int = 200) -> float:
    """Return the share of first votes with a property."""
    town = Town(8, knobs)
    found = 0
    for number in range(count):
        text = town.vote(number)
        found += {
            "first": text == OPTIONS[0],
            "listed": text in OPTIONS,
            "read": isinstance(Choice(OPTIONS).parse_reply(text), ParsedAnswer),
            "long": len(text) > 200,
        }[what]
    return found / count


def test_position_bias_raises_the_share_of_the_favoured_place() -> None:
    assert measure_share({"position_bias": 1.5}, "first") > measure_share({}, "first") + 0.2
    assert measure_share({"position_bias": 1.5, "position": 3}, "first") < measure_share(
        {}, "first"
    )
    turned = OPTIONS[::-1]
    fair = [Town(2).vote(n) == Town(2).vote(n, options=turned) for n in range(100)]
    assert all(fair)


@pytest.mark.parametrize("knob", ["refusals", "off_list"])
def test_refusals_and_strangers_are_no_listed_option(knob: str) -> None:
    assert measure_share({}, "listed") == 1
    assert 0.4 < measure_share({knob: 0.5}, "listed") < 0.6
    assert measure_share({knob: 1}, "read") == 0


def test_over_length_buries_the_answer_and_malformed_breaks_it() -> None:
    assert measure_share({"over_length": 1}, "long") == 1
    assert measure_share({"malformed": 1}, "listed") == 0
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    whole = Town(1).request(
        RespondentHints(kind="json"), "You are Ann.", "How many?", schema=schema
    )
    for n in range(20):
        with pytest.raises(ValueError, match=r"."):
            json.loads(Town(1, {"malformed": 1}).model.reply(whole, f"{n}").text)


def test_a_cut_reply_ends_in_the_middle_and_says_so() -> None:
    request = Town().request(RespondentHints("participant"), "You are Ann.", "Why?")
    whole = Town().model.reply(request, "a")
    cut = Town(0, {"cut": 1}).model.reply(request, "a")
    assert (
        cut.finish == FINISH_LENGTH
        and whole.text.startswith(cut.text)
        and len(cut.text) < len(whole.text)
    )


def measure_changed_share(knobs: dict[str, float], *turns: str, to: str = "") -> float:
    town = Town(3, knobs)
    count = 0
    for n in range(200):
        first = town.vote(n)
        rival = next(o for o in OPTIONS if o != first)
        said = [turn.format(O=first, X=rival) for turn in turns]
        again = town.vote(n, *said, held=first, at="again")
        count += again == rival if to else again != first
    return count / 200


def test_instability_makes_a_re_ask_a_new_draw() -> None:
    assert 0.55 < measure_changed_share({"instability": 1}) < 0.78


def test_sycophancy_follows_whoever_argues() -> None:
    said = ("{X} is " + CARE + ".", "I am for {O}.")
    assert (
        measure_changed_share({"sycophancy": 1}, *said, to="rival")
        > measure_changed_share({}, *said, to="rival") + 0.2
    )


LIKERT = ("Strongly disagree", "Disagree", "Neither", "Agree", "Strongly agree")


def collect_ratings(knobs: dict[str, float]) -> list[int]:
    town, about = Town(5, knobs), "The town should have a night bus to the harbour."
    found = []
    for n in range(200):
        hints = RespondentHints("participant", "choice", LIKERT, about=about, speaker=f"p{n}")
        request = town.request(hints, make_system_prompt(n), "How far do you agree?")
        found.append(LIKERT.index(town.model.reply(request, f"r/{n}").text))
    return found


def test_acquiescence_and_shrinking_variance_act_on_rating_scales() -> None:
    plain, yes, flat = (
        collect_ratings(k) for k in ({}, {"acquiescence": 0.6}, {"shrinking_variance": 1})
    )
    assert set(plain) == {0, 1, 2, 3, 4}
    assert np.mean(yes) > np.mean(plain) + 0.5
    assert len(set(flat)) < 4
