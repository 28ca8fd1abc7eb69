"""A town that asks its people what to build: votes, interviews, dialogues in words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from folkmoot.models.request import Message, ProviderSettings, Request, RespondentHints, StudyPart
from folkmoot.respondent import Mind, Part, Respondent
from folkmoot.respondent.reading import read

OPTIONS = ("A covered market", "Free evening buses", "A public swimming pool")
JOBS = (
    "a retired bus driver", "a primary school cook", "a tax clerk", "a violin maker",
    "a night nurse", "a forester", "a hairdresser with two sons", "a software tester",
    "a butcher", "a museum guard", "a law student", "a roofer",
)  # fmt: skip
FINAL = "What is it in the end?"
# Arguments of each camp, in whole sentences; each has at least two argument words.
CARE = "dignity for people who are struggling and trust and friendship between neighbours"
PRUDENCE = "evidence on costs and savings and upkeep we can afford"
ENTERPRISE = "growth that lifts wages and rewards for effort and initiative"


def persona(n: int) -> str:
    return f"{JOBS[n % len(JOBS)]} who lives at number {n} of the long street."


def system(who: str, held: str = "", options: tuple[str, ...] = OPTIONS) -> str:
    listed = "\n".join(f"- {o}" for o in options)
    before = f'\n\nBefore, it was "{held}".' if held else ""
    return f"You are {who}\n\nThe town has a legacy. What shall it build?\n\n{listed}{before}"


def page(of: tuple[str, ...] = OPTIONS) -> str:
    """What others think of the options, each for the reasons of all camps."""
    return "\n\n".join(f"{o}: its friends name {CARE}, {PRUDENCE}, {ENTERPRISE}." for o in of)


@dataclass
class Town:
    """A respondent and its people."""

    seed: int = 0
    knobs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        part = Part(names=lambda config: config.options)
        study = StudyPart(part, SimpleNamespace(options=OPTIONS))
        settings = ProviderSettings(seed=self.seed, options=dict(self.knobs), study=study)
        self.model = Respondent(settings)

    def request(self, asked: RespondentHints, told: str, *turns: str, **more: object) -> Request:
        """`turns` alternate user, assistant, …, and end with the user."""
        messages = [Message("system", told)] if told else []
        for k, text in enumerate(turns):
            messages.append(Message("assistant" if k % 2 else "user", text))
        return Request("synthetic/x", tuple(messages), asked=asked, **more)  # type: ignore[arg-type]

    def vote(
        self,
        n: int,
        *turns: str,
        held: str = "",
        at: str = "vote",
        options: tuple[str, ...] = OPTIONS,
    ) -> str:
        asked = RespondentHints("participant", persona(n), "choice", options)
        told = system(persona(n), held, options)
        return self.model.reply(self.request(asked, told, *(turns or (FINAL,))), f"{at}/{n}").text

    def says(self, n: int, held: str, *turns: str, at: str = "talk") -> str:
        asked = RespondentHints("participant", persona(n), "text")
        return self.model.reply(
            self.request(asked, system(persona(n), held), *turns), f"{at}/{n}/{len(turns)}"
        ).text

    def leads(self, told: str, *turns: str, role: str = "moderator", at: str = "m") -> str:
        asked = RespondentHints(role, "", "text")
        return self.model.reply(self.request(asked, told, *turns), f"{at}/{len(turns)}").text

    def mind(self, n: int, *turns: str, held: str = "") -> Mind:
        """The mind of somebody at a vote."""
        asked = RespondentHints("participant", persona(n), "choice", OPTIONS)
        request = self.request(asked, system(persona(n), held), *turns)
        return self.model.mind(read(request, "x"), "x")
