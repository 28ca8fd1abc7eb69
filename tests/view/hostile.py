"""A study in which every text tries to be markup: ids, names, conditions, replies, findings."""

from __future__ import annotations

import json

from folkmoot import Choice, Speaker, Study, StudyConfig
from folkmoot.engine.session.session import Scope, Session
from folkmoot.models.request import ModelRequest
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder

BAD = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7919*7919}}</p></title>&amp;"
WHO = f"a/b%2F?{BAD}"
ROOM = f"room {BAD}"


class Config(StudyConfig):
    title: str = BAD


class Participant(Row, table="people"):
    group: str
    participant_id: str
    name: str
    condition: str
    persona: str


class Utterance(Row, table="utterances"):
    group: str
    turn: int
    round: int
    speaker_id: str
    name: str
    text: str
    replied_to: str
    stance: str


async def protocol(session: Session[Config]) -> None:
    await session.seal("design of " + BAD, {"x": BAD})
    session.warn(BAD)

    async def one(scope: Scope, who: str) -> None:
        speaker = Speaker(who, BAD, "participant", f"You are {BAD}.")
        choice = await scope.ask(speaker, BAD, answer_type=Choice([BAD, "no"]))
        said = await scope.ask(speaker, BAD)
        about = {"group": ROOM, "name": BAD}
        scope.record(Participant(participant_id=who, condition=BAD, persona=BAD * 3, **about))
        scope.record(
            Utterance(
                turn=1, round=1, speaker_id=who, text=str(said), replied_to=who, stance=BAD, **about
            )
        )
        scope.record("votes", {"group": ROOM, "participant_id": who, "vote": str(choice)})

    await session.child(ROOM).map([WHO, "plain"], one)


def answer(request: ModelRequest, address: str) -> str:
    if address.endswith("ask0"):
        return BAD
    return json.dumps({BAD: BAD}) if "plain" in address else BAD


def findings(_run: RunFolder) -> list[Finding]:
    return [
        Finding("bad", BAD, BAD, ResultTable((BAD,), ((BAD,),), BAD), notes=(BAD,), headline=True),
        Finding("alarm", BAD, BAD, ResultTable((), ()), headline=True, alarms=(BAD,)),
    ]


STUDY = Study(
    name="hostile",
    title="Hostile",
    config=Config,
    protocol=protocol,
    tables=(Participant, Utterance),
    findings=findings,
)
