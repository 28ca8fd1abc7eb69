"""A town that asks what to build: prompts for votes, interviews and dialogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from folkmoot.conversation.transcript import Speaker, Transcript, Utterance, build_messages
from folkmoot.models.request import ModelRequest, ProviderSettings, RespondentHints, StudyPart
from folkmoot.provenance import Quoted, SourcedText, concatenate_texts, join_texts, quote_value
from folkmoot.respondent import Respondent, RespondentPart, SimulatedRespondent
from folkmoot.respondent.mind.reading import read_prompt

OPTIONS = ("A covered market", "Free evening buses", "A public swimming pool")
JOBS = (
    "a retired bus driver", "a primary school cook", "a tax clerk", "a violin maker",
    "a night nurse", "a forester", "a hairdresser with two sons", "a software tester",
    "a butcher", "a museum guard", "a law student", "a roofer",
)  # fmt: skip
FINAL_QUESTION = "What is it in the end?"
# Arguments of each camp, in whole sentences; each has at least two argument words.
CARE = "dignity for people who are struggling and trust and friendship between neighbours"
PRUDENCE = "evidence on costs and savings and upkeep we can afford"
ENTERPRISE = "growth that lifts wages and rewards for effort and initiative"
MODERATOR = "moderator"


def make_prompt(*parts: object) -> SourcedText:
    """Return a prompt like those of templates. Plain strings are instructions."""
    return concatenate_texts(parts, plain=None)


def make_persona(index: int) -> str:
    return f"{JOBS[index % len(JOBS)]} who lives at number {index} of the long street."


def make_card(number: int) -> Quoted:
    return Quoted(
        make_persona(number),
        quote_value(make_persona(number), "persona", f"people.text/{number}", f"p{number}").source,
    )


def list_options(options: Sequence[str] = OPTIONS) -> SourcedText:
    return join_texts(
        "\n", (make_prompt("- ", quote_value(o, "option", "study.options")) for o in options)
    )


def make_system_prompt(
    number: int, held: str = "", options: tuple[str, ...] = OPTIONS
) -> SourcedText:
    before = make_prompt(
        '\n\nBefore, it was "',
        quote_value(held, "answer", f"first/{number}/ask0", f"p{number}"),
        '".',
    )
    head = make_prompt(
        "You are ", make_card(number), "\n\nThe town has a legacy. What shall it build?\n\n"
    )
    return make_prompt(head, list_options(options), before if held else "")


def make_page(of: Sequence[str] = OPTIONS) -> SourcedText:
    """Return summaries of the options with reasons of all camps."""
    told = {o: f"{o}: its friends name {CARE}, {PRUDENCE}, {ENTERPRISE}." for o in of}
    return join_texts(
        "\n\n", (quote_value(t, "summary", f"clusters.text/{o}") for o, t in told.items())
    )


def make_page_and_vote(of: Sequence[str] = OPTIONS) -> SourcedText:
    """Return a page of summaries and the question of the vote."""
    return make_prompt(make_page(of), "\n\n", FINAL_QUESTION)


def make_transcript(number: int, *turns: str, at: str = "talk") -> Transcript:
    """Return a transcript in which a moderator and a participant alternate."""
    who = (MODERATOR, f"p{number}")
    return Transcript(
        tuple(
            Utterance(who[k % 2], text, id=f"{at}/{number}/ask{k}")
            for k, text in enumerate(turns)
            if text
        )
    )


@dataclass
class Town:
    """A respondent and the requests of its participants."""

    seed: int = 0
    knobs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        part = RespondentPart(option_names=lambda config: config.options)
        study = StudyPart(part, SimpleNamespace(options=OPTIONS))
        settings = ProviderSettings(seed=self.seed, options=dict(self.knobs), study=study)
        self.model = Respondent(settings)

    def request(
        self,
        hints: RespondentHints,
        told: str = "",
        asked: str = "",
        heard: Transcript | None = None,
        **more: Any,
    ) -> ModelRequest:
        speaker = Speaker(hints.speaker, role=hints.role, system=told)
        built = build_messages(speaker, heard or Transcript(), make_prompt(asked))
        return ModelRequest("synthetic/x", built.messages, hints=hints, spans=built.spans, **more)

    def voting(
        self,
        number: int,
        *turns: str,
        held: str = "",
        options: tuple[str, ...] = OPTIONS,
        asked: str = FINAL_QUESTION,
    ) -> ModelRequest:
        hints = RespondentHints("participant", kind="choice", offered=options, speaker=f"p{number}")
        return self.request(
            hints, make_system_prompt(number, held, options), asked, make_transcript(number, *turns)
        )

    def vote(self, number: int, *turns: str, at: str = "vote", **how: Any) -> str:
        return self.model.reply(self.voting(number, *turns, **how), f"{at}/{number}").text

    def says(self, number: int, held: str, *turns: str, at: str = "talk") -> str:
        hints = RespondentHints("participant", kind="text", speaker=f"p{number}")
        request = self.request(
            hints, make_system_prompt(number, held), "", make_transcript(number, *turns)
        )
        return self.model.reply(request, f"{at}/{number}/{len(turns)}").text

    def leads(
        self, told: str, *turns: str, role: str = MODERATOR, signal: str = "", at: str = "m"
    ) -> str:
        hints = RespondentHints(role, kind="text", speaker=role, signal=signal)
        heard = Transcript((Utterance("", make_prompt("Begin.")),)) + make_transcript(0, *turns)
        return self.model.reply(self.request(hints, told, "", heard), f"{at}/{len(turns)}").text

    def mind(self, number: int, *turns: str, **how: Any) -> SimulatedRespondent:
        """Return the simulated respondent of a participant at a vote."""
        return self.model.build_mind(read_prompt(self.voting(number, *turns, **how)), "x")
