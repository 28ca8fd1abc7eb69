"""Convert two public sets of belief change into tables for `folkmoot new --from-people`.

    python -m tools.belief_change debates debates.csv > people.csv
    python -m tools.belief_change rounds rounds.csv messages.csv > people.csv

`debates`: DebateGPT (Salvi, Horta Ribeiro, Gallotti and West, 2024; CC BY-SA 4.0). Each participant
of a debate is a person, agreement runs from 1 to 5, and the topic is the item. The file does not
have the texts of the debates, so no text is shown. `rounds`: PersuasionTrace (Moore, 2025; MIT).
Belief runs from 0 to 100, and the text shown is the text of the persuader. Neither set is part
of this repository. docs/replay.md says where they are and what their licences ask for.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

COLUMNS = ("person", "item", "before", "after", "arm", "text_shown")


def convert_debates(path: Path) -> Iterable[dict[str, str]]:
    """Yield one row for each participant of a debate, with the side assigned to them."""
    for number, row in enumerate(_rows(path), 1):
        if row["agreement_pre_likert"]:
            yield {
                "person": f"d{number:04d}",
                "item": row["topic"],
                "before": row["agreement_pre_likert"],
                "after": row["agreement_post_likert"],
                "arm": row["treatment_type"],
                "text_shown": "",
                "argued_for_side": row["participant_side"],
            }


def convert_rounds(path: Path, messages: Path) -> Iterable[dict[str, str]]:
    """Yield one row for the first dialogue of each person about each proposition.

    The row has both beliefs and the text of the persuader.
    """
    said: dict[str, list[str]] = {}
    for row in _rows(messages):
        if row["speaker"] == "persuader":
            said.setdefault(row["round_id"], []).append(row["text"])
    seen: set[tuple[str, str]] = set()
    for row in _rows(path):
        about = row["human_target_id"], row["proposition"]
        if row["belief_before"] and row["belief_after"] and about not in seen:
            seen.add(about)
            is_control = row["control_dialogue"] == "True"
            yield {
                "person": f"t{row['human_target_id']}",
                "item": row["proposition"],
                "before": f"{100 * float(row['belief_before']):.1f}",
                "after": f"{100 * float(row['belief_after']):.1f}",
                "arm": "control dialogue" if is_control else "persuasion",
                "text_shown": "\n\n".join(said.get(row["round_id"], [])),
            }


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def main(arguments: list[str]) -> None:
    """Write the table of the set in the first argument, from the files in the others."""
    kind, *files = arguments
    paths = [Path(name) for name in files]
    rows = list(convert_debates(*paths) if kind == "debates" else convert_rounds(*paths))
    extra = [name for name in rows[0] if name not in COLUMNS]
    writer = csv.DictWriter(sys.stdout, [*COLUMNS, *extra], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
