"""Export in TripCraft's input format: one CSV row per group, as its planners read them.

Columns are those of TripCraft's query files (Chaudhuri et al., ACL 2025, arXiv:2502.20508); the
reference information of the user's own trip file is passed through untouched.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.decision import Negotiation, SlotDecision, sentence
from folkmoot.studies.negotiation.tally import words_of

COLUMNS = (
    *("org", "dest", "days", "visiting_city_number", "date", "people_number"),
    *("local_constraint", "budget", "query", "level", "persona"),
)
REFERENCE = "reference_information"
_COLUMN = re.compile(rf"{'|'.join((*COLUMNS, 'group_id', REFERENCE))}(?:_\d+)?")
PERSONA_FIELDS = (
    ("Traveler Type", "traveler_type"),
    ("Purpose of Travel", "travel_purpose"),
    ("Spending Preference", "spending_preference"),
)
# The words that TripCraft's constraints know, by topic; an option maps to those it shares words
# with. What has no counterpart is left out there; the query says it in words.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "cuisine": ("Chinese", "American", "Italian", "Mexican", "Indian", "Mediterranean", "French"),
    "event": ("Sports", "Arts & Theatre", "Music", "Film"),
    "attraction": (
        *("Boat Tours & Water Sports", "Casinos & Gambling", "Classes & Workshops"),
        *("Concerts & Shows", "Food & Drink", "Fun & Games", "Museums", "Nature & Parks"),
        *("Nightlife", "Outdoor Activities", "Shopping", "Sights & Landmarks", "Spas & Wellness"),
        *("Water & Amusement Parks", "Zoos & Aquariums"),
    ),
    "room_type": ("shared room", "not shared room", "private room", "entire room"),
    "house_rule": ("smoking", "parties", "children under 10", "visitors", "pets"),
}
_ALIKE: Mapping[str, str] = {
    "concert": "Music",
    "theatre": "Arts & Theatre",
    "comedy": "Arts & Theatre",
    "entire home": "entire room",
    "adjoining rooms": "not shared room",
    "pets allowed": "pets",
    "visitors allowed": "visitors",
    "children welcome": "children under 10",
}
_SPENDING = {"economical": "Economical Traveler", "luxury": "Luxury Traveler"}
Trip = Mapping[str, Any]  # a row of such a file, ours or the user's


def read_trips(config: NegotiationConfig, folder: Path) -> Sequence[Trip]:
    """The rows of the user's trip file, [] if there is none. Raises InputError."""
    if config.trip.file is None:
        return []
    path = path_in(folder, config.trip.file)
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path}", key="trip.file"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("is not UTF-8", file=str(path), key="trip.file")) from error
    columns, lines = read_csv(text)
    rows = [row for _, row in lines]
    unknown = [c for c in columns if not _COLUMN.fullmatch(c)]
    if not rows or unknown:
        what = f"unknown column `{unknown[0]}`" if unknown else "holds no row"
        known = ", ".join(("group_id", *COLUMNS, f"{REFERENCE}[_N]"))
        raise InputError(Problem(what, file=str(path), key="trip.file", hint=f"columns: {known}"))
    return rows


def trip_of(trips: Sequence[Trip], group_id: str, index: int) -> Trip:
    """The trip of a group: its own by `group_id`, else dealt in turn."""
    own = next((t for t in trips if t.get("group_id") == group_id), None)
    return own or (trips[index % len(trips)] if trips else {})


def row(case: Negotiation, decisions: Sequence[SlotDecision], trip: Trip) -> Trip:
    """One group as TripCraft's planner reads it."""
    config, by_topic = case.config, {d.topic: d for d in decisions}
    made_up = config.trip
    budget = "" if made_up.budget is None else made_up.budget
    stated: dict[str, Any] = {
        "org": trip.get("org") or made_up.org,
        "dest": trip.get("dest") or made_up.dest,
        "days": trip.get("days") or config.days,
        "visiting_city_number": trip.get("visiting_city_number") or made_up.visiting_city_number,
        "date": trip.get("date") or str(list(made_up.date)),
        "people_number": len(case.group.members),
        # TripCraft's readers take a Python literal here.
        "local_constraint": repr(constraints(by_topic, made_up.transportation)),
        "budget": trip.get("budget") or budget,
    }
    persona = persona_line(by_topic, made_up.location_preference)
    references = {k: v for k, v in trip.items() if k.startswith(REFERENCE)}
    return {
        **stated,
        "query": query(case, by_topic, stated),
        "level": trip.get("level") or made_up.level,
        "persona": persona,
        **(references or {REFERENCE: made_up.reference_information}),
    }


def persona_line(by_topic: Mapping[str, SlotDecision], location: str = "") -> str:
    """The four-field line: type, purpose, spending, location (by default the attractions)."""
    fields = [f"{name}: {_told(by_topic[topic])}" for name, topic in PERSONA_FIELDS]
    return "; ".join([*fields, f"Location Preference: {location or _told(by_topic['attraction'])}"])


def _told(decision: SlotDecision) -> str:
    """The options that a decision gives, first the selected one, in title case."""
    first = [decision.selected_option] if decision.selected_option else []
    options = dict.fromkeys([*first, *(p.option for p in decision.portions)])
    return " / ".join(_SPENDING.get(o, o.title()) for o in options) or "Any"


def constraints(by_topic: Mapping[str, SlotDecision], transportation: str | None) -> dict[str, Any]:
    """TripCraft's local constraints of what was decided; None where it has no word for it."""

    def known(topic: str) -> list[str] | None:
        words = (_known(topic, p.option) for p in by_topic[topic].portions)
        return list(dict.fromkeys(w for w in words if w)) or None

    def first(topic: str) -> str | None:
        return next(iter(known(topic) or ()), None)

    return {
        "house rule": first("house_rule"),
        "cuisine": known("cuisine"),
        "room type": first("room_type"),
        "transportation": transportation,
        "event": known("event"),
        "attraction": known("attraction"),
    }


def _known(topic: str, option: str) -> str | None:
    if option in _ALIKE:
        return _ALIKE[option]
    own = set(words_of(option)) - {"and"}
    # "no smoking" asks for a place without it, which TripCraft's rule words cannot say.
    if topic == "house_rule" and "no" in own:
        return None
    best = max(KNOWN[topic], key=lambda w: len(own & set(words_of(w))))
    return best if own & set(words_of(best)) else None


def query(case: Negotiation, by_topic: Mapping[str, SlotDecision], stated: Trip) -> str:
    """The request in words, with every decision's resolution."""
    way = "".join(f" {to} {stated[k]}" for to, k in (("from", "org"), ("to", "dest")) if stated[k])
    money = f" with a budget of ${stated['budget']}" if stated["budget"] != "" else ""
    size, kind = len(case.group.members), case.group.type.title.lower()
    said = [
        f"{t.label.capitalize()}: {sentence(by_topic[t.id].resolution_text)}"
        for t in case.topics
        if by_topic[t.id].resolution_text
    ]
    head = f"Please plan a {stated['days']}-day trip{way} for a group of {size} ({kind}){money}."
    return " ".join([head, *said])


def to_csv(rows: Sequence[Trip]) -> str:
    """The rows as CSV text; columns in TripCraft's order, then the reference columns."""
    references = list(dict.fromkeys(k for r in rows for k in r if k.startswith(REFERENCE)))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*COLUMNS, *references], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
