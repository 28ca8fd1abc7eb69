"""Before money is spent: one real call for each model, role and kind of answer of a study, and
one of the model that embeds.

The requests are the first of their kind in a rehearsal (`dry_run.py`). They go through
journal and budget like any call, at addresses that no study can have, so that a resume pays nothing
for them again. Used by `execution.py` for a run and by `grid.py` for many.
"""

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
from folkmoot.models.request import FINISH_LENGTH, Completion, ModelRequest, RespondentHints
from folkmoot.models.wire.capabilities import JSON_MODE, SCHEMA, Capabilities

UNKNOWN_VALUE = "unknown"
EMBEDDING_ADDRESS = f"{PREFLIGHT_SCOPE}/embedding"  # the address of the text that is embedded


class PreflightResult(NamedTuple):
    """What one call showed, and whether a journal told of it, which tells less."""

    check: PreflightCheck
    replayed: bool


async def run_preflight(
    context: RunContext, requests: Sequence[ModelRequest], *, uses_embeddings: bool = False
) -> None:
    """Ask each request once, in order: the first wrong key ends it. A study that `uses_embeddings`
    has one text embedded before. The result goes into the plan and to the progress. Raises what
    stops a run, FatalModelError (exit code 2) among it."""
    context.plan.write_plan()  # a journal without a plan could not be resumed
    embedding = (
        find_hosted_embedding_model(context.providers, context.config) if uses_embeddings else ""
    )
    if (
        isinstance(context.journal, ReplayJournal)
        and context.journal.entry_at(EMBEDDING_ADDRESS) is None
    ):
        embedding = ""  # the preflight of an earlier version
    context.embedded = context.embedded or bool(embedding)
    tried = await ask_each_once(context.gateway, requests, embedding, EMBEDDING_ADDRESS)
    checked = tuple(one.check for one in tried)
    if not all(one.replayed for one in tried):
        context.plan.add_note("preflight", [asdict(one) for one in checked])
        context.plan.write_plan()
    context.progress(Preflight(checked))
    raise_on_problems(checked)


def find_hosted_embedding_model(providers: ModelRouter, config: StudyConfig) -> str:
    """The hosted model that embeds; empty where none does."""
    model = providers.resolve_embedding
    hosted = isinstance(model, str) and not resolve_model(model, config.endpoints).local
    return str(model) if hosted else ""


async def ask_each_once(
    gateway: Gateway, requests: Sequence[ModelRequest], embedding: str, embedded_at: str
) -> list[PreflightResult]:
    """What each request showed, after one text at `embedded_at` for a model that embeds. Raises
    what stops a run."""
    tried: list[PreflightResult] = []
    if embedding:
        await gateway.embed_texts(embedded_at, embedding, ["A text to embed."])
        none = ("not needed",) * 3
        shown = PreflightCheck(
            embedding, "-", "embedding", *none, UNKNOWN_VALUE, "stop", "yes", None
        )
        tried.append(PreflightResult(shown, replayed=True))  # a replay tells no less
    for request in requests:
        asked = request.asked
        mark, role = request.fingerprint().hex()[:8], escape_address_part(asked.role)
        at = f"{PREFLIGHT_SCOPE}/{role}/{asked.kind}/{mark}"
        reply = await gateway.complete_request(at, request, has_alternative=True)
        checked = _check_reply(request, reply, gateway.known_capabilities(request))
        tried.append(PreflightResult(checked, reply.replayed))
    return tried


def preflight_requests_in(journal: JournalReader) -> tuple[ModelRequest, ...]:
    """The requests of the preflight that a journal holds, as they were asked."""
    asked = (
        entry for entry in journal.entries_with_prefix(f"{PREFLIGHT_SCOPE}/") if entry.kind == "ask"
    )
    return tuple(map(_request_from_entry, asked))


def _request_from_entry(entry: JournalEntry) -> ModelRequest:
    _, role, kind, _ = entry.address.split("/", 3)
    return replace(ModelRequest.from_json(entry.request), asked=RespondentHints(role, kind=kind))


def raise_on_problems(checked: Sequence[PreflightCheck]) -> None:
    """Raise FatalModelError (exit code 2) with every reason why the study cannot work."""
    wrong = [
        f"{preflight_check.model} as {preflight_check.role} ({preflight_check.answer}): "
        f"{preflight_check.problem}"
        for preflight_check in checked
        if preflight_check.problem
    ]
    if wrong:
        raise FatalModelError(
            f"the preflight failed: {'; '.join(wrong)}. Nothing but these calls was paid for; mend "
            "the study, take another model, or skip the preflight with --no-preflight"
        )


def _check_reply(
    request: ModelRequest, reply: Completion, known: Capabilities | None
) -> PreflightCheck:
    read = _describe_parse_problem(request, reply.text)
    return PreflightCheck(
        model=request.model,
        role=request.asked.role,
        answer=request.asked.kind,
        schema=_describe_schema_support(request, known),
        system=_describe_support(
            any(message.role == "system" for message in request.messages),
            known.system if known else None,
        ),
        temperature=_describe_support(
            request.temperature is not None, known.accepts_temperature if known else None
        ),
        usage="given" if reply.usage.output_tokens is not None else "not given",
        ended=reply.finish,
        read=read or "yes",
        cost_usd=reply.cost_usd,
        problem=_find_problem(reply, read),
    )


def _find_problem(reply: Completion, unread: str) -> str:
    if reply.finish.startswith("refused:"):
        why = reply.finish.removeprefix("refused:")
        return f"refused ({why}{': ' + reply.text[:200] if reply.text else ''})"
    if not reply.text.strip():
        cut = reply.finish.startswith(FINISH_LENGTH)
        return "the token limit was used up before the first word" if cut else "an empty reply"
    if unread and reply.finish.startswith(FINISH_LENGTH):
        return f"cut at the token limit before it could be read ({unread})"
    if unread and looks_like_refusal(reply.text):
        return f"possibly refused ({reply.text[:200]})"
    return ""


def _describe_schema_support(request: ModelRequest, known: Capabilities | None) -> str:
    if request.schema is None:
        return "not needed"
    if known is None:
        return UNKNOWN_VALUE
    if known.structured_output_mode == SCHEMA:
        return "taken"
    return "JSON mode" if known.structured_output_mode == JSON_MODE else "by the prompt"


def _describe_support(sent: bool, taken: bool | None) -> str:
    if not sent:
        return "not needed"
    return UNKNOWN_VALUE if taken is None else "taken" if taken else "not taken"


def _describe_parse_problem(request: ModelRequest, text: str) -> str:
    """Why a reply cannot be read as the kind of answer asked for; empty where it can."""
    kind, offered = request.asked.kind, request.asked.offered
    if kind == "choice" and offered:
        return _parse_problem(Choice(offered).parse_reply(text))
    if kind == "number" and len(offered) == 2:
        low, high = map(float, offered)
        return _parse_problem(Number(low, high).parse_reply(text))
    if request.schema is None:
        return ""
    try:
        data = decode_json(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return "no JSON object"
    lacking = [name for name in request.schema.get("required", ()) if name not in data]
    return f"the field {lacking[0]} is missing" if lacking else ""


def _parse_problem(read: ParsedAnswer[object] | ParseFailure | Missing) -> str:
    if isinstance(read, Missing):
        return f"the model replied {read.reason}"
    return read.problem if isinstance(read, ParseFailure) else ""
