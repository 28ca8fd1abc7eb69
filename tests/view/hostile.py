"""A study in which every text contains markup: ids, names, conditions, replies, findings."""

from __future__ import annotations

import json

from folkmoot import Choice, Speaker, Study, StudyConfig
from folkmoot.engine.session.session import Scope, Session
from folkmoot.models.request import ModelRequest
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder

MARKUP_TEXT = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7919*7919}}</p></title>&amp;"
)
MARKUP_ID = f"a/b%2F?{MARKUP_TEXT}"
MARKUP_GROUP = f"room {MARKUP_TEXT}"


class Config(StudyConfig):
    title: str = MARKUP_TEXT


class Participant(Row, table="people"):
    group: str
    participant_id: str
    name: str
    condition: str
    persona: str


async def protocol(session: Session[Config]) -> None:
    await session.seal("design of " + MARKUP_TEXT, {"x": MARKUP_TEXT})
    session.warn(MARKUP_TEXT)

    async def answer_twice(scope: Scope, participant_id: str) -> None:
        speaker = Speaker(participant_id, MARKUP_TEXT, "participant", f"You are {MARKUP_TEXT}.")
        choice = await scope.ask(speaker, MARKUP_TEXT, answer_type=Choice([MARKUP_TEXT, "no"]))
        statement = await scope.ask(speaker, MARKUP_TEXT)
        shared_columns = {"group": MARKUP_GROUP, "name": MARKUP_TEXT}
        scope.record(
            Participant(
                participant_id=participant_id,
                condition=MARKUP_TEXT,
                persona=MARKUP_TEXT * 3,
                **shared_columns,
            )
        )
        scope.say(
            speaker,
            str(statement),
            round=1,
            turn=1,
            group=MARKUP_GROUP,
            replied_to=participant_id,
            stance=MARKUP_TEXT,
        )
        scope.record(
            "votes", {"group": MARKUP_GROUP, "participant_id": participant_id, "vote": str(choice)}
        )

    await session.child(MARKUP_GROUP).map([MARKUP_ID, "plain"], answer_twice)


def answer(request: ModelRequest, address: str) -> str:
    if address.endswith("ask0"):
        return MARKUP_TEXT
    return json.dumps({MARKUP_TEXT: MARKUP_TEXT}) if "plain" in address else MARKUP_TEXT


def findings(_run: RunFolder) -> list[Finding]:
    return [
        Finding(
            "bad",
            MARKUP_TEXT,
            MARKUP_TEXT,
            ResultTable((MARKUP_TEXT,), ((MARKUP_TEXT,),), MARKUP_TEXT),
            notes=(MARKUP_TEXT,),
            headline=True,
        ),
        Finding(
            "alarm",
            MARKUP_TEXT,
            MARKUP_TEXT,
            ResultTable((), ()),
            headline=True,
            alarms=(MARKUP_TEXT,),
        ),
    ]


STUDY = Study(
    name="hostile",
    title="Hostile",
    config=Config,
    protocol=protocol,
    tables=(Participant,),
    findings=findings,
)
