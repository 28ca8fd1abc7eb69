"""Objects by schema: any schema validates, and the studies' field names are filled with sense."""

from __future__ import annotations

import json
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from folkmoot.models.request import Message, ProviderSettings, Request
from folkmoot.models.synthetic import Respondent

MODEL = Respondent(ProviderSettings(seed=1))


def fill(
    schema: dict[str, Any] | None, prompt: str, system: str = "", address: str = "a", **knobs: Any
) -> Any:
    model = Respondent(ProviderSettings(seed=1, options=knobs)) if knobs else MODEL
    messages = [Message("system", system)] if system else []
    messages.append(Message("user", prompt))
    reply = model.reply(Request("synthetic/x", tuple(messages), schema=schema), address)
    value = json.loads(reply.text)
    if schema:
        jsonschema.validate(value, schema)
    return value


FIELDS = """
vote reason target_agent agree_level summary items dialogue text speaker score valence response
acceptable hard_no top_choice reactions questions concern alpha beta thinking resolved has_conflict
previous_stance current_stance change_type references new_points full_statement consensus spoken
most_compelling stance_evolution satisfaction originating_residents ballots intent entry
"""
NAMES = st.sampled_from(FIELDS.split())


def leaves() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.tuples(st.integers(-50, 50), st.integers(0, 60))
    return st.one_of(
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4, unique=True).map(
            lambda e: {"type": "string", "enum": e}
        ),
        st.tuples(st.integers(0, 8), st.integers(8, 400)).map(
            lambda b: {"type": "string", "minLength": b[0], "maxLength": b[1]}
        ),
        bounds.map(lambda b: {"type": "integer", "minimum": b[0], "maximum": b[0] + b[1]}),
        bounds.map(lambda b: {"type": "number", "minimum": b[0], "maximum": b[0] + b[1]}),
        bounds.map(lambda b: {"type": "integer", "exclusiveMinimum": b[0], "maximum": b[0] + 9}),
    )


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    def grow(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        arrays = st.tuples(inner, st.integers(0, 3), st.integers(3, 6)).map(
            lambda a: {"type": "array", "items": a[0], "minItems": a[1], "maxItems": a[2]}
        )
        objects = st.dictionaries(NAMES, inner, min_size=1, max_size=5).map(
            lambda p: {"type": "object", "properties": p, "required": list(p)}
        )
        either = inner.map(lambda s: {"anyOf": [{"type": "null"}, s]})
        return st.one_of(arrays, objects, either)

    return st.recursive(leaves(), grow, max_leaves=12)


PROMPTS = st.sampled_from(
    [
        "Fill this in.",
        "A01: I am against it, the rents go up.\nA02: Go ahead, I am for it.\nV1: Build a lift\n",
        "Stated preferences:\nGrandparent 1: I love diners, no sushi.\nChild 2: sushi!\n",
        'Options:\n- yes\n- no\n\n{"response": 1}',
    ]
)


@given(st.dictionaries(NAMES, schemas(), min_size=1, max_size=4), PROMPTS, st.integers(0, 3))
@settings(max_examples=250, deadline=None)
def test_any_schema_is_filled_so_that_it_validates(
    fields: dict[str, Any], prompt: str, draw: int
) -> None:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    fill(schema, prompt, "You are a baker from Ohio.", f"x/{draw}")


# --- a hall -----------------------------------------------------------------------------------

Stance = Literal["strong_support", "support", "neutral", "oppose", "strong_oppose"]


class Reaction(BaseModel):
    target_agent: str
    target_summary: str
    my_feeling: Literal["worried", "relieved", "angry", "hopeful", "indifferent", "empathetic"]
    agree_level: int = Field(ge=1, le=5)
    reason: str
    want_to_respond: bool


class Thinking(BaseModel):
    reactions: list[Reaction]
    overall_stance: Stance
    key_concerns: list[str]


class Reference(BaseModel):
    target_agent: str
    interaction_type: Literal["agree", "disagree", "partial_agree", "cite", "question"]
    content: str


class Speaking(BaseModel):
    references: list[Reference]
    new_points: list[str]
    full_statement: str


class Evolution(BaseModel):
    previous_stance: Stance
    current_stance: Stance
    change_type: Literal["maintain", "soften", "harden", "flip"]


class Reflection(BaseModel):
    stance_evolution: Evolution


SAID = {
    "A02": "The rents of us tenants must not double. I am against it.",
    "A03": "Our homes would be worth more. I am for it, and gladly.",
    "A04": "Without ramps and lifts the houses are closed to some of us.",
}
HALL = "The residents said about the redevelopment:\n\n" + "\n\n".join(
    f"{k}: {v}" for k, v in SAID.items()
)
TENANT = "You are A01, a tenant whose rent is high. You struggle to make ends meet."


def test_reactions_are_one_for_each_voice_heard_and_never_to_oneself() -> None:
    got = fill(Thinking.model_json_schema(), f"{HALL}\n\nA01: I said so.", TENANT)
    assert [r["target_agent"] for r in got["reactions"]] == ["A02", "A03", "A04"]
    assert "What happens to the rents" in got["key_concerns"]


def test_tenants_agree_more_with_tenants_than_with_owners() -> None:
    levels = {"A02": 0, "A03": 0}
    for n in range(60):
        system = f"You are A01, a tenant in flat {n} whose rent is high."
        got = fill(Thinking.model_json_schema(), HALL, system, f"t/{n}")
        for r in got["reactions"][:2]:
            levels[r["target_agent"]] += r["agree_level"]
    assert levels["A02"] > levels["A03"] + 30


def test_a_statement_holds_the_answers_it_announces_by_id() -> None:
    spoke = 0
    for n in range(40):
        got = fill(Speaking.model_json_schema(), HALL, TENANT, f"s/{n}")
        for reference in got["references"]:
            spoke += 1
            assert reference["target_agent"] in SAID
            assert reference["target_agent"] in reference["content"]
            assert reference["content"] in got["full_statement"]
    assert spoke > 20


def test_what_was_thought_decides_whom_one_answers() -> None:
    thoughts = {
        "reactions": [
            {"target_agent": "A04", "target_summary": "lifts", "agree_level": 5,
             "want_to_respond": True},
            {"target_agent": "A02", "target_summary": "rents", "agree_level": 1,
             "want_to_respond": False},
        ],
        "overall_stance": "strong_oppose",
    }  # fmt: skip
    prompt = f"Speak. What you have just thought:\n\n{json.dumps(thoughts)}\n\nNow speak."
    targets = set()
    for n in range(20):
        got = fill(Speaking.model_json_schema(), prompt, TENANT, f"w/{n}")
        targets |= {r["target_agent"] for r in got["references"]}
    assert targets == {"A04"}


def test_a_change_of_stance_bears_the_right_name() -> None:
    order = ["strong_oppose", "oppose", "neutral", "support", "strong_support"]
    kinds = set()
    for n in range(120):
        prompt = f"{HALL}\n\nYour stance as you went into this round: {order[n % 5]}"
        system = f"You are A01, a curious clerk in flat {n}."
        got = fill(Reflection.model_json_schema(), prompt, system, f"r/{n}")["stance_evolution"]
        a, b = (order.index(got[k]) - 2 for k in ("previous_stance", "current_stance"))
        assert order[n % 5] == got["previous_stance"]
        expected = (
            "maintain" if a == b else "flip" if a * b < 0 else
            "harden" if abs(b) > abs(a) else "soften"
        )  # fmt: skip
        assert got["change_type"] == expected
        kinds.add(expected)
    assert {"maintain", "soften", "harden"} <= kinds


def test_one_call_for_many_writes_each_from_their_own_portrait() -> None:
    schema = {
        "type": "object",
        "properties": {k: {"$ref": "#/$defs/Thinking"} for k in ("A01", "A02")},
        "required": ["A01", "A02"],
        "$defs": {
            "Thinking": Thinking.model_json_schema(),
            **Thinking.model_json_schema()["$defs"],
        },
    }
    system = (
        "You write the parts of two residents.\n\nThe redevelopment is at issue.\n\n"
        "You are A01, a tenant in the third house, whose rent is high for what she earns.\n\n"
        "You are A02, an elderly man in a wheelchair who lives alone on the ground floor."
    )
    got = fill(schema, HALL, system)
    assert "What happens to the rents" in got["A01"]["key_concerns"]
    assert "Step-free access" in got["A02"]["key_concerns"]
    assert "A02" not in [r["target_agent"] for r in got["A02"]["reactions"]]


class Item(BaseModel):
    proposal: str
    originating_residents: list[str]


class Plan(BaseModel):
    items: list[Item]


def test_planned_items_name_those_who_raised_them() -> None:
    items = fill(Plan.model_json_schema(), f"{HALL}\n\nDraw up at most 3 items.")["items"]
    by = {w: i["proposal"] for i in items for w in i["originating_residents"]}
    assert "rents" in by["A02"] and "Step-free".lower() in by["A04"].lower()
    assert len(items) <= 3


def test_votes_follow_concerns_and_acquiescence() -> None:
    schema = {
        "type": "object",
        "properties": {k: {"$ref": "#/$defs/V"} for k in ("V1", "V2")},
        "$defs": {
            "V": {
                "type": "object",
                "properties": {
                    "vote": {"type": "string", "enum": ["yes", "no"]},
                    "reason": {"type": "string"},
                },
                "required": ["vote", "reason"],
            }
        },
    }
    prompt = f"{HALL}\n\nThe ballot:\n\nV1: Cap the rents of tenants\nV2: Paint the shops green\n"

    def yes(item: str, **knobs: float) -> int:
        return sum(
            fill(schema, prompt, f"You are A01, a tenant in flat {n}.", f"v/{n}", **knobs)[item][
                "vote"
            ]
            == "yes"
            for n in range(60)
        )

    assert yes("V1") > yes("V2") + 10
    assert yes("V2", acquiescence=1.0) > yes("V2") + 10


# --- a negotiation ----------------------------------------------------------------------------


class Synthesis(BaseModel):
    has_conflict: bool
    conflict_description: str
    resolution_strategy: str
    resolution_explanation: str
    dialogue: list[dict[str, str]]


TABLE = "Stated preferences:\n{P}\n\nOptions on the table:\n- diner\n- brew pub\n- pub\n- sushi\n"


@pytest.mark.parametrize(
    ("stated", "conflict"),
    [
        ("Ann: I would love a diner.\nBen: I want sushi.", True),
        ("Ann: I would love sushi.\nBen: I want sushi, no pub.", False),
        ("Ann: A brew pub, please, I like it.\nBen: I want a pub.", True),
    ],
)
def test_a_conflict_is_seen_where_members_name_different_options(
    stated: str, conflict: bool
) -> None:
    got = fill(Synthesis.model_json_schema(), TABLE.format(P=stated))
    assert got["has_conflict"] is conflict
    assert bool(got["conflict_description"]) is conflict


class Ballot(BaseModel):
    top_choice: Literal["diner", "brew pub", "pub", "sushi"]
    acceptable: list[Literal["diner", "brew pub", "pub", "sushi"]]
    hard_no: list[Literal["diner", "brew pub", "pub", "sushi"]]


def test_a_ballot_says_what_was_stated() -> None:
    stated = "I would love a brew pub, I like sushi as well, but I don't want a diner."
    prompt = f"Your stated preference: {stated}\n\n{TABLE.format(P='Ann: ' + stated)}"
    for n in range(20):
        got = fill(Ballot.model_json_schema(), prompt, f"You are clerk {n}.", f"b/{n}")
        assert got["top_choice"] == "brew pub"
        assert "sushi" in got["acceptable"]
        assert "diner" in got["hard_no"]
        assert not {got["top_choice"], *got["acceptable"]} & set(got["hard_no"])


# --- forms and odd requests -------------------------------------------------------------------


def test_a_wrapped_answer_is_an_option_or_a_number_within_bounds() -> None:
    schema = {
        "type": "object",
        "properties": {
            "response": {"type": "string"},
            "speculation_score": {"type": "integer", "minimum": 0, "maximum": 100},
        },
    }
    listed = fill(schema, 'Choose one of these options:\n- keep\n- give\n\n{"response": …}')
    assert listed["response"] in {"keep", "give"}
    number = fill(schema, "How much? Answer with a whole number from 3 to 7, both included.")
    assert 3 <= int(number["response"]) <= 7
    assert 0 <= number["speculation_score"] <= 100


def test_without_a_schema_the_keys_shown_in_the_prompt_are_filled() -> None:
    got = fill(None, 'Reply with JSON only: {"mood": "in a word", "age": 3, "ok": true}')
    assert set(got) == {"mood", "age", "ok"}
    assert isinstance(got["ok"], bool) and isinstance(got["age"], int)


@pytest.mark.parametrize("knob", ["malformed"])
def test_malformed_objects_are_broken(knob: str) -> None:
    model = Respondent(ProviderSettings(seed=1, options={knob: 1}))
    broken = 0
    for n in range(40):
        request = Request("x/y", (Message("user", HALL),), schema=Thinking.model_json_schema())
        try:
            json.loads(model.reply(request, f"m/{n}").text)
        except json.JSONDecodeError:
            broken += 1
    assert broken == 40
