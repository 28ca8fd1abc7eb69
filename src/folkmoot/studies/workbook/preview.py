"""What `folkmoot check --preview` prints: the first prompt of every role in every treatment and
permutation, in the words that the run would send."""

from __future__ import annotations

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import EMPTY, messages_for
from folkmoot.engine.study import Preview
from folkmoot.models.images import shown_in
from folkmoot.randomness import generator
from folkmoot.studies.workbook.asking import by_facilitator, put_to, wording
from folkmoot.studies.workbook.config import WorkbookConfig
from folkmoot.studies.workbook.experiments import TaskInPlay, experiments
from folkmoot.studies.workbook.participants import Seat
from folkmoot.studies.workbook.placeholders import in_order
from folkmoot.studies.workbook.protocol import ordered_tasks, sessions_of
from folkmoot.studies.workbook.room import Room, participant, special

STORY = "(Here stands the story of this person, which a model writes when the run starts.)"
SAID = "what was said before is left out; it stands before the last message"
NOT_YET = "answers that nobody has given yet read “not available”"


def preview(config: WorkbookConfig, prompts: PromptLibrary) -> list[Preview]:
    """By permutation, treatment and role: what the first speaker of that role is asked first."""
    found: list[Preview] = []
    for experiment in experiments(config.workbook):
        computed = in_order(experiment.workbook.computed)
        seen: set[tuple[str, str]] = set()
        for plan in sessions_of(config, experiment):
            order = ordered_tasks(experiment, plan, config.random_seed)
            room = Room(experiment, plan, order, computed, config.reasks)
            speakers: list[Seat | str] = [*plan.seats, *room.specials]
            for who in speakers:
                arm = (plan.treatment, who.role if isinstance(who, Seat) else who)
                task = _first_task(room, who)
                if task is not None and arm not in seen:
                    seen.add(arm)
                    found.append(_prompt(config.random_seed, prompts, room, task, who))
    return found


def _first_task(room: Room, who: Seat | str) -> TaskInPlay | None:
    """The first task that is put to a speaker, in the order of its session."""
    return next((task for task in _asked(room) if who in room.in_play(task)), None)


def _asked(room: Room) -> list[TaskInPlay]:
    return [task for task in room.order if task.task.type != "context"]


def _prompt(
    seed: int, prompts: PromptLibrary, room: Room, task: TaskInPlay, who: Seat | str
) -> Preview:
    experiment, task_id = room.experiment, task.task.task_id
    heard = EMPTY
    question = wording(room, task, who, "")
    if isinstance(who, Seat):
        told = STORY if experiment.workbook.settings.include_backstories else ""
        speaker = participant(prompts.render, room, who, told)
        session = f"{experiment.id}.{room.plan.number}"
        rng = generator(seed, ("sessions", session, task_id, who.id))
        put = put_to(prompts.render, rng, room, task, who)
        prompt, images = put.prompt, put.images
        if task.task.type == "discussion":
            heard = EMPTY + by_facilitator(question.text, task, question.images)
    else:
        speaker = special(prompts.render, room, who)
        prompt, images = question.text, question.images
    messages = messages_for(speaker, heard, prompt)
    constants = ", ".join(f"{name} = {value}" for name, value in experiment.constants.items())
    role = who.role if isinstance(who, Seat) else who
    place = f"task {task_id} of session {room.plan.label}"
    title = " · ".join(filter(None, (experiment.id, constants, room.plan.treatment, role, place)))
    first = task is _asked(room)[0]
    notes = [] if first and room.in_play(task)[0] is who else [SAID]
    notes += [] if first else [NOT_YET]
    images = shown_in({*speaker.images, *images}, messages)
    return Preview(title, messages, images, "; ".join(notes))
