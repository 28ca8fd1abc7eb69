"""The decision that a mediator states as data: its parsing. Free text decides nothing."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from folkmoot.conversation.answer_types import NONE_OF_THESE
from folkmoot.models.request import ModelRequest
from folkmoot.studies.negotiation.config import MemberInput
from folkmoot.studies.negotiation.participants import build_group
from folkmoot.studies.negotiation.rules.candidates import candidate_options
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.replies import (
    FeedbackReply,
    Share,
    Vocabulary,
    parse_settlement,
    same_allocation,
    summary_option,
)
from folkmoot.studies.negotiation.rules.strategies import Group, group_type
from folkmoot.studies.negotiation.rules.tally import MemberBallot, match_option
from tests.shown import render_run_text
from tests.studies.negotiation.conftest import (
    Runner,
    get_question,
    list_options,
    make_new_share,
    read_session_file,
    reply_sensibly,
    select_groups,
)

FOOD = ("barbecue", "diner", "sushi")
ALL = ("traveler_1", "traveler_2", "traveler_3")


def make_family() -> Group:
    roles = ("parent", "child", "child")
    return build_group("g", group_type("family"), [MemberInput(role=r) for r in roles])


def make_entry(option: str, *members: str, when: str = "") -> Share:
    return Share(option=option, members=list(members or ("everyone",)), when=when)


def make_new_entry(option: str, *members: str, when: str = "") -> Share:
    return make_entry(NONE_OF_THESE, *members, when=when).model_copy(update={"new_option": option})


def read_settlement(*shares: Share, dropped: tuple[str, ...] = (), topic: str = "cuisine") -> Any:
    said = FeedbackReply(decision=list(shares), dropped=list(dropped))
    return parse_settlement(Vocabulary(make_family(), topic, FOOD, days=3), said)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([make_entry("diner")], [("diner", ALL, "whole trip")]),
        ([make_entry("Diners!", "everyone")], [("diner", ALL, "whole trip")]),
        ([make_entry("diner", when="The whole trip")], [("diner", ALL, "whole trip")]),
        ([make_entry("sushi", "Child 2", when="Day 2")], [("sushi", ALL[2:], "Day 2")]),
        ([make_entry("sushi", "child 1", "PARENT_1")], [("sushi", ALL[:2], "whole trip")]),
        ([make_entry("sushi", "children")], [("sushi", ALL[1:], "whole trip")]),
        ([make_entry("sushi", "traveler_3")], [("sushi", ALL[2:], "whole trip")]),
        # Two options for the same members and the whole trip share the time.
        (
            [make_entry("diner"), make_entry("sushi")],
            [("diner", ALL, "part with diner"), ("sushi", ALL, "part with sushi")],
        ),
        # Options in branches do not share the time.
        (
            [make_entry("diner", "Parent 1"), make_entry("sushi", "Child 1", "Child 2")],
            [("diner", ALL[:1], "whole trip"), ("sushi", ALL[1:], "whole trip")],
        ),
        # Two entries that differ only in the day become one.
        (
            [make_entry("diner", when="Day 1"), make_entry("Diner", when="Day 3")],
            [("diner", ALL, "Day 1 and Day 3")],
        ),
        # Entries that differ only in the member become one, too.
        (
            [
                make_entry("diner", "Parent 1"),
                make_entry("sushi", "Child 2"),
                make_entry("diner", "Child 1"),
            ],
            [("diner", ALL[:2], "whole trip"), ("sushi", ALL[2:], "whole trip")],
        ),
        # An option that is not on the table enters by its own field.
        ([make_new_entry("a picnic")], [("a picnic", ALL, "whole trip")]),
        ([make_new_entry("Diners")], [("diner", ALL, "whole trip")]),
        ([make_entry("diner", "the children")], [("diner", ALL[1:], "whole trip")]),
        ([make_entry("diner", "both children")], [("diner", ALL[1:], "whole trip")]),
        ([make_entry("diner", when="days 1-2")], [("diner", ALL, "Day 1 and Day 2")]),
        ([make_entry("diner", when="Day 1, Day 2 and Day 3")], [("diner", ALL, "whole trip")]),
        ([make_entry("diner", when="by majority rule")], [("diner", ALL, "time left open")]),
    ],
)
def test_what_is_stated_is_read(shares: list[Share], expected: list[Any]) -> None:
    found = read_settlement(*shares)
    assert [(p.option, p.members, p.when) for p in found.portions] == expected
    assert found.unread_count == 0


# Ordinary phrases that name no listed option or several ones.
NO_OPTION = [
    *("whatever the others want", "A", "undecided", "no preference", "anything but sushi"),
    *("all except diner", "sushi or diner", "TBD", "a compromise", "diner (no barbecue)"),
    *("the diner", "not the diner", "diner and barbecue", "none", "Diner / sushi", "tapas", ""),
    *("sushi on Day 2", "option 1", "everyone's favourite", "unclear", "n/a", "diner?sushi"),
    *("❌ diner", "✗ diner", "≠ diner", "!diner", "-diner", "diner 👎", "diner…"),
]
NO_MEMBER = [
    *("Uncle Bob", "Anna and Ben", "everyone else", "the others", "Parent 1, Child 1"),
    *("nobody", "not Child 1", "all but Child 1", "whoever wants", "Child", "Child 3"),
]


@pytest.mark.parametrize("entry", ["Plan A+", "plan a+", "**Plan A+**", "“plan-a+”."])
def test_an_option_is_not_one_that_differs_in_a_symbol(entry: str) -> None:
    assert match_option(entry, ["Plan A", "Plan A+"]) == "Plan A+"
    assert match_option(entry, ["Plan A"]) is None


@pytest.mark.parametrize("entry", ["✅ sushi", "👍🏽 Sushi", "🍣 sushi", "sushi ⭐", "❤️ **sushi**"])
@pytest.mark.parametrize("option", ["sushi", "🍣 Sushi"])
def test_a_picture_beside_an_option_is_decoration(entry: str, option: str) -> None:
    assert match_option(entry, ["diner", option]) == option
    assert match_option("sushi", ["diner", option]) == option
    assert match_option("👎 sushi", ["diner", option]) is None


@pytest.mark.parametrize(
    ("entry", "option", "is_same"),
    [
        ("Café Zoë", "cafe zoe", True),
        ("Việt", "Viet", True),
        # These marks make another word: bus and lotus, crow and step forward.
        ("バス", "ハス", False),
        ("กา", "ก้า", False),
        ("バス", "バス", True),
        ("ก้า.", "ก้า", True),
    ],
)
def test_accents_make_no_other_option_and_marks_of_letters_do(
    entry: str, option: str, is_same: bool
) -> None:
    assert match_option(entry, [option]) == (option if is_same else None)


def test_an_option_with_and_without_a_picture_is_one_candidate() -> None:
    ballots = {name: MemberBallot(name, top) for name, top in (("a", "🍣 sushi"), ("b", "sushi"))}
    assert len(candidate_options(["diner"], {}, ballots)) == 1


@pytest.mark.parametrize("share", [make_entry(option) for option in NO_OPTION])
def test_what_names_no_listed_option_is_unread(share: Share) -> None:
    found = read_settlement(share, make_entry("sushi", "Child 1"))
    assert ([p.option for p in found.portions], found.unread_count) == (["sushi"], 1)


@pytest.mark.parametrize("share", [make_entry("diner", name) for name in NO_MEMBER])
def test_what_names_no_member_is_unread(share: Share) -> None:
    found = read_settlement(share, make_entry("sushi", "Child 1"))
    assert ([p.option for p in found.portions], found.unread_count) == (["sushi"], 1)
    without = read_settlement(Share(option="diner", members=[]))
    assert (without.portions, without.unread_count) == ((), 1)


def test_unread_members_beside_a_named_member_are_counted() -> None:
    found = read_settlement(make_entry("diner", "Parent 1", "everyone else"))
    assert [(p.option, p.members) for p in found.portions] == [("diner", ALL[:1])]
    assert found.unmatched == {"members and groups of members": ("everyone else",)}


NO_NEW_OPTION = [
    *("anything but sushi", "sushi or diner", "diner (no barbecue)", "all except diner"),
    *("no sushi", "diner/barbecue", "sushi, please", "A", "undecided or so it seems to all of us"),
    *("I would rather not say", "I'd rather not", "prefer not to answer", "cannot say", "declined"),
    *("no new option", "No other options, thanks.", "none of the above", "same as above", "keine"),
    *("I don't know", "not sure", "undefined", "not applicable", "I'm fine with the list"),
    *("to be decided", "TBD", "undecided", "no decision", "I cannot decide", "left open"),
]


@pytest.mark.parametrize("name", ["", "none_of_these", *NO_NEW_OPTION])
def test_a_new_option_needs_a_name(name: str) -> None:
    found = read_settlement(make_new_entry(name))
    assert (found.portions, found.unread_count) == ((), 1)
    # What goes back are the words of the entry.
    assert found.unmatched == {"options on the table": (name or NONE_OF_THESE,)}


@pytest.mark.parametrize(
    "name",
    ["vegetarian sushi", "a picnic", "寿司", "no smoking", "the list of michelin", "sure bar"],
)
def test_words_of_its_own_make_a_new_option(name: str) -> None:
    assert [p.option for p in read_settlement(make_new_entry(name)).portions] == [name]


def test_a_new_option_beside_a_listed_one_does_not_replace_it() -> None:
    share = Share(option="diner", new_option="tapas", members=["everyone"])
    assert [p.option for p in read_settlement(share).portions] == ["diner"]


def test_an_option_that_a_member_gets_is_not_dropped() -> None:
    assert read_settlement(make_entry("diner"), dropped=("Sushi", "diner", "")).dropped == (
        "sushi",
    )


def test_house_rules_hold_together() -> None:
    found = read_settlement(make_entry("diner"), make_entry("sushi"), topic="house_rule")
    assert {p.when for p in found.portions} == {"whole trip"}


def test_summed_up_and_same() -> None:
    apart = Portion("sushi", ALL[2:]), Portion("diner", ALL[:1]), Portion("diner", ALL[1:2])
    assert summary_option(apart) == "diner"
    most = Portion("diner", ALL[:2]), Portion("sushi", ALL[2:])
    assert summary_option(most) == "diner" and summary_option(()) is None
    assert same_allocation(most, (Portion("sushi", ALL[2:], "Day 2"), *most[:1]))
    assert not same_allocation(most, most[:1])


# Sentences about one decision. Some of them seem to state another decision.
EQUIVALENT_WORDS = [
    "The diner for everyone, that is settled.",
    "Instead of barbecue we go to the diner.",
    "Barbecue was popular, yet the diner it is.",
    "Nobody gets barbecue; what about the diner?",
    "We leave barbecue, sushi and the pub for another trip.",
    "Diner it is, much as some of you would enjoy barbecue.",
    "Colleague 2 would have liked barbecue for Colleague 2 and everyone.",
    "",
]


@pytest.mark.nightly(part="wordings")
def test_the_wording_of_a_decision_decides_nothing(run_negotiation: Runner) -> None:
    """The same statement in other words gives the same state, scores and shares.

    All groups are equal, but their mediators use different words.
    """
    words_by_group = {f"strange{number}": words for number, words in enumerate(EQUIVALENT_WORDS)}

    def reply_to(request: ModelRequest, address: str) -> str:
        words = next((w for id, w in words_by_group.items() if f"/{id}-" in address), "")
        return reply_sensibly(
            request,
            address,
            resolution_explanation=words,
            final_revised_decision=words or "Diner",
            decision=[{"option": "diner", "members": ["everyone"], "when": ""}],
        )

    (group,) = select_groups("strange")
    groups = [group | {"id": id} for id in words_by_group]
    run = run_negotiation(reply_to, groups=groups, conditions=["C3", "C5"])
    measures = run.table("measures").drop("words_per_decision")
    for condition in ("C3", "C5"):
        found = []
        for id in words_by_group:
            trail = read_session_file(run, id, condition, "decisions")["cuisine"]
            of = {"group_id": id, "condition": condition}
            tables = [t.filter(**of) for t in (measures, run.table("satisfaction"))]
            assert all(table.height for table in tables)
            rows = [table.drop("group_id").to_dicts() for table in tables]
            found.append([trail["portions"], trail["selected_option"], *rows])
        assert all(one == found[0] for one in found)
        assert found[0][1] == "diner"


def test_what_c3_states_is_what_it_decided(run_negotiation: Runner) -> None:
    stated = [
        {"option": "barbecue", "members": ["Colleague 2", "Colleague 4"], "when": "Day 2"},
        {"option": "diner", "members": ["Colleague 1", "Colleague 3"], "when": "Day 2"},
    ]

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/cuisine/" in address:
            return reply_sensibly(request, address, decision=stated, dropped=["sushi"])
        return reply_sensibly(request, address, decision=[])

    run = run_negotiation(reply_to, groups=select_groups("team"), conditions=["C3"])
    rows = {r["topic"]: r for r in run.table("decisions").to_dicts()}
    assert rows["cuisine"]["selected_option"] == "barbecue"
    # What is not on the table cannot be dropped.
    assert rows["cuisine"]["dropped"] == ""
    got = run.table("portions").filter(topic="cuisine").sort("member_id")
    assert got["option"].to_list() == ["diner", "barbecue"] * 2
    # A decision that was not stated stays open.
    assert rows["event"]["selected_option"] is None
    assert run.table("measures")["undecided_share"].to_list() == [7 / 8]
    happy = run.table("satisfaction").filter(topic="event")
    assert happy["satisfaction"].is_null().all()


def test_all_mediators_are_asked_for_the_decision_in_one_form(run_negotiation: Runner) -> None:
    asked: dict[str, Any] = {}

    def reply_to(request: ModelRequest, address: str) -> str:
        decides = request.schema and "decision" in request.schema["properties"]
        if request.schema and decides and "/cuisine/" in address:
            shown = {k: request.schema["properties"][k] for k in ("decision", "dropped")}
            asked[request.schema["title"]] = [shown, request.schema["$defs"]["Share"]]
        return reply_sensibly(request, address)

    run_negotiation(reply_to, groups=select_groups("fam"))
    assert set(asked) == {"PlainSynthesis", "GuidedSynthesis", "FeedbackReply"}
    assert len({json.dumps(form, sort_keys=True) for form in asked.values()}) == 1
    _, share = asked["PlainSynthesis"]
    assert sorted(share["properties"]["option"]["enum"]) == ["barbecue", "diner", "none_of_these"]
    members = share["properties"]["members"]["items"]["enum"]
    assert members == ["Parent 1", "Child 1", "Child 2", "everyone", "the children"]


def test_c3_records_an_option_that_overrides_a_rejection(
    run_negotiation: Runner,
) -> None:
    """The option is not on the table, and one member rejected it beforehand."""
    groups = select_groups("pair")
    against = {**groups[0]["members"][0]["preferences"], "cuisine": "I love a diner, no karaoke."}
    members = [{"role": "partner", "preferences": against}, groups[0]["members"][1]]

    def reply_to(request: ModelRequest, address: str) -> str:
        karaoke = [make_new_share("karaoke")]
        return reply_sensibly(
            request, address, **({"decision": karaoke} if "/cuisine/" in address else {})
        )

    run = run_negotiation(reply_to, groups=[{**groups[0], "members": members}], conditions=["C3"])
    row = run.table("decisions").filter(topic="cuisine").to_dicts()[0]
    assert (row["selected_option"], row["overridden"]) == ("karaoke", "karaoke: traveler_1")


def test_a_reply_without_a_strategy_named_no_other(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        return reply_sensibly(request, address, resolution_strategy=None)

    run = run_negotiation(reply_to, groups=select_groups("pair"), conditions=["C4"])
    assert run.table("decisions")["drifted"].is_null().all()
    assert run.table("measures")["drift_rate"].is_null().all()


def test_the_statement_is_compared_with_the_operator(run_negotiation: Runner) -> None:
    """In the family, spending is a hard constraint (economical), and cuisine includes both."""

    def reply_to(request: ModelRequest, address: str) -> str:
        stated = [{"option": "economical", "members": ["everyone"], "when": ""}]
        return reply_sensibly(request, address, decision=stated if "/spending" in address else [])

    run = run_negotiation(reply_to, groups=select_groups("fam"), conditions=["C4"])
    agrees = dict(run.table("decisions").select("topic", "statement_agrees").rows())
    assert agrees["spending_preference"] is True
    assert agrees["cuisine"] is None  # nothing stated
    lying = run_negotiation(groups=select_groups("fam"), conditions=["C4"]).table("decisions")
    agrees = dict(lying.select("topic", "statement_agrees").rows())
    assert agrees["cuisine"] is False
    assert agrees["travel_purpose"] is None  # stated before the vote


def test_each_member_confirms_in_one_word(run_negotiation: Runner) -> None:
    seen: list[str] = []

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/confirm/" not in address:
            return reply_sensibly(request, address)
        if "/cuisine/" in address:
            seen.append(request.messages[-1].content)
        return "no" if "traveler_2" in address else "Yes."

    conditions = ["C2", "C3", "C4"]
    run = run_negotiation(
        reply_to, groups=select_groups("pair"), conditions=conditions, confirm=True
    )
    words = run.table("confirmations")
    assert len(words) == 2 * 8 * 2
    said = dict(zip(words["member_id"], words["confirmed"], strict=True))
    assert said == {"traveler_1": True, "traveler_2": False}
    assert (
        run.table("measures").drop_nulls("confirmed_share")["confirmed_share"].to_list()
        == [0.5] * 2
    )
    # Members see the transcript and the statement as data.
    assert all("barbecue for everyone" in prompt for prompt in seen)
    assert all("“I love a diner.”" in prompt for prompt in seen)
    off = run_negotiation(groups=select_groups("pair"), conditions=["C3"], confirm=False)
    assert off.table("confirmations").is_empty()


def test_a_word_that_cannot_be_read_is_missing(run_negotiation: Runner) -> None:
    def reply_to(request: ModelRequest, address: str) -> str:
        return "That depends." if "/confirm/" in address else reply_sensibly(request, address)

    run = run_negotiation(reply_to, groups=select_groups("pair"), conditions=["C3"], confirm=True)
    words = run.table("confirmations")
    assert words["confirmed"].is_null().all() and set(words["missing"]) == {"unparsed"}
    assert run.table("measures")["confirmed_share"].is_null().all()


# Spoken rejections that the list of cues does not contain.
SPOKEN_REJECTIONS = [
    "Absolutely not, I won't go there.",
    "Over my dead body.",
    "I can’t stand diners.",
    "I canʼt stand a diner, and you know it!",
    "I＇d rather stay home.",
    "Never. Never ever.",
    "You go, I shall starve.",
    "Forget it.",
    "Hell would freeze before I sat in a diner.",
    "Lieber bleibe ich zu Hause.",
    "Ça, jamais de la vie !",
    "The diner makes me ill.",
]


@pytest.mark.parametrize("condition", ["C3", "C4", "C5"])
def test_a_refusal_that_is_only_spoken_is_asked_for_and_on_record(
    run_negotiation: Runner, condition: str
) -> None:
    """The speaker is asked if the words are a rejection, and the record contains the answer."""
    left, asked = iter(SPOKEN_REJECTIONS), dict[str, str]()
    topics = ("cuisine", "attraction", "travel_purpose", "event")

    def reply_to(request: ModelRequest, address: str) -> str:
        topic = next((t for t in topics if f"/{t}/" in address), None)
        if topic is None:
            return reply_sensibly(request, address)
        if "/confirm/" in address:
            prompt = request.messages[-1].content
            refusals = [x for x in prompt.splitlines() if x.startswith("refused: ")]
            refuses = "/traveler_2/" in address and refusals
            return refusals[0] if refuses else "yes"
        if request.schema and "dialogue" in request.schema["properties"]:
            words = asked.setdefault(f"{topic} {address}", next(left, SPOKEN_REJECTIONS[0]))
            lines = [{"speaker": "Colleague 2", "text": words}]
            options = list_options(get_question(request))
            decision = [{"option": options[0], "members": ["everyone"], "when": ""}]
            changes = {"dialogue": lines, "decision": decision, "has_conflict": condition == "C5"}
            return reply_sensibly(request, address, **changes)
        return reply_sensibly(request, address)

    run = run_negotiation(
        reply_to, groups=select_groups("team"), conditions=[condition], confirm=True
    )
    rows = run.table("decisions").filter(pl.col("topic").is_in(topics))
    assert len(rows) == 4 and all(": traveler_2" in over for over in rows["overridden"])
    words = run.table("confirmations").filter(pl.col("topic").is_in(topics)).drop_nulls("refused")
    assert words["member_id"].to_list() == ["traveler_2"] * 4 and words["confirmed"].all()
    trail = read_session_file(run, "team", condition, "decisions")["cuisine"]
    (refused,) = trail["refused"]["traveler_2"]
    assert "traveler_2" in trail["overridden"][refused]
    over = run.table("decisions").filter(pl.col("overridden") != "").height
    (finding,) = [f for f in run.findings if f.key == "mediator"]
    assert finding.says.endswith(f"firmly reject: {condition} {over} of 8.")
    assert "against a firm no: " in render_run_text(run.folder)


def test_a_member_with_several_options_refuses_one_or_all(run_negotiation: Runner) -> None:
    both = [{"option": "diner", "members": ["everyone"], "when": "Day 1"}]
    both += [make_new_share("sushi", "Partner 2", when="Day 2")]

    rejection = "diner: traveler_2"  # in the stated preference as well
    # What the second member says, and what is recorded: overridden, refused, confirmed.
    cases = {
        "one": ("refused: sushi", (f"{rejection}; sushi: traveler_2", "sushi", True)),
        "all": ("Refused: all of it.", (f"{rejection}; sushi: traveler_2", "diner; sushi", True)),
        "no": ("no", (rejection, None, False)),
        # The decision gives barbecue to no member.
        "not_given": ("refused: barbecue", (rejection, None, None)),
    }

    def reply_to(request: ModelRequest, address: str) -> str:
        if "/confirm/" in address and "traveler_2" in address:
            return next(word for id, (word, _) in cases.items() if f"/{id}-C3/" in address)
        return reply_sensibly(request, address, decision=both)

    (pair,) = select_groups("pair")
    groups = [pair | {"id": group_id} for group_id in cases]
    run = run_negotiation(reply_to, groups=groups, conditions=["C3"], confirm=True)
    decisions = run.table("decisions").filter(topic="cuisine")
    confirmations = run.table("confirmations").filter(topic="cuisine", member_id="traveler_2")
    found = decisions.join(confirmations, on="group_id")
    rows = found.select("group_id", "overridden", "refused", "confirmed").rows()
    assert {id: tuple(rest) for id, *rest in rows} == {id: end for id, (_, end) in cases.items()}
