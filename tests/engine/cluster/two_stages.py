"""A study of two stages: participants talk, then vote with all utterances in the prompt."""

from pydantic import Field

from folkmoot import Choice, Missing, Scope, Session, Speaker, Study, StudyConfig


class Config(StudyConfig):
    people: int = Field(12, description="how many are asked")


def as_text(answer: str | Missing) -> str:
    return answer.reason if isinstance(answer, Missing) else answer


async def protocol(session: Session[Config]) -> None:
    people = [Speaker(f"p{i}", system=f"You are person {i}.") for i in range(session.config.people)]

    async def talk(scope: Scope, who: Speaker) -> str:
        replies = [as_text(await scope.ask(who, f"Question {n} to {who.id}?")) for n in range(3)]
        scope.record("talks", {"id": who.id, "said": " ".join(replies)})
        return replies[-1]

    last_replies = await session.child("talk").map(people, talk)
    talk_text = " ".join(last_replies.values())

    async def vote(scope: Scope, who: Speaker) -> None:
        choice = await scope.ask(
            who, f"{talk_text}\nPark or pool?", answer_type=Choice(("Park", "Pool"))
        )
        scope.record("votes", {"id": who.id, "choice": as_text(choice)})
        scope.write_text(f"votes/{who.id}.txt", f"{as_text(choice)}\n")

    await session.child("vote").map(people, vote)


STUDY = Study(name="two_stages", title="Two stages", config=Config, protocol=protocol)
