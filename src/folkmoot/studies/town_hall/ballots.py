"""The ballot, the votes on it, and the satisfaction survey: numbers and choices, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from folkmoot.conversation.answers import Json, Reading
from folkmoot.studies.town_hall.answers import Record, Words
from folkmoot.studies.town_hall.repairs import Repairer, listed, spelled, text, whole


class PlannedItem(Record):
    """One point to be decided."""

    proposal: str = Field(description="worded so that yes means to do it", min_length=1)
    reasoning: Words
    originating_residents: tuple[Words, ...] = Field(description="ids of those who raised it")

    @field_validator("originating_residents", mode="before")
    @classmethod
    def _listed(cls, raw: Any) -> Any:
        return listed(raw)


class Planned(Record):
    """What the planner is asked for."""

    items: tuple[PlannedItem, ...] = Field(min_length=1)

    @field_validator("items", mode="before")
    @classmethod
    def _objects(cls, raw: Any) -> Any:
        return [i for i in raw if isinstance(i, Mapping)] if isinstance(raw, list) else raw

    @field_validator("items")
    @classmethod
    def _distinct(
        cls, items: tuple[PlannedItem, ...], info: ValidationInfo
    ) -> tuple[PlannedItem, ...]:
        """Bad ids, repeated items and items beyond `most` are dropped and noted."""
        repairer = Repairer.of(info)
        kept: dict[str, PlannedItem] = {}
        for item in items:
            wording = " ".join(item.proposal.split())
            if wording.casefold() in kept:
                repairer.note("items", "repeated", item.proposal)
            elif len(kept) == repairer.asked.most:
                repairer.note("items", "too_many", item.proposal)
            else:
                where = "items.originating_residents"
                origin = tuple(sorted(repairer.targets(item.originating_residents, where)))
                if not origin:
                    repairer.note(where, "no_origin", f"V{len(kept) + 1}")
                known = {"proposal": wording, "originating_residents": origin}
                kept[wording.casefold()] = item.model_copy(update=known)
        return tuple(kept.values())


@dataclass(frozen=True, slots=True)
class Item:
    """One binary decision on the ballot and the residents whose words it goes back to."""

    id: str
    text: str
    reasoning: str
    origin: tuple[str, ...]


VOTES = ("yes", "no")
_YES_NO = {"true": "yes", "approve": "yes", "for": "yes", "in_favour": "yes", "false": "no"}
_YES_NO |= {"reject": "no", "against": "no"}


class Ballot(BaseModel):
    """One resident's votes (item id → yes or no) and reasons; an item left out was not voted on."""

    votes: dict[str, str] = {}
    reasons: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _on_each(cls, raw: Any, info: ValidationInfo) -> Any:
        """An item without a clear yes or no is refused."""
        reading = Reading.of(info)
        if reading.about is None:
            return raw
        votes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        by_key = {str(k).strip().casefold(): v for k, v in raw.items()}
        for item in reading.about:
            entry = by_key.get(item.casefold())
            entry = entry if isinstance(entry, Mapping) else {"vote": entry}
            said = entry.get("vote")
            vote = yes_or_no(said)
            if vote is None:
                raise ValueError(f"{item} has no vote of yes or no. Vote on every item")
            if vote != said:
                reading.repaired(f"{item}.vote", "spelling", text(said), vote)
            votes[item], reasons[item] = vote, text(entry.get("reason"))
        return {"votes": votes, "reasons": reasons}


NO_BALLOT = Ballot()


def ballot(items: Sequence[Item]) -> Json[Ballot]:
    """A vote with a reason on each item."""
    one = {
        "title": "Vote",
        "type": "object",
        "properties": {
            "vote": {"type": "string", "enum": list(VOTES)},
            "reason": {"type": "string"},
        },
        "required": ["vote", "reason"],
    }
    refs = {i.id: {"$ref": "#/$defs/Vote"} for i in items}
    schema = {
        "title": "Ballot",
        "type": "object",
        "properties": refs,
        "required": list(refs),
        "$defs": {"Vote": one},
    }
    return Json(Ballot, about=tuple(refs), schema=schema)


def yes_or_no(raw: Any) -> str | None:
    """`yes` or `no`, also when written as true, "Yes." or against; None for anything else."""
    folded = str(raw).strip().casefold().replace(" ", "_") if raw is not None else ""
    return spelled(_YES_NO.get(folded.strip("."), raw), VOTES)


class Satisfaction(Record):
    """One resident's satisfaction at one time; None where it could not be read."""

    satisfaction: Annotated[int, Field(ge=1, le=10)] | None
    reason: Words

    @field_validator("satisfaction", mode="before")
    @classmethod
    def _score(cls, said: Any, info: ValidationInfo) -> Any:
        """A score out of range is asked for again, never moved to the nearest."""
        score = whole(said, 10)
        if score is None:
            raise ValueError("must be a whole number from 1 to 10")
        if not isinstance(said, int):
            Repairer.of(info).note("satisfaction", "spelling", said, str(score))
        return score


SATISFACTION = Json(
    Satisfaction,
    schema={
        "title": "Satisfaction",
        "type": "object",
        "properties": {
            "satisfaction": {"type": "integer", "minimum": 1, "maximum": 10},
            "reason": {"type": "string"},
        },
        "required": ["satisfaction", "reason"],
    },
)
UNKNOWN = Satisfaction.model_construct(satisfaction=None, reason="")
