"""Every text in the prompt of a coder has a source that resolves."""

from __future__ import annotations

from pathlib import Path

import folkmoot
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.session.session import Session
from folkmoot.engine.study.study import Study
from folkmoot.kit import coding
from folkmoot.kit.coding.post_hoc import code_finished_run
from folkmoot.kit.sources import count_unattributed_characters, find_wrong_sources
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import join_texts
from folkmoot.storage.run_folder import RunFolder
from tests.kit.diary import STUDY as DIARY

BOOK = """
name: stance
question: What does each speaker say of each dish?
choose: one
slots: {dish: what is spoken of}
codes:
  - {name: liked, definition: The speaker likes the dish.}
  - {name: unsaid, definition: The dish is not spoken of., quoted: false}
"""


class Config(coding.CodingStudyConfig):
    dishes: tuple[str, ...] = ("Soup", 'Pie "à la mode"')


async def protocol(session: Session[Config]) -> None:
    path = session.run_folder / "stance.yaml"
    path.write_text(BOOK, "utf-8")
    turns = [
        session.say(Speaker(who), await session.ask(Speaker(who), "What do you like?", shows=()))
        for who in ("Ann", "Bo")
    ]
    about = {"the menu": "\n".join(session.config.dishes)}
    slots = {"dish": session.config.dishes}
    talk = join_texts("\n\n", (turn.text for turn in turns))
    plain = coding.TextToCode("plain", "I like soup, and I do not like pie.", "Bo", about, slots)
    await coding.code_texts(
        session, path, [coding.TextToCode("talk", talk, None, about, slots), plain]
    )


STUDY = Study("menu", "Menus", Config, protocol, tables=coding.TABLES)


def answer(request: object, address: str) -> str:
    return '{"codes": []}' if "coding" in address else f"I like what {address} likes."


def test_what_a_coder_is_shown_is_recorded_where_its_source_says(tmp_path: Path) -> None:
    done = folkmoot.run(
        STUDY, {"model": "openai/gpt-4o"}, provider=ScriptedProvider(answer), out=tmp_path
    )
    coded = done.table("provenance").filter(address="coding/stance/talk/ask0")
    assert set(coded["kind"]) == {"material", "utterance"}
    assert coded.filter(kind="utterance")["speaker"].to_list() == ["Ann", "Bo"]
    # Where the values are listed. As a key of the JSON object, the name is an instruction.
    assert coded.filter(source_id="codebooks.slots/stance").height == 1
    assert coded.filter(source_id="texts.about/stance/talk").height == 1
    plain = done.table("provenance").filter(address="coding/stance/plain/ask0", message=1)
    assert plain.select("source_id", "speaker").row(0) == ("texts.text/stance/plain", "Bo")
    unattributed = count_unattributed_characters(done.folder)
    assert not [address for address in unattributed if address.startswith("coding/")]
    assert find_wrong_sources(done.folder, STUDY.tables) == []


def test_the_sources_of_a_coding_afterwards_are_in_the_run_that_is_coded(tmp_path: Path) -> None:
    settings = {"model": "synthetic", "coding": "off"}
    done = folkmoot.run(DIARY, settings, out=tmp_path / "run")
    code_finished_run(done.folder, "synthetic", RunOptions())
    coded = RunFolder(done.path / "codings" / "synthetic")
    assert count_unattributed_characters(coded) == {}
    sources = set(coded.read_table("provenance")["source_id"])
    texts = done.table("texts")
    assert sources == {
        "codebooks.text/price",
        *(f"texts.text/price/{id}" for id in texts["text_id"]),
    }
