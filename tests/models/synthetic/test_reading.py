"""What is read off a prompt: options, bounds, the kind of answer that is wanted."""

from __future__ import annotations

import pytest

from folkmoot.models.request import Message, Request
from folkmoot.models.synthetic.reading import inline_options, listed_options, read
from folkmoot.models.synthetic.tasks import Task, task_of
from folkmoot.models.synthetic.values import bounds
from tests.models.synthetic.synthetic_world import OPTIONS, World, base, persona, vote_prompt


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Options:\n1. One\n2. Two, or more\n3. Three", ("One", "Two, or more", "Three")),
        ("The options on the table:\n- A\n- B\n\nStay calm.\n- not an option", ("A", "B")),
        ("Choose exactly one of these options:\n\n* X\n\n* Y", ("X", "Y")),
        ('Pick one of these:\n(1) "Yes"\n(2) "No"', ("Yes", "No")),
        ("What you said about yourself:\n- I like tea\n- I am 40", ()),
        ("Options: only one\n- alone", ()),
    ],
)
def test_listed_options(text: str, options: tuple[str, ...]) -> None:
    assert listed_options(text) == options


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Available options: A, B, C", ("A", "B", "C")),
        ("Options: ['yes, please', 'no']", ("yes, please", "no")),
        ('Choose one of "left"; "right"', ("left", "right")),
        ("Nothing to choose here.", ()),
    ],
)
def test_inline_options(text: str, options: tuple[str, ...]) -> None:
    assert inline_options(text) == options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a number between 0 and 20", (0, 20, True)),
        ("Answer with a whole number from -5 to 5, both included.", (-5, 5, True)),
        ("Answer with a number from 0.5 to 2.5.", (0.5, 2.5, False)),
        ("on a scale of 1 to 10", (1, 10, True)),
        ("You hold $1,000. Give between $0 and $1,000.", (0, 1000, True)),
        ("range (0, 5)", (0, 5, True)),
        ("at most 12 tokens", (0, 12, True)),
        ("How many?", (0, 100, True)),
    ],
)
def test_bounds(text: str, expected: tuple[float, float, bool]) -> None:
    assert bounds(text) == expected


PAGE = "Here is a summary of positions that other participants hold, with their arguments.\n\n" + (
    "\n\n".join(f"## {o}\n\nPosition 1: They describe what they share." for o in OPTIONS)
)


@pytest.mark.parametrize(
    ("system", "prompt", "task"),
    [
        (base("a cook."), vote_prompt(), Task.CHOICE),
        (base("a cook."), f"{PAGE}\n\nReply with ONLY the exact text of your option.", Task.CHOICE),
        ("You moderate. At the end say SATISFIED.", "Begin.", Task.MODERATE),
        ("", "How much do you give? A number between 0 and 20.", Task.NUMBER),
        (f'{base("a cook.")}\n\nYou previously chose "{OPTIONS[0]}".', "Why?", Task.INTERVIEW),
        (
            f"{base('a cook.')}\n\nA moderator presents opposing viewpoints to you.",
            "And the others?",
            Task.CHALLENGED,
        ),
        ("You are a cook.", "What do you think of night buses?", Task.SPEAK),
    ],
)
def test_the_kind_of_answer_wanted(system: str, prompt: str, task: Task) -> None:
    messages = [Message("system", system)] if system else []
    request = Request("x/y", (*messages, Message("user", prompt)))
    assert task_of(request, read(request)) is task


def test_a_re_ask_is_answered_as_the_task_it_repeats() -> None:
    world = World(1)
    again = "No option was named. Reply with exactly one of these and nothing else: " + "; ".join(
        f'"{o}"' for o in OPTIONS
    )
    for n in range(20):
        text = world.ask(f"v/{n}", base(persona(n)), vote_prompt(), "Well, hm.", again)
        assert text in OPTIONS
    number = "Reply with a single number from 0 to 5 and nothing else."
    assert 0 <= int(world.ask("n", "", "How many?", "Some.", number)) <= 5


def test_a_re_ask_is_no_clarification() -> None:
    again = 'Reply with exactly one of these and nothing else: "A"; "B"'
    messages = tuple(
        Message(role, text)  # type: ignore[arg-type]
        for role, text in (("user", "Choose."), ("assistant", "Hm."), ("user", again))
    )
    assert read(Request("x/y", messages)).own_turns == ()


def test_what_was_chosen_before_and_what_others_hold() -> None:
    system = f'{base("a cook.")}\n\nYou previously chose "{OPTIONS[1]}".'
    request = Request("x/y", (Message("system", system), Message("user", f"{PAGE}\n\nNow vote.")))
    reading = read(request)
    assert reading.held == OPTIONS[1]
    assert list(reading.sections) == list(OPTIONS)
    assert "Now vote" not in reading.sections[OPTIONS[2]]
    assert reading.opponents_words == ()


def test_vote_counts_behind_a_heading_do_not_hide_the_option() -> None:
    text = PAGE.replace(f"## {OPTIONS[0]}", f"## {OPTIONS[0]} (41 first votes, 34%)")
    request = Request("x/y", (Message("system", base("a cook.")), Message("user", text)))
    assert set(read(request).sections) == set(OPTIONS)


def test_options_with_commas_are_found_in_a_moderators_instructions() -> None:
    world = World(2)
    names = ("Parks, trees and ponds", "Buses, trams")
    page = f"## {names[0]}\n\nThey want kindness.\n\n## {names[1]}\n\nThey want dignity."
    system = (
        f"You present an opposing view.\n\nAvailable options: {', '.join(names)}\n\n"
        f'The participant chose "{names[0]}".\n\n{page}\n\nPresent the opposing view: "{names[1]}".'
        " At the end say SATISFIED."
    )
    assert names[1] in world.ask("m", system, "Begin.")
