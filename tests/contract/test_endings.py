"""Cut and empty replies in every study type.

Every table of utterances keeps the mark of a cut reply. No prompt contains a placeholder for an
utterance that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.study.study import registered_studies
from folkmoot.errors import RejectedError
from folkmoot.models.request import Completion, Message, ModelRequest, ProviderSettings
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.randomness import uniform_values
from folkmoot.respondent import Respondent
from tests.contract.small import people_of, small_study
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())
# Utterances that come from no reply: the negotiation puts votes into words.
OF_VOTES = {"negotiation": pl.col("phase") == "vote"}


def run_with_changed_replies(
    study: str, folder: Path, spoil: Callable[[Completion, str], Completion]
) -> list[ModelRequest]:
    inner = people_of(study)

    async def answer(request: ModelRequest, address: str) -> Completion:
        return spoil(await inner.complete_request(request, address=address), address)

    model = ScriptedProvider(answer, keep_requests=True)
    folkmoot.run(small_study(study, folder), out=folder / "run", provider=model)
    return [request for _, request in model.seen]


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("focus_group", "town_hall"), part="mutations")
)
def test_cut_replies_keep_their_mark_in_all_tables(study: str, tmp_path: Path) -> None:
    def cut(reply: Completion, address: str) -> Completion:
        # After the line, so that votes can be read: a word may be cut from a longer one.
        return reply._replace(text=f"{reply.text}\n", finish="length")

    run_with_changed_replies(study, tmp_path, cut)
    run = folkmoot.load(tmp_path / "run")
    assert set(run.table("answers")["finish"]) == {"length"}
    said = run.table("utterances").filter(
        pl.col("address") != "", ~OF_VOTES.get(study, pl.lit(False))
    )
    assert said.height and set(said["finish"]) == {"length"}
    for name in ("preferences", "responses"):
        if name in run.tables:
            assert set(run.table(name)["finish"]) == {"length"}
    meaning = run.codebook["utterances"]["columns"]["finish"]["meaning"]
    assert "cut by the token limit" in meaning


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("cross_pollination", "focus_group"), part="mutations")
)
def test_no_placeholder_enters_a_history(study: str, tmp_path: Path) -> None:
    def empty(reply: Completion, address: str) -> Completion:
        question = re.sub(r"(\.r\d+|\.long)+$", "", address)  # its tries again share the fate
        return reply._replace(text=" ") if uniform_values(3, question) < 0.3 else reply

    for request in run_with_changed_replies(study, tmp_path, empty):
        for message in request.messages:
            said = message.content.strip()
            assert said and said not in ("…", "...", "None", "N/A", "null")
            assert "no answer)" not in said and "empty)" not in said
            assert not any(line.strip() in ("…", "...", '""') for line in said.splitlines())
    answers = folkmoot.load(tmp_path / "run").table("answers")
    lost = answers.filter(pl.col("missing") == "empty")
    # A choice is asked for once more and no further.
    enough = pl.when(pl.col("kind") == "choice").then(1).otherwise(2)
    assert lost.height and lost.select((pl.col("reasks") >= enough).all()).item()


def test_a_rejected_prompt_fails_one_participant_with_its_address(tmp_path: Path) -> None:
    inner = people_of("cross_pollination")
    poisoned = "p_0003"

    async def answer(request: ModelRequest, address: str) -> Completion:
        if poisoned in address.split("/"):
            raise RejectedError("HTTP 400: invalid content")
        return await inner.complete_request(request, address=address)

    study = small_study("cross_pollination", tmp_path)
    run = folkmoot.run(study, out=tmp_path / "run", provider=ScriptedProvider(answer))
    people = run.table("participants")
    failed = people.filter(pl.col("status") == "failed")
    assert failed["participant_id"].to_list() == [poisoned]
    assert "rejected: asked at " in failed["error_message"][0]
    assert poisoned in failed["error_message"][0].split("/")
    assert "complete" in people["status"].to_list()


def test_the_embedded_respondent_says_the_same_at_greater_length() -> None:
    model = Respondent(ProviderSettings(seed=42))
    messages = (Message("system", "You are Ann, a nurse."), Message("user", "Why parks?"))
    short = model.reply(ModelRequest("synthetic", messages, max_tokens=6), "talk/ask0")
    longer = model.reply(ModelRequest("synthetic", messages, max_tokens=12), "talk/ask0.long")
    assert short.finish == "length" and len(longer.text) > len(short.text)
    assert longer.text.startswith(short.text)
