"""The options of answer fields that allow only listed values, such as the field for a stance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from folkmoot.randomness import generator

Stance = Literal["strong_support", "support", "neutral", "oppose", "strong_oppose"]
Feeling = Literal["worried", "relieved", "angry", "hopeful", "indifferent", "empathetic"]
InteractionType = Literal["agree", "disagree", "partial_agree", "cite", "question"]
ChangeType = Literal["maintain", "soften", "harden", "flip"]

# Read the options from the `Literal` types, so that the types and the orders cannot disagree.
STANCES: tuple[str, ...] = get_args(Stance)
FEELINGS: tuple[str, ...] = get_args(Feeling)
INTERACTIONS: tuple[str, ...] = get_args(InteractionType)
CHANGES: tuple[str, ...] = get_args(ChangeType)
VOTES = ("yes", "no")


# Field of an answer → the field of `OptionOrders` that lists its options.
CLOSED_FIELDS = {
    "overall_stance": "stances",
    "previous_stance": "stances",
    "current_stance": "stances",
    "my_feeling": "feelings",
    "interaction_type": "interactions",
    "change_type": "changes",
    "vote": "votes",
}


@dataclass(frozen=True, slots=True)
class OptionOrders:
    """The order in which prompts list options. Each attribute holds the options of one field."""

    stances: tuple[str, ...] = STANCES
    feelings: tuple[str, ...] = FEELINGS
    interactions: tuple[str, ...] = INTERACTIONS
    changes: tuple[str, ...] = CHANGES
    votes: tuple[str, ...] = VOTES

    def to_json(self) -> dict[str, list[str]]:
        """Return a map from field to options, as stored in the pre-registered plan."""
        return {name: list(options) for name, options in asdict(self).items()}


def draw_option_orders(seed: int, set_number: int) -> OptionOrders:
    """Draw the orders in which prompts list options, for one set of residents."""
    # All levels of a set have the same orders, because levels are compared within sets. The five
    # stances form a scale, so only its direction is drawn.
    rng = generator(seed, ("town_hall", f"set{set_number:02d}", "options"))

    def permute_options(options: Sequence[str]) -> tuple[str, ...]:
        return tuple(options[index] for index in rng.permutation(len(options)))

    return OptionOrders(
        stances=STANCES[::-1] if rng.integers(2) else STANCES,
        feelings=permute_options(FEELINGS),
        interactions=permute_options(INTERACTIONS),
        changes=permute_options(CHANGES),
        votes=permute_options(VOTES),
    )
