"""All texts in a coder's prompt have a source that can be resolved."""

from __future__ import annotations

from pathlib import Path

import folkmoot
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.session.session import Session
from folkmoot.engine.study.study import Study
from folkmoot.kit import coding
from folkmoot.kit.coding.post_hoc import code_finished_run
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import join_texts
from folkmoot.storage.run_folder import RunFolder
from tests.kit.diary import STUDY as DIARY
from tests.wrong_sources import find_wrong_sources

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
        session.say(Speaker(name), await session.ask(Speaker(name), "What do you like?", shows=()))
        for name in ("Ann", "Bo")
    ]
    context = {"the menu": "\n".join(session.config.dishes)}
    slots = {"dish": session.config.dishes}
    talk = join_texts("\n\n", (turn.text for turn in turns))
    plain_text = coding.TextToCode(
        "plain", "I like soup, and I do not like pie.", "Bo", context, slots
    )
    await coding.code_texts(
        session, path, [coding.TextToCode("talk", talk, None, context, slots), plain_text]
    )


STUDY = Study("menu", "Menus", Config, protocol, tables=coding.TABLES)


def answer(request: object, address: str) -> str:
    return '{"codes": []}' if "coding" in address else f"I like what {address} likes."


def test_texts_of_a_coder_prompt_are_recorded_at_their_sources(tmp_path: Path) -> None:
    run = folkmoot.run(
        STUDY, {"model": "openai/gpt-4o"}, provider=ScriptedProvider(answer), out=tmp_path
    )
    coder_sources = run.table("provenance").filter(address="coding/stance/talk/ask0")
    assert set(coder_sources["kind"]) == {"material", "utterance"}
    assert coder_sources.filter(kind="utterance")["speaker"].to_list() == ["Ann", "Bo"]
    # This is the list of values. The name as a key of the JSON object is an instruction.
    assert coder_sources.filter(source_id="codebooks.slots/stance").height == 1
    assert coder_sources.filter(source_id="texts.about/stance/talk").height == 1
    plain_sources = run.table("provenance").filter(address="coding/stance/plain/ask0", message=1)
    assert plain_sources.select("source_id", "speaker").row(0) == ("texts.text/stance/plain", "Bo")
    unattributed = count_unattributed_characters(run.folder)
    assert not [address for address in unattributed if address.startswith("coding/")]
    assert find_wrong_sources(run.folder, STUDY.tables) == []


def test_the_sources_of_a_later_coding_are_in_the_coded_run(tmp_path: Path) -> None:
    settings = {"model": "synthetic", "coding": "off"}
    run = folkmoot.run(DIARY, settings, out=tmp_path / "run")
    code_finished_run(run.folder, "synthetic", RunOptions())
    coding_run = RunFolder(run.path / "codings" / "synthetic")
    assert count_unattributed_characters(coding_run) == {}
    sources = set(coding_run.read_table("provenance")["source_id"])
    texts = run.table("texts")
    assert sources == {
        "codebooks.text/price",
        *(f"texts.text/price/{id}" for id in texts["text_id"]),
    }
