"""A survey before and after a deliberation: do people who agree on reasons agree on what to do?

Everybody rates considerations and ranks policies, the group talks, and everybody answers again. The
measure is the Deliberative Reason Index (Niemeyer and Veri 2022) of each group, before and after.
"""

from collections.abc import Sequence
from math import isnan

from folkmoot import (
    Choice,
    Field,
    Finding,
    Missing,
    Number,
    ResultTable,
    Row,
    RunFolder,
    Scope,
    Session,
    Speaker,
    Study,
    StudyConfig,
    Transcript,
    Utterance,
    column,
    find_persona_source,
)
from folkmoot.measures.dri import consistency, group_dri


class Survey(StudyConfig):
    """The keys of the study file, besides those that all studies share."""

    case: str = Field(description="what is deliberated, as every participant reads it")
    considerations: list[str] = Field(description="reasons to rate")
    policies: list[str] = Field(description="policies to rank")
    groups: int = Field(5, ge=1, description="number of groups")
    group_size: int = Field(8, ge=2, description="participants in a group")
    rounds: int = Field(2, ge=1, description="rounds of talk between the two waves of the survey")


class Answer(Row, table="survey"):
    """What one participant answered to one item of the survey."""

    group: int
    participant_id: str
    wave: str = column("before or after the deliberation")
    item: str = column("C1, C2, … a consideration; P1, P2, … a policy")
    value: float | None = column("rating from 1 to 7, or rank from 1 (first); empty if unreadable")


async def protocol(session: Session[Survey]) -> None:
    config = session.config
    size = config.groups * config.group_size
    people = [
        Speaker(p.id, p.name, system=f"You are {p.text}\n\n{config.case}")
        for p in find_persona_source("quota")(size, session.child("people").rng)
    ]
    groups = {f"group_{n + 1}": people[n :: config.groups] for n in range(config.groups)}
    await session.map(groups, deliberation)


async def deliberation(scope: Scope, group: list[Speaker]) -> None:
    number = int(scope.path[-1].removeprefix("group_"))
    config = scope.root.config
    await scope.child("before").map(group, lambda s, who: survey(s, who, number, Transcript()))

    async def speak(turn: Scope, who: Speaker, heard: Transcript) -> Utterance | None:
        prompt = "Say what weighs with you, and answer the others."
        said = await turn.ask(who, prompt, history=heard, about=config.case)
        return None if isinstance(said, Missing) else Utterance(who.id, said, who.name)

    heard = Transcript()
    for n in range(config.rounds):
        order = [group[i] for i in scope.rng.permutation(len(group))]
        heard = await scope.child(f"round{n + 1}").take_turns(order, speak, heard)
    await scope.child("after").map(group, lambda s, who: survey(s, who, number, heard))


async def survey(scope: Scope, who: Speaker, group: int, heard: Transcript) -> None:
    config, wave = scope.root.config, scope.path[-2]

    def record(item: str, value: float | Missing | None) -> None:
        known = None if isinstance(value, Missing) else value
        scope.record(Answer(group=group, participant_id=who.id, wave=wave, item=item, value=known))

    for n, text in enumerate(config.considerations, 1):
        ask = f"How far do you agree, from 1 (not at all) to 7 (fully)? “{text}”"
        record(
            f"C{n}", await scope.ask(who, ask, history=heard, answer_type=Number(1, 7), about=text)
        )
    left, ranks = list(config.policies), dict.fromkeys(config.policies)
    for rank in range(1, len(config.policies)):
        listed = "\n".join(f"- {policy}" for policy in left)
        ask = f"Which of these would you put {'first' if rank == 1 else 'next'}?\n{listed}"
        chosen = await scope.ask(
            who, ask, history=heard, answer_type=Choice(left), about=config.case
        )
        if isinstance(chosen, Missing):
            break
        ranks[chosen] = rank
        left.remove(chosen)
    else:
        ranks[left[0]] = len(config.policies)
    for n, policy in enumerate(config.policies, 1):
        record(f"P{n}", ranks[policy])


def index(run: RunFolder, group: int, wave: str) -> float:
    """The Deliberative Reason Index of one group in one wave; people with gaps are left out."""
    rows = run.read_table("survey").rows(named=True)
    people: dict[str, dict[str, float]] = {}
    for row in rows:
        if (row["group"], row["wave"]) == (group, wave) and row["value"] is not None:
            people.setdefault(row["participant_id"], {})[row["item"]] = row["value"]
    items = sorted({row["item"] for row in rows})
    whole = [own for own in people.values() if len(own) == len(items)]

    def part(kind: str) -> list[Sequence[float]]:
        return [[own[item] for item in items if item[0] == kind] for own in whole]

    return group_dri(consistency(part("C"), part("P"))) if len(whole) > 1 else float("nan")


def findings(run: RunFolder) -> list[Finding]:
    groups = sorted(set(run.read_table("survey")["group"]))
    rows = [(g, index(run, g, "before"), index(run, g, "after")) for g in groups]
    known = [(before, after) for _, before, after in rows if not isnan(before + after)]
    risen = sum(after > before for before, after in known)
    says = f"The index was higher after than before in {risen} of {len(known)} groups. Not tested."
    if unknown := len(rows) - len(known):
        says += f" It is not known before and after in {unknown} more."
    grid = ResultTable(("group", "before", "after"), tuple(rows))
    return [
        Finding(
            "dri",
            "Deliberative Reason Index",
            says,
            grid,
            headline=True,
            unit="group",
            units=len(known),
        )
    ]


STUDY = Study(
    "deliberation_survey",
    "Survey before and after a deliberation",
    Survey,
    protocol,
    findings=findings,
    tables=(Answer,),
    # Members of a group hear each other, so their replies are no independent units.
    reply_unit=lambda row: row["stage"],
    reply_unit_name="group",
)
