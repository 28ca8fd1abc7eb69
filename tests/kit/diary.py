"""A study for the tests of coding. Its protocol codes a few diary texts."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from folkmoot.engine.session.session import Session
from folkmoot.engine.study.study import Study
from folkmoot.kit import coding

BOOK = (Path(__file__).parent / "codebooks" / "price.yaml").read_text("utf-8")

DIARIES = (
    "Honestly, it’s far too expensive for me. I like the colour, though.",
    "Good value! I would buy two.",
    "My dog barked at it all day.",
    "Too expensive at first sight; still, good value in the end.",
)


class Config(coding.CodingStudyConfig):
    arm: str = "treated"
    book: str = BOOK
    diaries: tuple[str, ...] = DIARIES
    slots: dict[str, list[str]] = Field(default_factory=dict)


def rule(text: coding.TextToCode) -> list[coding.AssignedCode]:
    """Return the codes that a rule assigns to a text: one code if it contains "expensive"."""
    return [coding.AssignedCode("too_dear", "expensive")] if "expensive" in text.text else []


async def protocol(session: Session[Config]) -> None:
    path = session.run_folder / "price.yaml"
    path.write_text(session.config.book, "utf-8")
    slots = session.config.slots
    texts = [
        coding.TextToCode(
            f"{session.config.arm}/day{n}", diary.replace("[bell]", "\a"), f"p_{n:04}", slots=slots
        )
        for n, diary in enumerate(session.config.diaries)
    ]
    codes = await coding.code_texts(session, path, texts, rule=rule)
    session.record("outcome", {"coded": sum(map(len, codes.values())), "texts": len(codes)})


STUDY = Study("diary", "Diaries", Config, protocol, tables=coding.TABLES)
