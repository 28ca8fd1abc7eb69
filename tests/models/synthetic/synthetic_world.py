"""A small cross-pollination in text, for tests: prompts of the tests' own, no study imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.cluster import KMeans

from folkmoot.models.hashed_embeddings import embed
from folkmoot.models.request import Message, ProviderSettings, Request
from folkmoot.models.synthetic import Respondent

OPTIONS = ("A covered market", "Free evening buses", "A public swimming pool")
JOBS = (
    "a retired bus driver", "a primary school cook", "a tax clerk", "a violin maker",
    "a night nurse", "a forester", "a hairdresser with two sons", "a software tester",
    "a butcher", "a museum guard", "a law student", "a roofer",
)  # fmt: skip


def persona(n: int) -> str:
    return f"{JOBS[n % len(JOBS)]} who lives at number {n} of the long street."


def base(who: str, options: Sequence[str] = OPTIONS) -> str:
    listed = "\n".join(f"- {o}" for o in options)
    return (
        f"You are {who}\n\nThe town asks its people what to build with a legacy.\n\n"
        f"The options are:\n{listed}\n\nStay in character."
    )


def vote_prompt(options: Sequence[str] = OPTIONS) -> str:
    listed = "\n".join(f"{k}. {o}" for k, o in enumerate(options, 1))
    return f"What do you choose?\n\nOptions:\n{listed}\n\nGive ONLY the exact text of your option."


FINAL = "Now make your final choice.\n\nGive ONLY the exact text of your option, nothing else."


@dataclass
class World:
    """A respondent and the calls of a cross-pollination, addressed like a study's."""

    seed: int = 0
    knobs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = Respondent(ProviderSettings(seed=self.seed, options=dict(self.knobs)))

    def ask(self, address: str, system: str, *turns: str) -> str:
        """One call; `turns` alternate user, assistant, …, and end with a user turn."""
        messages = [Message("system", system)] if system else []
        for k, text in enumerate(turns):
            messages.append(Message("assistant" if k % 2 else "user", text))
        return self.model.reply(Request("synthetic/x", tuple(messages)), address).text

    def vote(self, n: int, stage: str = "vote", *heard: str, system: str = "") -> str:
        return self.ask(f"{stage}/{n}", base(persona(n)) + system, *heard, vote_prompt())

    def interview(self, n: int, held: str, exchanges: int = 3) -> list[str]:
        """Moderator and participant in turn, as text only."""
        moderator = (
            "You are a neutral moderator.\n\nAvailable options: " + ", ".join(OPTIONS) + "\n\n"
            f'The participant chose "{held}".\n\nAsk clarifying questions. When you understand, '
            'respond with exactly "SATISFIED".'
        )
        system = base(persona(n)) + (
            f'\n\nYou previously chose "{held}".\n\nA moderator asks you clarifying questions.'
        )
        return self._talk(f"interview/{n}", moderator, system, exchanges)

    def dialogue(self, n: int, held: str, opposed: str, content: str, most: int = 5) -> list[str]:
        moderator = (
            "You are a moderator who presents an opposing viewpoint.\n\nAvailable options: "
            + ", ".join(OPTIONS)
            + f'\n\nThe participant chose "{held}".\n\n{content}\n\n'
            f'Present the opposing view: "{opposed}".\n\n'
            'At the end respond with exactly "SATISFIED".'
        )
        system = base(persona(n)) + (
            f'\n\nYou previously chose "{held}".\n\nA moderator challenges you with opposing views.'
        )
        return self._talk(f"dialogue/{n}", moderator, system, most)

    def _talk(self, at: str, moderator: str, system: str, most: int) -> list[str]:
        said: list[str] = []
        for k in range(most):
            question = self.ask(f"{at}/m{k}", moderator, "Please begin.", *said)
            if question == "SATISFIED":
                break
            said.append(question)
            said.append(self.ask(f"{at}/p{k}", system, *said))
        return said

    def summary(self, n: int, held: str, said: Sequence[str]) -> str:
        return self.ask(f"summary/{n}", "", summary_prompt(held, said))

    def page(self, summaries: Mapping[int, str], held: Mapping[int, str]) -> str:
        """Clusters of three per option and their descriptions, under headings."""
        out = ["What other participants think, with their main arguments."]
        for option in OPTIONS:
            mine = [n for n in summaries if held[n] == option]
            labels = kmeans([summaries[n] for n in mine])
            out.append(f"## {option}")
            for k in range(3):
                texts = [summaries[n] for n, label in zip(mine, labels, strict=True) if label == k]
                told = self.ask(f"cluster/{option}/{k}", "", cluster_prompt(option, texts))
                out.append(f"Position {k + 1}: {told}")
        return "\n\n".join(out)


def summary_prompt(held: str, said: Sequence[str]) -> str:
    turns = "\n\n".join(
        f"{'Participant' if k % 2 else 'Moderator'}: {text}" for k, text in enumerate(said)
    )
    return (
        f'The participant chose: "{held}"\n\nThe dialogue:\n\n{turns}\n\n'
        "Summarize the participant's position in 1-3 sentences."
    )


def cluster_prompt(option: str, texts: Sequence[str]) -> str:
    listed = "\n\n".join(f"Position {k}: {t}" for k, t in enumerate(texts, 1))
    return (
        f'All of these people chose "{option}".\n\n{listed}\n\n'
        "Write a unified description of the group's position in exactly 3 sentences."
    )


def kmeans(texts: Sequence[str], k: int = 3) -> list[int]:
    labels = KMeans(k, n_init=10, random_state=0).fit_predict(embed(texts).astype(np.float64))
    return [int(x) for x in labels]
