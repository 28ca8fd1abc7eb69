"""Test each model, role and answer kind with one real call before a study."""

# If a study uses embeddings, one text is embedded as well. The requests are the first of their kind
# in a dry run (`dry_run.py`). These requests go through the journal and the budget like any call,
# at addresses that no study can use. So a resume does not pay for them again. `execution.py` uses
# this module for one run, `grid.py` for a grid.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from folkmoot.conversation.answer_types import Missing, ParsedAnswer, ParseFailure
from folkmoot.conversation.choices import Choice, Number
from folkmoot.conversation.reply_forms import looks_like_refusal
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import Preflight, PreflightCheck
from folkmoot.engine.calls.retries import PREFLIGHT_SCOPE
from folkmoot.engine.journal.journal import JournalEntry, escape_address_part
from folkmoot.engine.journal.journal_reader import JournalReader, ReplayJournal
from folkmoot.engine.session.run_context import RunContext
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import FatalModelError
from folkmoot.json_text import decode_json
from folkmoot.models.catalog import resolve_model
from folkmoot.models.request import (
    FINISH_LENGTH,
    Completion,
    ModelRequest,
    RespondentHints,
    reason_of_missing_reply,
)
from folkmoot.models.wire.capabilities import JSON_MODE, SCHEMA, Capabilities

UNKNOWN_VALUE = "unknown"
# The address of the embedded text in the journal.
EMBEDDING_ADDRESS = f"{PREFLIGHT_SCOPE}/embedding"


class PreflightResult(NamedTuple):
    """The result of one test call before a run.

    `replayed`: the reply came from the journal.
    """

    # The journal does not record the capabilities of the model, so a replayed result lacks them.
    check: PreflightCheck
    replayed: bool


async def run_preflight(
    context: RunContext, requests: Sequence[ModelRequest], *, uses_embeddings: bool
) -> None:
    """Make each test call once, and write the results into the plan.

    `uses_embeddings`: embed one text before the test calls.

    Raises FatalModelError if a model cannot do what the study needs.
    Raises every error that stops a run.
    """
    # The plan is written first, because a journal without a plan could not be resumed.
    context.plan.write_plan()
    embedding = (
        find_hosted_embedding_model(context.providers, context.config) if uses_embeddings else ""
    )
    if (
        isinstance(context.journal, ReplayJournal)
        and context.journal.entry_at(EMBEDDING_ADDRESS) is None
    ):
        # An earlier version made this run. Its preflight embedded no text, so a replay cannot.
        embedding = ""
    context.embedded = context.embedded or bool(embedding)
    results = await ask_each_once(context.gateway, requests, embedding, EMBEDDING_ADDRESS)
    checks = tuple(result.check for result in results)
    # A resume keeps the note of the first process: replayed results show less.
    if not all(result.replayed for result in results):
        context.plan.add_note("preflight", [asdict(check) for check in checks])
        context.plan.write_plan()
    context.progress(Preflight(checks))
    raise_on_problems(checks)


def find_hosted_embedding_model(providers: ModelRouter, config: StudyConfig) -> str:
    """Return the hosted embedding model of a run, or an empty string if the run has none."""
    model = providers.embedding_choice
    hosted = isinstance(model, str) and not resolve_model(model, config.endpoints).local
    return str(model) if hosted else ""


async def ask_each_once(
    gateway: Gateway, requests: Sequence[ModelRequest], embedding: str, embedding_address: str
) -> list[PreflightResult]:
    """Make each test call once and return the results.

    - `embedding`: a hosted embedding model, or "". If given, it first embeds one text.
    - `embedding_address`: the journal address of the embedding.

    Raises every error that stops a run.
    """
    # The calls are made in order, so that the first wrong key stops all later calls.
    results: list[PreflightResult] = []
    if embedding:
        await gateway.embed_texts(embedding_address, embedding, ["A text to embed."])
        unneeded = ("not needed",) * 3
        embedding_check = PreflightCheck(
            embedding, "-", "embedding", *unneeded, UNKNOWN_VALUE, "stop", "yes", None
        )
        # The journal holds all that this result shows, so it need not count as new.
        results.append(PreflightResult(embedding_check, replayed=True))
    for request in requests:
        hints = request.hints
        # The fingerprint keeps the addresses of requests with the same role and kind apart.
        request_key, role = request.fingerprint().hex()[:8], escape_address_part(hints.role)
        address = f"{PREFLIGHT_SCOPE}/{role}/{hints.kind}/{request_key}"
        reply = await gateway.complete_request(address, request, has_alternative=True)
        check = _check_reply(request, reply, gateway.known_capabilities(request))
        results.append(PreflightResult(check, reply.replayed))
    return results


