"""In reversed order, every prompt of every study type says the same as before."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.kit.controls import asking
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.conversations import messages_of
from folkmoot.kit.controls.replacing import Subject, replaced_texts
from folkmoot.kit.controls.tables import ORDER
from folkmoot.provenance import SourcedText, cell_id, concatenate_texts, quote_value, spans_of
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.studies import focus_group, town_hall

PROMPTS = {
    study.STUDY.name: PromptLibrary(study.STUDY.prompts) for study in (focus_group, town_hall)
}
# The number of a place in a list, which stays where it is.
PLACE = re.compile(r"^(\d+\. |Position \d+: )")
# A heading of the page of summaries. It moves together with the texts below it.
SECTION = re.compile(r"(?=^## )", re.MULTILINE)
STUDIES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")


def reverse_lists(text: SourcedText, treatment: str = "") -> str:
    """Return a text in reversed order.

    `treatment`: what the ids of treatment texts begin with.
    """
    ids = (span.source.id for span in spans_of(text))
    texts = frozenset(id for id in ids if id.startswith(treatment))
    subject = Subject(frozenset({"other"}), "other", texts, frozenset({"other"}))
    (changed,) = replaced_texts(ORDER, subject, [text], {}, "en")
    return str(changed)


def list_statements(text: str) -> list[str]:
    """Return what a text says, whatever the order of its lines and of lists in a line."""
    lines = (PLACE.sub("", line) for line in text.splitlines())
    return sorted("; ".join(sorted(re.split("[:;] ", line))) for line in lines)


def list_sections(text: str) -> list[list[str]]:
    """Return what a text says under each heading, whatever the order of the headings."""
    # Text below the last section has no heading, so only paragraphs of one line count.
    _, *sections = SECTION.split(text)
    return sorted(
        [line for line in section.splitlines() if line.startswith(("## ", "Position "))]
        for section in sections
    )


def iterate_prompts(run: RunFolder) -> Iterator[SourcedText]:
    """Yield each message of each request of a run, with its sources."""
    with JournalReader(run.path / JOURNAL) as journal:
        addresses = [entry.address for entry in journal.read_entries("ask")]
        recorded = run.read_spans(addresses)
        for address in addresses:
            entry = journal.entry_at(address)
            assert entry is not None
            yield from (text for _, text in messages_of(entry, recorded.spans_at(address)))


@pytest.mark.parametrize("study", STUDIES)
def test_a_reversed_prompt_makes_the_same_statements(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    changed_prompts = 0
    for text in iterate_prompts(RunFolder(run_of_small_study(study))):
        changed = reverse_lists(text)
        assert list_statements(changed) == list_statements(text)
        assert list_sections(changed) == list_sections(text)
        changed_prompts += changed != text
    # Concept, makers' text and price of a focus group are no list.
    assert bool(changed_prompts) == (study in {"cross_pollination", "negotiation"})


ITEMS = ["Build a park.", "Build a school.", "Build a pool.", "Build nothing."]


def quote_items(outcomes: Sequence[tuple[bool, int, int, str]]) -> list[dict[str, object]]:
    """Return the items of a ballot as the town hall shows them after the vote."""
    return [
        {
            "id": quote_value(f"V{number}", "value", cell_id("items.item_id", "lv4", f"V{number}")),
            "text": quote_value(text, "proposal", cell_id("items.text", "lv4", f"V{number}")),
            "passed": passed,
            "yes": quote_value(yes, "value", cell_id("items.yes", "lv4", f"V{number}")),
            "no": quote_value(no, "value", cell_id("items.no", "lv4", f"V{number}")),
            "mine": quote_value(mine, "value", cell_id("votes.vote", "lv4", f"V{number}", "A01")),
        }
        for number, (text, (passed, yes, no, mine)) in enumerate(
            zip(ITEMS, outcomes, strict=True), 1
        )
    ]


@pytest.mark.parametrize(
    "mine", [("yes", "no", "no", "yes"), ("", "", "", ""), ("", "yes", "", "no")]
)
@pytest.mark.parametrize("prompt", ["satisfaction_after", "shared_satisfaction"])
def test_no_proposal_gets_the_result_of_another_one(prompt: str, mine: tuple[str, ...]) -> None:
    results = [(False, 0, 2), (True, 2, 1), (True, 2, 0), (False, 1, 2)]
    outcomes = [(*result, vote) for result, vote in zip(results, mine, strict=True)]
    variables = dict.fromkeys(PROMPTS["town_hall"].variables_of(prompt), "")
    text = PROMPTS["town_hall"].render_prompt(
        prompt, **variables | {"items": quote_items(outcomes), "after": True}
    )
    assert "V1: Build a park. (failed, 0 yes to 2 no" in text
    # A control of ratings has nothing to reverse.
    assert reverse_lists(text) == text


def test_a_ballot_is_read_from_the_last_item_to_the_first() -> None:
    items = quote_items([(False, 0, 0, "")] * 4)
    variables = dict.fromkeys(PROMPTS["town_hall"].variables_of("vote"), "")
    text = PROMPTS["town_hall"].render_prompt("vote", **variables | {"items": items})
    ballot = [line for line in text.splitlines() if line.startswith("V")]
    assert len(ballot) == 5 and ballot[:1] == ["V1: Build a park."]
    changed = [line for line in reverse_lists(text).splitlines() if line.startswith("V")]
    # The last line says how to vote.
    assert changed == [*ballot[3::-1], ballot[4]]


def test_headings_of_a_focus_group_keep_their_texts() -> None:
    def quote(column: str, text: str, concept: str = "oven") -> str:
        return quote_value(text, "material", cell_id(f"concepts.{column}", concept))

    text = PROMPTS["focus_group"].render_prompt(
        "purchase_intent",
        concept=quote("product_concept", "An oven that reads."),
        stimulus=quote("stimulus_material", "It reads. 299 dollars."),
        price=quote("price", "299 dollars"),
        options=["yes", "no"],
    )
    assert reverse_lists(text) == text
    # A prompt of a researcher may compare two concepts. They are one column, and no list.
    oven, box = quote("product_concept", "An oven."), quote("product_concept", "A box.", "box")
    for before, between in [
        ("You know this: ", "\n\nThis is new: "),
        ("", " costs more than "),
        ("Known:\n\n", "\n\nNew:\n\n"),
    ]:
        compared = concatenate_texts((before, oven, between, box), plain=None)
        assert reverse_lists(compared) == compared
    listed = concatenate_texts(("Concepts:\n1. ", oven, "\n2. ", box, "\n\nDecide."), plain=None)
    assert reverse_lists(listed) == "Concepts:\n1. A box.\n2. An oven.\n\nDecide."
    # What counts the places, in a line above the texts too, or what closes each text, is no word.
    for before, between, after in [
        ("Ideas:\n\n### Idea 1\n\n", "\n\n### Idea 2\n\n", "\n\nSo?"),
        ("Idea A: ", "\nIdea B: ", "\nSo?"),
        ("Ideas: (a) ", ", (b) ", ". So?"),
        ("<idea>\n", "\n</idea>\n<idea>\n", "\n</idea>\nSo?"),
    ]:
        counted = concatenate_texts((before, oven, between, box, after), plain=None)
        assert reverse_lists(counted) == f"{before}A box.{between}An oven.{after}"
    judged = concatenate_texts(("Concepts:\n", oven, "\n", box, " (refused)\nSo?"), plain=None)
    assert reverse_lists(judged) == judged


def test_an_option_before_a_list_does_not_keep_its_order() -> None:
    chosen = quote_value("Safer streets", "option", "study.topic.options")
    summaries = [
        quote_value(text, "summary", cell_id("summaries.description", text))
        for text in ("They want parks.", "They want schools.")
    ]
    parts = ("You chose ", chosen, ". Others say:\n1. ", summaries[0], "\n2. ", summaries[1])
    text = concatenate_texts((*parts, "\nDecide."), plain=None)
    assert reverse_lists(text) == (
        "You chose Safer streets. Others say:\n1. They want schools.\n2. They want parks.\nDecide."
    )


def test_a_rule_moves_with_the_slot_to_which_it_applies(
    run_of_small_study: Callable[[str], Path],
) -> None:
    # The mediator of a negotiation has a table of rules, of which only the rules are treatment.
    tables = [
        text
        for text in iterate_prompts(RunFolder(run_of_small_study("negotiation")))
        if "== SOCIAL THEORY" in text
    ]
    for text in tables:
        changed = reverse_lists(text, "strategies.rule/")
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        changed_rows = [line for line in changed.splitlines() if line.startswith("| ")]
        assert changed_rows == [rows[0], *rows[:0:-1]] and len(rows) > 3
        assert list_statements(changed) == list_statements(text)
    assert tables


ORDER_ALONE = {"negative": False, "retest": False, "order": True, "participants": 1}
SWAPPED = "What its makers say about it: An oven that reads"


def ask_in_reversed_order(source: Path, folder: Path) -> tuple[RunFolder, str]:
    """Ask the control of order of a focus group and return the prompts of its decisions."""
    run = RunFolder(shutil.copytree(source, folder / "run"))
    controls = run_controls(run, ORDER_ALONE, RunOptions())
    with JournalReader(controls.path / JOURNAL) as journal:
        requests = [json.dumps(entry.request) for entry in journal.read_entries("ask")]
    return run, "".join(requests)


def test_a_control_of_a_focus_group_keeps_the_description_of_the_product(
    run_of_small_study: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = run_of_small_study("focus_group")
    _, prompts = ask_in_reversed_order(source, tmp_path)
    assert "The idea: An oven that reads" in prompts and SWAPPED not in prompts
    assert "1. Definitely would buy" in prompts
    # Controls that an earlier version planned are verified as they were asked.
    with monkeypatch.context() as earlier:
        earlier.setattr(asking, "_is_planned_earlier", lambda _run, _key: True)
        run, prompts = ask_in_reversed_order(source, tmp_path / "earlier")
    assert SWAPPED in prompts
    ((_, verification),) = verify_controls(run)
    assert not verification.differences
