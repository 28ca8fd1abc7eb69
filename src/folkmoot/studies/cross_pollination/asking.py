"""How a vote is put to a participant, and what may be asked about it afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import EMPTY, Transcript, Utterance
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.participants import Participant


@dataclass(frozen=True)
class Put:
    """A vote as it is put: who they are, what is asked, what was heard before."""

    system: str
    prompt: str
    heard: Transcript = EMPTY

    def answered(self, p: Participant, choice: str) -> Put:
        """The conversation with the vote in it, for whatever is asked about it next."""
        vote = (Utterance("", self.prompt), Utterance(p.id, choice))
        return Put(self.system, "", self.heard + vote)


async def vote(scope: Scope, p: Participant, put: Put) -> str | Missing:
    """One vote; the options are those of the topic in the participant's own order."""
    who, answer = p.speaker(put.system), Choice(p.options)
    return await scope.ask(who, put.prompt, heard=put.heard, answer=answer)
