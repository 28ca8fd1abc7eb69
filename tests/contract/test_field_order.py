"""The fields of a JSON answer are sent in the order in which the prompt asks for them.

A model that decodes by grammar writes its fields in the order of the schema, so this order decides
whether it reasons before it decides. The bytes that reach a server are compared, in each wire
format.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import folkmoot
from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.study.study import registered_studies
from folkmoot.models.request import Message, ModelRequest, ProviderSettings
from folkmoot.models.wire import anthropic_messages, gemini, openai_chat
from folkmoot.storage.run_folder import JOURNAL
from tests.conftest import SharedFolder
from tests.contract.small import small_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

Schema = dict[str, Any]
# Wire format → its provider, the path below the server's address, where the schema is in the body.
WIRES: dict[str, Any] = {
    "openai": (openai_chat, "/v1", ("response_format", "json_schema", "schema")),
    "anthropic": (anthropic_messages, "", ("output_config", "format", "schema")),
    "gemini": (gemini, "/v1beta", ("generationConfig", "responseJsonSchema")),
}


def read_json_requests(run: Path) -> list[ModelRequest]:
    """Return one request for each form of a JSON answer in the journal of a run. The journal keeps
    the order of fields."""
    found: dict[str, ModelRequest] = {}
    with JournalReader(run / JOURNAL) as journal:
        for entry in journal.read_entries("ask"):
            if schema := entry.request.get("schema"):
                messages = tuple(
                    Message(m["role"], m["content"]) for m in entry.request["messages"]
                )
                request = ModelRequest(entry.request["model"], messages, schema=schema)
                found.setdefault(json.dumps(schema), request)
    return [*found.values()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan()) as running:
        yield running


def send_schema(server: ServerThread, wire: str, request: ModelRequest) -> Schema:
    """Return the schema as a server of this wire format receives it, in its order."""
    module, path, place = WIRES[wire]
    bodies: list[bytes] = []

    async def keep(incoming: web.Request, handler: Any) -> web.StreamResponse:
        bodies.append(await incoming.read())
        found: web.StreamResponse = await handler(incoming)
        return found

    async def send(url: str) -> None:
        provider = module.provider(ProviderSettings(base_url=url, api_key="k", model="m"))
        await provider.complete_request(request, address="a")
        await provider.close()

    server.model.between = keep
    asyncio.run(send(f"{server.url}{path}"))
    node = json.loads(bodies[0])
    for key in place:
        node = node[key]
    return dict(node)


def iterate_objects(schema: Schema) -> Iterator[list[str]]:
    """Yield the fields of each object of a schema in order, without the way out of the whole. An
    object of objects (an entry for each resident) has no order itself."""
    if isinstance(schema, list):
        for part in schema:
            yield from iterate_objects(part)
    if not isinstance(schema, dict):
        return
    fields = schema.get("properties")
    if isinstance(fields, dict):
        plain = [n for n, s in fields.items() if "$ref" not in s and s.get("type") != "object"]
        yield [name for name in plain if name != DECLINED]
    for part in schema.values():
        yield from iterate_objects(part)


def find_order_in_prompt(prompt: str, fields: list[str]) -> list[str]:
    """Return the fields in the order of the prompt's form: `reason (why)`, `"reason": …` or
    `- reason: …`. Where several forms share names, it is one that has the order of the fields, if
    there is one."""
    names = "|".join(map(re.escape, fields))
    said = re.findall(rf"(?<!\w)({names})(?!\w)[\"`*]*\s*[:(]", prompt) if fields else []
    distinct = set(said)
    forms = [said[at : at + len(distinct)] for at in range(len(said))]
    whole = [form for form in forms if set(form) == distinct]
    wanted = [field for field in fields if field in distinct]
    return wanted if wanted in whole else next(iter(whole), [])


# Each study's forms go through one wire a day, and one study's through all: a wire does not know
# of studies.
@pytest.mark.parametrize(
    ("study", "wire"),
    sample_daily(
        [*product(sorted(registered_studies()), WIRES)],
        daily=[
            *(("focus_group", wire) for wire in WIRES),
            ("cross_pollination", "openai"),
            ("negotiation", "gemini"),
            ("town_hall", "anthropic"),
            ("workbook", "openai"),
        ],
        part="pages",
    ),
)
def test_bytes_sent_keep_the_order_of_the_prompt(
    study: str, wire: str, run_of_small_study: Callable[[str], Path], server: ServerThread
) -> None:
    requests = read_json_requests(run_of_small_study(study))
    assert requests or study == "cross_pollination"  # a small one, which asks for no JSON
    for request in requests:
        prompt = "\n".join(message.content for message in request.messages)
        schema = send_schema(server, wire, request)
        for fields in iterate_objects(schema):
            named = find_order_in_prompt(prompt, fields)
            assert [f for f in fields if f in named] == named, fields


# The fields of the source's JSON objects in the source's order, and what a reply decides.
SOURCE_FIELDS = {
    "PlainSynthesis": (
        *("has_conflict", "conflict_description", "resolution_explanation", "dialogue"),
    ),
    "GuidedSynthesis": (
        *("has_conflict", "conflict_description", "resolution_strategy"),
        *("resolution_explanation", "dialogue"),
    ),
    "FeedbackReply": (
        *("resolved", "updated_resolution_explanation", "targeted_feedback_question"),
        *("final_revised_decision", "dialogue"),
    ),
    "BallotForm": ("top_choice", "acceptable", "hard_no"),
}
REASON_FIELDS = {
    "PlainSynthesis": {"conflict_description", "resolution_explanation", "dialogue"},
    "GuidedSynthesis": {"conflict_description", "resolution_explanation", "dialogue"},
    "FeedbackReply": {"updated_resolution_explanation", "dialogue"},
    "OwnScores": {"reason"},
}


@pytest.fixture(scope="module")
def negotiation_requests(
    shared_folder: SharedFolder,
) -> Callable[[str], Mapping[str, ModelRequest]]:
    """Return a function of the field order: title of the form → a request for it."""

    def run_negotiation(order: str, folder: Path) -> None:
        path = small_study("negotiation", folder)
        own = ("coding=off", "group_types=[spouses]", "sizes={}", f"field_order={order}")
        folkmoot.run(path, out=folder / "run", model="synthetic", overrides=own)

    def read_requests(order: str) -> Mapping[str, ModelRequest]:
        folder = shared_folder(f"field_order/{order}", partial(run_negotiation, order))
        requests = read_json_requests(folder / "run")
        return {str((request.schema or {})["title"]): request for request in requests}

    return read_requests


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("title", SOURCE_FIELDS)
def test_fields_of_a_negotiation_follow_the_order_of_the_source(
    title: str,
    wire: str,
    negotiation_requests: Callable[[str], Mapping[str, ModelRequest]],
    server: ServerThread,
) -> None:
    schema = send_schema(server, wire, negotiation_requests("source")[title])
    fields = [name for name in schema["properties"] if name != DECLINED]
    assert tuple(fields[: len(SOURCE_FIELDS[title])]) == SOURCE_FIELDS[title]
    # What the source does not order: the decision as data follows all that explains it.
    ours = set(fields) - set(SOURCE_FIELDS[title])
    for reason in REASON_FIELDS.get(title, ()):
        assert all(fields.index(reason) < fields.index(name) for name in ours)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("order", ["source", "reason_first"])
@pytest.mark.parametrize("title", REASON_FIELDS)
def test_field_order_can_put_reasons_first(
    title: str,
    order: str,
    wire: str,
    negotiation_requests: Callable[[str], Mapping[str, ModelRequest]],
    server: ServerThread,
) -> None:
    request = negotiation_requests(order)[title]
    schema = send_schema(server, wire, request)
    fields = [name for name in schema["properties"] if name != DECLINED]
    prompt = request.messages[-1].content
    assert find_order_in_prompt(prompt, fields) == fields
    decides = set(fields) & {"has_conflict", "resolved", "decision", "dropped", "scores", "hard_no"}
    if title == "OwnScores" or order == "reason_first":
        own = {"has_conflict": {"conflict_description"}}  # it follows what describes it
        for name in decides:
            for reason in own.get(name, REASON_FIELDS[title]):
                assert fields.index(reason) < fields.index(name), (name, reason)
