"""Export in TripCraft's input format: one CSV row per group, as its planners read them.

Columns are those of TripCraft's query files (Chaudhuri et al., ACL 2025, arXiv:2502.20508); the
reference information of the user's own trip file is passed through untouched.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folkmoot.errors import InputError, Problem
from folkmoot.files import read_csv
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.decision import SlotDecision
from folkmoot.studies.negotiation.polarity import words_of
from folkmoot.studies.negotiation.room import Room

COLUMNS = (
    *("org", "dest", "days", "visiting_city_number", "date", "people_number"),
    *("local_constraint", "budget", "query", "level", "persona"),
)
REFERENCE = "reference_information"
PERSONA_FIELDS = (
    ("Traveler Type", "traveler_type"),
    ("Purpose of Travel", "travel_purpose"),
    ("Spending Preference", "spending_preference"),
)
# The words that TripCraft's constraints know, by topic; an option maps to those it shares words
# with. What has no counterpart is no constraint there; the query says it in words.
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
Trips = Sequence[Mapping[str, str]]


def read_trips(config: NegotiationConfig, folder: Path) -> Trips:
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
    columns, rows = read_csv(text)
    unknown = [c for c in columns if not _is_column(c)]
    if not rows or unknown:
        what = f"unknown column `{unknown[0]}`" if unknown else "holds no row"
        known = ", ".join(("group_id", *COLUMNS, f"{REFERENCE}[_N]"))
        raise InputError(Problem(what, file=str(path), key="trip.file", mend=f"columns: {known}"))
    return [row for _, row in rows]


def _is_column(name: str) -> bool:
    stem = name.rsplit("_", 1)[0] if name.rsplit("_", 1)[-1].isdigit() else name
    return name in COLUMNS or name == "group_id" or stem == REFERENCE


def trip_of(trips: Trips, group_id: str, index: int) -> Mapping[str, str]:
    """The trip of a group: its own by `group_id`, else dealt in turn."""
    own = next((t for t in trips if t.get("group_id") == group_id), None)
    return own or (trips[index % len(trips)] if trips else {})


def row(room: Room, decisions: Sequence[SlotDecision], trip: Mapping[str, str]) -> dict[str, Any]:
    """One group as TripCraft's planner reads it."""
    config = room.config
    by_topic = {d.topic: d for d in decisions}
    dates = trip.get("date") or str(list(config.trip.date))
    references = {k: v for k, v in trip.items() if k.startswith(REFERENCE)}
    days = trip.get("days") or config.days
    org, dest = trip.get("org") or config.trip.org, trip.get("dest") or config.trip.dest
    budget = trip.get("budget") or ("" if config.trip.budget is None else config.trip.budget)
    return {
        "org": org,
        "dest": dest,
        "days": days,
        "visiting_city_number": (
            trip.get("visiting_city_number") or config.trip.visiting_city_number
        ),
        "date": dates,
        "people_number": len(room.group.members),
        # TripCraft's readers take a Python literal here.
        "local_constraint": repr(constraints(by_topic, config.trip.transportation)),
        "budget": budget,
        "query": room.seen(query(room, by_topic, (org, dest), days, budget)),
        "level": trip.get("level") or config.trip.level,
        "persona": room.seen(persona_line(by_topic, config.trip.location_preference)),
        **(references or {REFERENCE: config.trip.reference_information}),
    }


def persona_line(by_topic: Mapping[str, SlotDecision], location: str = "") -> str:
    """The four-field line: type, purpose, spending, location (by default the attractions)."""
    fields = [f"{name}: {_told(by_topic[topic])}" for name, topic in PERSONA_FIELDS]
    return "; ".join([*fields, f"Location Preference: {location or _told(by_topic['attraction'])}"])


def _told(decision: SlotDecision) -> str:
    """The options that a decision gives, first the selected one, in title case."""
    first = [decision.selected_option] if decision.selected_option else []
    options = dict.fromkeys([*first, *(p.option for p in decision.portions)])
    return " / ".join(o.title() for o in options) or "Any"


def constraints(by_topic: Mapping[str, SlotDecision], transportation: str | None) -> dict[str, Any]:
    """TripCraft's local constraints of what was decided; None where it has no word for it."""

    def known(topic: str) -> list[str]:
        return [w for w in (_known(topic, p.option) for p in by_topic[topic].portions) if w]

    def unique(topic: str) -> list[str] | None:
        return list(dict.fromkeys(known(topic))) or None

    def first(topic: str) -> str | None:
        return next(iter(known(topic)), None)

    return {
        "house rule": first("house_rule"),
        "cuisine": unique("cuisine"),
        "room type": first("room_type"),
        "transportation": transportation,
        "event": unique("event"),
        "attraction": unique("attraction"),
    }


def _known(topic: str, option: str) -> str | None:
    if option in _ALIKE:
        return _ALIKE[option]
    own = set(words_of(option))
    # "no smoking" asks for a place without it, which TripCraft's rule words cannot say.
    if topic == "house_rule" and "no" in own:
        return None
    best = max(KNOWN[topic], key=lambda w: len(own & set(words_of(w)) - {"and"}))
    return best if own & set(words_of(best)) - {"and"} else None


def query(
    room: Room,
    by_topic: Mapping[str, SlotDecision],
    way: tuple[str, str],
    days: Any,
    budget: Any,
) -> str:
    """The request in words, with every decision's resolution."""
    size = len(room.group.members)
    where = "".join(
        f" {to} {place}" for to, place in zip(("from", "to"), way, strict=True) if place
    )
    money = f" with a budget of ${budget}" if budget not in ("", None) else ""
    head = (
        f"Please plan a {days}-day trip{where} for a group of {size} "
        f"({room.group.type.title.lower()}){money}."
    )
    said = [
        f"{t.label.capitalize()}: {_sentence(by_topic[t.id].resolution_text)}"
        for t in room.topics
        if by_topic[t.id].resolution_text
    ]
    return " ".join([head, *said])


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text[-1:] in ".!?" else f"{text}."


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV text; columns in TripCraft's order, then the reference columns."""
    references = list(dict.fromkeys(k for r in rows for k in r if k.startswith(REFERENCE)))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*COLUMNS, *references], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
