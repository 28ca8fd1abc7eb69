"""Context: what everybody is told before anything is asked, as the system message."""

from __future__ import annotations

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.workbook.assignment import Seat, hidden_columns
from folkmoot.studies.workbook.model import FACILITATOR, Workbook
from folkmoot.studies.workbook.room import Room
from folkmoot.studies.workbook.templates import render


async def open_room(scope: Scope, room: Room) -> None:
    """Give every speaker its system message; write backstories where the workbook wants them."""
    stories: dict[str, str] = {}
    if room.experiment.workbook.settings.include_backstories:
        # Two names deep, so that no task_id can have the same address.
        stories = await scope.at("before", "backstories").each(
            room.seats, lambda s, seat: _backstory(s, room, seat)
        )
    for seat in room.seats:
        room.speakers[seat.id] = participant(scope, room, seat, stories.get(seat.id, ""))
    for label in room.specials:
        room.speakers[label] = special(scope, room, label)


def profile_of(workbook: Workbook, row: int) -> list[dict[str, str]]:
    """A persona as questions and answers: no identifier, no assignment, no blank."""
    profiles = workbook.profiles
    hidden = hidden_columns(workbook.settings, profiles)
    return [
        {"question": profiles.questions[i], "answer": answer}
        for i, answer in enumerate(profiles.rows[row])
        if answer and i not in hidden
    ]


def profile_columns(workbook: Workbook, row: int) -> dict[str, str]:
    """A respondent's row as in the sheet, by short name, without the identifier."""
    profiles = workbook.profiles
    return {
        name: profiles.rows[row][i]
        for i, name in enumerate(profiles.names)
        if i != profiles.id_column
    }


async def _backstory(scope: Scope, room: Room, seat: Seat) -> str:
    prompt = scope.prompt("backstory", profile=profile_of(room.experiment.workbook, seat.row))
    told = await scope.ask(Speaker(seat.id, seat.name, "biographer"), prompt)
    return "" if isinstance(told, Missing) else told


def participant(scope: Scope, room: Room, seat: Seat, backstory: str) -> Speaker:
    """A participant with its system message: persona, role, treatment, context."""
    settings = room.experiment.workbook.settings
    role = room.experiment.roles[seat.role]
    values = room.fillings(seat, ())
    system = scope.prompt(
        "system",
        called=seat.name,
        profile=profile_of(room.experiment.workbook, seat.row) if settings.show_profile else [],
        backstory=backstory,
        role=render(role.description, values).strip(),
        treatment=_treatment(room),
        context=_context(room, seat),
        facilitator=FACILITATOR,
    )
    return Speaker(seat.id, seat.name, "participant", system)


def special(scope: Scope, room: Room, label: str) -> Speaker:
    """The Facilitator or the Summarizer, as a model plays it where the workbook gives it words."""
    role = room.experiment.special(label)
    assert role is not None, "only roles that are defined are made"
    system = scope.prompt(
        "special",
        label=label,
        role=render(role.description, room.fillings(label, ())).strip(),
        treatment=_treatment(room),
        context=_context(room, label),
    )
    return Speaker(label, label, label.lower(), system)


def _treatment(room: Room) -> str:
    treatment = room.experiment.treatments.get(room.plan.treatment)
    if treatment is None or not room.experiment.workbook.settings.treatment_in_system:
        return ""
    return treatment.description


def _context(room: Room, who: Seat | str) -> str:
    """All contexts meant for this speaker, in the session's order."""
    texts: list[str] = []
    for task in room.experiment.tasks.values():
        if task.task.type != "context":
            continue
        label = who.role if isinstance(who, Seat) else who
        by_special = {k.casefold(): v for k, v in task.prompts.items()}
        text = task.prompts.get(label) or by_special.get(label.casefold())
        if text is None and task.shared:
            text = next(iter(task.prompts.values()), None)  # plain text is meant for all
        if text is not None:
            texts.append(render(text, room.fillings(who, ())).strip())
    return "\n\n".join(texts)
