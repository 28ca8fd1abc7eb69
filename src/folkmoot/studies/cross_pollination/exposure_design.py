"""What each condition is shown by design, and where the words of it are recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

import polars as pl

from folkmoot.kit.exposure import Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig, Exposed

KINDS = {"clarification": "interview", "adversarial_dialogue": "dialogue"}  # by stage
SUMMARIES = "summaries"
IN_ORDER = ("interview", SUMMARIES, "dialogue")  # as a participant goes through them
FIRST, FINAL, THIRD = "first vote", "final vote", "third vote"
DECISIONS = {  # by stage
    "initial_vote": FIRST,
    "cross_pollination": FINAL,
    "adversarial_dialogue": FINAL,
    "second_vote": FINAL,
    "delayed_vote": THIRD,
}


def texts(run: RunFolder) -> Iterator[Text]:
    """Each participant's two conversations by who spoke, and the page of summaries."""
    said = run.rows("utterances", "participant_id", "stage", "speaker_role", "text")
    for (who, stage), rows in groupby(said, key=lambda row: row[:2]):  # a conversation on end
        spoken: dict[str, list[str]] = defaultdict(list)
        for _, _, role, text in rows:
            spoken[role].append(text or "")
        for role, words in spoken.items():
            name = "You" if role == "participant" else role
            yield Text(KINDS[stage], f"{who}/{stage}/{role}", "\n".join(words), who, name=name)
    pages: dict[int, list[str]] = defaultdict(list)
    for row in run.table("summaries").iter_rows(named=True):
        pages[row["draw"]].append(row["description"])
    for draw, page in pages.items():
        yield Text(SUMMARIES, f"draw {draw}", "\n".join(page), scope=page_of(draw))
    # Who quotes the topic or the own persona repeats nobody.
    yield Text("", "topic", run.config["topic"]["description"])
    for who, persona in run.rows("participants", "participant_id", "persona"):
        yield Text("", who, persona, scope=who)


def page_of(draw: int) -> str:
    return f"{SUMMARIES} {draw}"


def decisions(run: RunFolder) -> Iterator[Decision]:
    """Every vote, the conditions in the order of the design."""
    config = CrossPollinationConfig.model_validate(run.config)
    votes = run.lazy("answers").filter(
        pl.col("stage").is_in([*DECISIONS]), kind="choice", role="participant"
    )
    people = run.lazy("participants").select(
        "condition", "summary_draw", speaker_id="participant_id"
    )
    votes = votes.select("address", "stage", "speaker_id")
    asked = votes.join(people, on="speaker_id", maintain_order="left").sort(
        pl.col("stage").replace_strict(DECISIONS).replace_strict({FIRST: 0, FINAL: 1, THIRD: 2}),
        pl.col("condition").replace_strict({arm: n for n, arm in enumerate(config.arms)}),
        maintain_order=True,
    )
    for row in asked.collect().iter_rows(named=True):
        who, name = row["speaker_id"], DECISIONS[row["stage"]]
        shown = Exposed() if name != FINAL else config.in_view(row["condition"])
        yield Decision(
            row["address"],
            who,
            row["condition"],
            name,
            frozenset((who, page_of(row["summary_draw"] or 1))),
            {kind: getattr(shown, kind) for kind in IN_ORDER},
        )


EXPOSURE = Exposure(texts, decisions)