def preflight_requests_in(journal: JournalReader) -> tuple[ModelRequest, ...]:
    """Return the requests of a journal's test calls, for a replay of the run."""
    ask_entries = (
        entry for entry in journal.entries_with_prefix(f"{PREFLIGHT_SCOPE}/") if entry.kind == "ask"
    )
    return tuple(map(_request_from_entry, ask_entries))


def _request_from_entry(entry: JournalEntry) -> ModelRequest:
    # Hints are not journaled, but the address holds the role and the answer kind.
    _, role, kind, _ = entry.address.split("/", 3)
    return replace(ModelRequest.from_json(entry.request), hints=RespondentHints(role, kind=kind))


def raise_on_problems(checks: Sequence[PreflightCheck]) -> None:
    """Raise FatalModelError with all problems of the test calls, if there are any."""
    problems = [
        f"{check.model} as {check.role} ({check.answer}): {check.problem}"
        for check in checks
        if check.problem
    ]
    if problems:
        raise FatalModelError(
            f"the preflight failed: {'; '.join(problems)}. Only these calls were paid for. "
            "Correct the study, choose another model, or skip the preflight with --no-preflight"
        )


def _check_reply(
    request: ModelRequest, reply: Completion, capabilities: Capabilities | None
) -> PreflightCheck:
    parse_problem = _describe_parse_problem(request, reply.text)
    return PreflightCheck(
        model=request.model,
        role=request.hints.role,
        answer=request.hints.kind,
        schema=_describe_schema_support(request, capabilities),
        system=_describe_support(
            any(message.role == "system" for message in request.messages),
            capabilities.system if capabilities else None,
        ),
        temperature=_describe_support(
            request.temperature is not None,
            capabilities.accepts_temperature if capabilities else None,
        ),
        usage="given" if reply.usage.output_tokens is not None else "not given",
        ended=reply.finish,
        read=parse_problem or "yes",
        cost_usd=reply.cost_usd,
        problem=_find_problem(reply, parse_problem),
    )


def _find_problem(reply: Completion, parse_problem: str) -> str:
    if reason := reason_of_missing_reply(reply.finish):
        return f"refused ({reason}{': ' + reply.text[:200] if reply.text else ''})"
    if not reply.text.strip():
        is_cut = reply.finish.startswith(FINISH_LENGTH)
        return "the token limit was used up before the first word" if is_cut else "an empty reply"
    if parse_problem and reply.finish.startswith(FINISH_LENGTH):
        return f"cut at the token limit before it could be read ({parse_problem})"
    # Other replies that cannot be parsed are no problem: the study re-asks, and may succeed.
    if parse_problem and looks_like_refusal(reply.text):
        return f"possibly refused ({reply.text[:200]})"
    return ""


def _describe_schema_support(request: ModelRequest, capabilities: Capabilities | None) -> str:
    if request.schema is None:
        return "not needed"
    if capabilities is None:
        return UNKNOWN_VALUE
    if capabilities.structured_output_mode == SCHEMA:
        return "taken"
    return "JSON mode" if capabilities.structured_output_mode == JSON_MODE else "by the prompt"


def _describe_support(was_sent: bool, is_accepted: bool | None) -> str:
    if not was_sent:
        return "not needed"
    return UNKNOWN_VALUE if is_accepted is None else "taken" if is_accepted else "not taken"


def _describe_parse_problem(request: ModelRequest, text: str) -> str:
    # Returns an empty string if the reply can be parsed. The answer type itself is not in the
    # request, so options and schema are checked instead.
    kind, options = request.hints.kind, request.hints.offered
    if kind == "choice" and options:
        return _parse_problem(Choice(options).parse_reply(text))
    if kind == "number" and len(options) == 2:
        low, high = map(float, options)
        return _parse_problem(Number(low, high).parse_reply(text))
    if request.schema is None:
        return ""
    try:
        data = decode_json(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return "no JSON object"
    missing_fields = [name for name in request.schema.get("required", ()) if name not in data]
    return f"the field {missing_fields[0]} is missing" if missing_fields else ""


def _parse_problem(parsed: ParsedAnswer[object] | ParseFailure | Missing) -> str:
    if isinstance(parsed, Missing):
        return f"the model replied {parsed.reason}"
    return parsed.problem if isinstance(parsed, ParseFailure) else ""
