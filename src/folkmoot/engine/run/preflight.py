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

from folkmoot.conversation.answer_types import Missing, Parsed, Unreadable
from folkmoot.conversation.choices import Choice, Number
from folkmoot.conversation.reply_forms import looks_like_refusal
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.calls.progress import Checked, Preflight
from folkmoot.engine.calls.retries import PREFLIGHT
from folkmoot.engine.journal.journal import Entry, JournalReader, Replay, as_part
from folkmoot.engine.session.run_context import RunContext
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import FatalModelError
from folkmoot.json_text import decode
from folkmoot.models.catalog import resolve
from folkmoot.models.request import CUT, Reply, Request, RespondentHints
from folkmoot.models.wire.capabilities import JSON_MODE, SCHEMA, Capabilities

UNKNOWN = "unknown"
EMBEDDED = f"{PREFLIGHT}/embedding"  # the address of the text that is embedded


class Tried(NamedTuple):
    """What one call showed, and whether a journal told of it, which tells less."""

    checked: Checked
    replayed: bool


async def preflight(
    context: RunContext, requests: Sequence[Request], *, embeds: bool = False
) -> None:
    """Ask each request once, in order: the first wrong key ends it. A study that `embeds` has one
    text embedded before. The result goes into the plan and to the progress. Raises what stops a
    run, FatalModelError (exit code 2) among it."""
    context.plan.write()  # a journal without a plan could not be resumed
    embedding = hosted_embedding(context.providers, context.config) if embeds else ""
    if isinstance(context.journal, Replay) and context.journal.at(EMBEDDED) is None:
        embedding = ""  # the preflight of an earlier version
    context.embedded = context.embedded or bool(embedding)
    tried = await asked_once(context.gateway, requests, embedding, EMBEDDED)
    checked = tuple(one.checked for one in tried)
    if not all(one.replayed for one in tried):
        context.plan.add("preflight", [asdict(one) for one in checked])
        context.plan.write()
    context.progress(Preflight(checked))
    refuse_unworkable(checked)


def hosted_embedding(providers: Providers, config: StudyConfig) -> str:
    """The hosted model that embeds; empty where none does."""
    model = providers.embedding
    hosted = isinstance(model, str) and not resolve(model, config.endpoints).local
    return str(model) if hosted else ""


async def asked_once(
    gateway: Gateway, requests: Sequence[Request], embedding: str, embedded_at: str
) -> list[Tried]:
    """What each request showed, after one text at `embedded_at` for a model that embeds. Raises
    what stops a run."""
    tried: list[Tried] = []
    if embedding:
        await gateway.embed(embedded_at, embedding, ["A text to embed."])
        none = ("not needed",) * 3
        shown = Checked(embedding, "-", "embedding", *none, UNKNOWN, "stop", "yes", None)
        tried.append(Tried(shown, replayed=True))  # a replay tells no less
    for request in requests:
        asked = request.asked
        mark, role = request.fingerprint().hex()[:8], as_part(asked.role)
        at = f"{PREFLIGHT}/{role}/{asked.kind}/{mark}"
        reply = await gateway.complete(at, request, spare=True)
        checked = _checked(request, reply, gateway.known_of(request))
        tried.append(Tried(checked, reply.replayed))
    return tried


def asked_in(journal: JournalReader) -> tuple[Request, ...]:
    """The requests of the preflight that a journal holds, as they were asked."""
    asked = (entry for entry in journal.under(f"{PREFLIGHT}/") if entry.kind == "ask")
    return tuple(map(_request_of, asked))


def _request_of(entry: Entry) -> Request:
    _, role, kind, _ = entry.address.split("/", 3)
    return replace(Request.from_json(entry.request), asked=RespondentHints(role, kind=kind))


def refuse_unworkable(checked: Sequence[Checked]) -> None:
    """Raise FatalModelError (exit code 2) with every reason why the study cannot work."""
    wrong = [f"{c.model} as {c.role} ({c.answer}): {c.problem}" for c in checked if c.problem]
    if wrong:
        raise FatalModelError(
            f"the preflight failed: {'; '.join(wrong)}. Nothing but these calls was paid for; mend "
            "the study, take another model, or skip the preflight with --no-preflight"
        )


def _checked(request: Request, reply: Reply, known: Capabilities | None) -> Checked:
    read = _read(request, reply.text)
    return Checked(
        model=request.model,
        role=request.asked.role,
        answer=request.asked.kind,
        schema=_schema(request, known),
        system=_taken(
            any(m.role == "system" for m in request.messages), known.system if known else None
        ),
        temperature=_taken(request.temperature is not None, known.temperature if known else None),
        usage="given" if reply.usage.output_tokens is not None else "not given",
        ended=reply.finish,
        read=read or "yes",
        cost_usd=reply.cost_usd,
        problem=_problem(reply, read),
    )


def _problem(reply: Reply, unread: str) -> str:
    if reply.finish.startswith("refused:"):
        why = reply.finish.removeprefix("refused:")
        return f"refused ({why}{': ' + reply.text[:200] if reply.text else ''})"
    if not reply.text.strip():
        cut = reply.finish.startswith(CUT)
        return "the token limit was used up before the first word" if cut else "an empty reply"
    if unread and reply.finish.startswith(CUT):
        return f"cut at the token limit before it could be read ({unread})"
    if unread and looks_like_refusal(reply.text):
        return f"possibly refused ({reply.text[:200]})"
    return ""


def _schema(request: Request, known: Capabilities | None) -> str:
    if request.schema is None:
        return "not needed"
    if known is None:
        return UNKNOWN
    if known.mode == SCHEMA:
        return "taken"
    return "JSON mode" if known.mode == JSON_MODE else "by the prompt"


def _taken(sent: bool, taken: bool | None) -> str:
    if not sent:
        return "not needed"
    return UNKNOWN if taken is None else "taken" if taken else "not taken"


def _read(request: Request, text: str) -> str:
    """Why a reply cannot be read as the kind of answer asked for; empty where it can."""
    kind, offered = request.asked.kind, request.asked.offered
    if kind == "choice" and offered:
        return _problem_of(Choice(offered).parse(text))
    if kind == "number" and len(offered) == 2:
        low, high = map(float, offered)
        return _problem_of(Number(low, high).parse(text))
    if request.schema is None:
        return ""
    try:
        data = decode(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return "no JSON object"
    lacking = [name for name in request.schema.get("required", ()) if name not in data]
    return f"the field {lacking[0]} is missing" if lacking else ""


def _problem_of(read: Parsed[object] | Unreadable | Missing) -> str:
    if isinstance(read, Missing):
        return f"the model replied {read.reason}"
    return read.problem if isinstance(read, Unreadable) else ""
