"""Choices: noise, exposure, order, and the pathologies, each off by default and seen to act."""

from __future__ import annotations

from collections import Counter

import pytest

from folkmoot.conversation.answers import Parsed
from folkmoot.conversation.choices import Choice
from folkmoot.errors import InputError
from folkmoot.models.request import Message, ProviderSettings, Request
from folkmoot.models.synthetic import (
    MODEL_SERVED,
    PATHOLOGIES,
    Knobs,
    Respondent,
    planted,
    true_effects,
)
from folkmoot.models.synthetic.latents import meet, persona_text
from tests.models.synthetic.synthetic_world import FINAL, OPTIONS, World, base, persona, vote_prompt

MANY = 1000
CARE = "They want dignity for lonely neighbours, kindness and belonging, and compassion. " * 4
PAGE = "\n\n".join(f"## {o}\n\nPosition 1: {CARE}" for o in OPTIONS)


def changed(world: World, first: dict[int, str], prompt: str) -> float:
    count = 0
    for n, held in first.items():
        system = f'{base(persona(n))}\n\nYou previously chose "{held}".'
        count += world.ask(f"again/{n}", system, prompt) != held
    return count / len(first)


def first_votes(world: World, n: int = MANY) -> dict[int, str]:
    return {k: world.vote(k) for k in range(n)}


def test_a_plain_re_ask_flips_about_seven_and_a_half_percent() -> None:
    world = World(4)
    assert 0.06 < changed(world, first_votes(world), FINAL) < 0.095
    expected = true_effects([base(persona(n)) for n in range(MANY)], OPTIONS, seed=4)
    assert 0.068 < expected["rates"]["re_ask"] < 0.085


def test_without_noise_nobody_flips() -> None:
    world = World(4, {"noise": 0})
    assert changed(world, first_votes(world, 300), FINAL) == 0


def test_a_reply_depends_on_seed_address_and_text_only() -> None:
    request = Request("synthetic/x", (Message("system", base(persona(1))), Message("user", "Why?")))
    one, two = (Respondent(ProviderSettings(seed=3)) for _ in range(2))
    two.reply(request, "elsewhere")
    assert one.reply(request, "a") == two.reply(request, "a")
    assert one.reply(request, "a") != one.reply(request, "b")
    assert one.reply(request, "a") != Respondent(ProviderSettings(seed=4)).reply(request, "a")


def test_every_reply_is_marked_and_counts_tokens() -> None:
    world = World(1)
    reply = world.model.reply(Request("synthetic/x", (Message("user", vote_prompt()),)), "a")
    assert reply.model_served == MODEL_SERVED
    assert MODEL_SERVED.endswith(" SYNTHETIC")
    assert reply.usage.input_tokens > 20
    assert reply.usage.output_tokens > 0


def test_the_order_of_options_does_not_matter_without_position_bias() -> None:
    world = World(2)
    turned = OPTIONS[::-1]
    same = 0
    for n in range(200):
        a = world.ask(f"v/{n}", base(persona(n)), vote_prompt())
        b = world.ask(f"v/{n}", base(persona(n), turned), vote_prompt(turned))
        same += a == b
    assert same == 200


@pytest.mark.parametrize(("knobs", "low"), [({}, 0.0), ({"persuasion": 0}, -1.0)])
def test_reading_summaries_moves_people_unless_persuasion_is_zero(
    knobs: dict[str, float], low: float
) -> None:
    world = World(5, knobs)
    first = first_votes(world)
    floor, read = changed(world, first, FINAL), changed(world, first, f"{PAGE}\n\n{FINAL}")
    if knobs:
        assert read == floor
    else:
        assert read > floor + 0.02


def test_reasons_of_one_camp_move_that_camp_most() -> None:
    world = World(6)
    first = first_votes(world)
    moved: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for n, held in first.items():
        system = f'{base(persona(n))}\n\nYou previously chose "{held}".'
        camp = meet(persona_text(system), 6).camp
        size[camp] += 1
        moved[camp] += world.ask(f"again/{n}", system, f"{PAGE}\n\n{FINAL}") != held
    rates = [moved[c] / size[c] for c in range(3)]
    assert rates[0] > rates[1] and rates[0] > rates[2] + 0.02, rates


def test_own_words_are_no_exposure() -> None:
    world = World(7)
    first = first_votes(world, 400)
    flips = 0
    for n, held in first.items():
        system = f'{base(persona(n))}\n\nYou previously chose "{held}".'
        others = [o for o in OPTIONS if o != held]
        own = f"I chose {held}. Still, {others[0]} would mean {CARE}"
        quoted = f"You just had this talk:\n\nModerator: Why?\nYou: {own}\n\n{FINAL}"
        note = f"{system}\n\nA moderator challenged you with opposing views."
        plain = world.ask(f"again/{n}", system, FINAL)
        flips += world.ask(f"again/{n}", system, "Why?", own, FINAL) != plain
        flips += world.ask(f"again/{n}", note, quoted) != plain
    assert flips == 0


def test_the_mirror_orders_the_kinds_and_falls_to_the_floor_without_persuasion() -> None:
    systems = [base(persona(n)) for n in range(300)]
    rates = true_effects(systems, OPTIONS, seed=1)["rates"]
    assert rates["re_ask"] < rates["summaries"] < rates["clarified"] < rates["adversarial"]
    none = true_effects(systems, OPTIONS, seed=1, settings={"persuasion": 0})
    assert all(abs(e) < 1e-12 for e in none["effects"].values())


# --- knobs ------------------------------------------------------------------------------------


def test_planted_states_the_effect_sizes_in_force() -> None:
    told = planted({"kappa_adversarial": 4, "persuasion": 0.5, "refusals": 0.1})
    assert told["kappa"] == {
        "re_ask": 0.0,
        "summaries": 0.7,
        "clarified": 1.3,
        "adversarial": 2.0,
    }
    assert told["pathologies"] == {"refusals": 0.1}
    assert "SYNTHETIC" in told["notice"]
    assert planted()["pathologies"] == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kapa_summaries": 1}, "did you mean kappa_summaries?"),
        ({"refusals": 1.5}, "from 0 to 1"),
        ({"persuasion": -1}, "negative"),
        ({"noise": "much"}, "not a number"),
        ({"position": 0}, "1 is the first"),
        ({"malformed": True}, "not a number"),
    ],
)
def test_a_wrong_setting_is_named_with_its_mend(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=r"respondent\.") as caught:
        Knobs.of(options)
    assert says in str(caught.value)


def test_all_wrong_settings_are_listed_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Knobs.of({"refusals": 2, "nonsense": 1})
    assert len(caught.value.problems) == 2


def test_all_pathologies_are_off_by_default() -> None:
    knobs = Knobs()
    assert not any(getattr(knobs, name) for name in PATHOLOGIES)


def share(knobs: dict[str, float], what: str, n: int = 400) -> float:
    """Share of first votes with a property."""
    world = World(8, knobs)
    found = 0
    for k in range(n):
        text = world.vote(k)
        found += {
            "first": text == OPTIONS[0],
            "listed": text in OPTIONS,
            "read": isinstance(Choice(OPTIONS).parse(text), Parsed),
            "long": len(text) > 200,
        }[what]
    return found / n


def test_position_bias_raises_the_share_of_the_favoured_place() -> None:
    assert share({"position_bias": 1.5}, "first") > share({}, "first") + 0.2
    assert share({"position_bias": 1.5, "position": 3}, "first") < share({}, "first")


@pytest.mark.parametrize("knob", ["refusals", "off_list"])
def test_refusals_and_strangers_are_no_listed_option(knob: str) -> None:
    assert share({}, "listed") == 1
    assert 0.4 < share({knob: 0.5}, "listed") < 0.6
    assert share({knob: 1}, "read") == 0


def test_over_length_buries_the_answer_and_malformed_breaks_it() -> None:
    assert share({"over_length": 1}, "long") == 1
    assert share({"malformed": 1}, "listed") == 0


def test_instability_makes_a_re_ask_a_new_draw() -> None:
    world = World(3, {"instability": 1})
    assert 0.55 < changed(world, first_votes(world, 500), FINAL) < 0.78


def test_sycophancy_follows_the_challenger() -> None:
    def agreeing(knobs: dict[str, float]) -> float:
        world = World(3, knobs)
        first = first_votes(world, 300)
        count = 0
        for n, held in first.items():
            other = next(o for o in OPTIONS if o != held)
            system = f'{base(persona(n))}\n\nYou previously chose "{held}".'
            note = f"{system}\n\nA moderator challenged you with opposing views."
            talk = f"You had this dialogue:\n\nModerator: What of {other}? {CARE}\nYou: Hm.\n\n"
            count += world.ask(f"f/{n}", note, talk + FINAL) == other
        return count / 300

    assert agreeing({"sycophancy": 1}) > agreeing({}) + 0.2


LIKERT = ("Strongly disagree", "Disagree", "Neither", "Agree", "Strongly agree")


def ratings(knobs: dict[str, float]) -> list[int]:
    world = World(5, knobs)
    listed = "\n".join(f"- {o}" for o in LIKERT)
    prompt = f"The town should have a night bus.\n\nChoose one of these options:\n{listed}"
    return [LIKERT.index(world.ask(f"r/{n}", base(persona(n)), prompt)) for n in range(300)]


def test_acquiescence_and_shrinking_variance_act_on_rating_scales() -> None:
    plain, yes, flat = (ratings(k) for k in ({}, {"acquiescence": 0.6}, {"shrinking_variance": 1}))
    mean = sum(plain) / 300
    assert set(plain) == {0, 1, 2, 3, 4}
    assert sum(yes) / 300 > mean + 0.5
    assert len(set(flat)) < 4
