"""Run the protocol of a finished run again, with some prompts changed.

The second run belongs to another run, for example to the controls. The journal of that other run
records the new requests.
"""

# The study's own code runs again. A request that the finished run made is answered from its journal
# at no cost. In chosen scopes, all other requests are made by the other run (the outer run), which
# journals and pays for them. So whatever depends on a changed prompt, such as the result of a game,
# is computed again.

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from folkmoot.conversation.answer_types import AnswerType, ParseFailure
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import BuiltMessages, Speaker
from folkmoot.engine.calls.gateway import completion_of, decode_vectors
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import ignore_progress
from folkmoot.engine.journal.earlier_replies import RESEARCHER, ReplyChange
from folkmoot.engine.journal.journal import Journal, JournalEntry
from folkmoot.engine.journal.journal_file import question_address
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.plan import Plan, sealed_data
from folkmoot.engine.session.run_context import RunContext
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.models.request import (
    FINISH_REFUSED,
    NO_USAGE,
    Completion,
    FloatArray,
    ModelRequest,
    reason_of_missing_reply,
)
from folkmoot.provenance import Source, Span
from folkmoot.randomness import digest
from folkmoot.storage.provenance_table import PROVENANCE, pack_spans
from folkmoot.storage.run_folder import JOURNAL, PERSONAS, PLAN, RunFolder
from folkmoot.storage.table_buffer import RowOrder

T = TypeVar("T")

# The finish reason of a request outside the repeated scopes that the finished run did not make.
NOT_REPEATED = "refused:not_repeated"
# The reason of an answer in a repeated session to which the reply that a researcher gave in a fork
# is none, for example because other options are open.
UNFIT = "given_reply_unfit"


@dataclass(frozen=True)
class RepeatedAnswer:
    """An answer that the second run of a protocol gave."""

    # The answer's row in the table `answers`.
    row: Mapping[str, object]
    # The last raw reply.
    reply: str
    # The address in the journal of the outer run, or empty if the finished run gave the reply.
    asked_at: str
    # False if a prompt in the answer's scope quotes an outdated reply.
    is_consistent: bool


class WatchedQuestion(NamedTuple):
    """How the study reads the reply to a question: its answer type, and how often it re-asks."""

    answer_type: AnswerType[Any]
    reasks: int


# Changes a question before it is asked. Arguments: address, speaker, messages, and the options that
# the question lists. Returns the messages and the options in the order in which they list them.
Revision = Callable[
    [str, Speaker, BuiltMessages, tuple[str, ...]], tuple[BuiltMessages, tuple[str, ...]]
]


def keep_question(
    _address: str, _speaker: Speaker, built: BuiltMessages, options: tuple[str, ...]
) -> tuple[BuiltMessages, tuple[str, ...]]:
    """Return the question unchanged, for a second run that changes no prompt."""
    return built, options


@dataclass(frozen=True)
class FinishedRun:
    """A finished run with everything that is needed to run its protocol again."""

    folder: Path
    protocol: Callable[[Session[Any]], Awaitable[None]]
    config: StudyConfig
    prompts: PromptLibrary
    study_folder: Path
    providers: ModelRouter
    started_at: str
    change: ReplyChange | None
    # True if the reply that a researcher gave in a fork stays as given, also where the question to
    # it changes. Controls that an earlier version planned ask a model in its place.
    keeps_given: bool = True


async def repeat_protocol(
    scope: Scope,
    finished: FinishedRun,
    watched: Collection[str],
    repeated: Collection[str] = (),
    revise: Revision = keep_question,
) -> RepeatedProtocol:
    """Run the protocol of a finished run again inside a scope, and return the answers.

    - `watched`: the addresses of the answers to return.
    - `repeated`: the paths of the scopes in which changed questions are asked again.
    - `revise`: returns a changed question.

    Raises the errors of the protocol, and the errors that stop the run of `scope`.
    """
    # Outside of `repeated` the old replies count, so that later stages cost nothing. Paths have no
    # final slash.
    outer = scope._run
    with (
        JournalReader(finished.folder / JOURNAL) as journal,
        tempfile.TemporaryDirectory(prefix="folkmoot-repeated-") as scratch,
    ):
        folder = Path(scratch)
        if (finished.folder / PERSONAS).exists():
            shutil.copyfile(finished.folder / PERSONAS, folder / PERSONAS)
        plan = Plan(folder / PLAN, started_at=finished.started_at)
        plan.repeated = sealed_data(RunFolder(finished.folder).plan)
        context = RepeatedProtocol(
            finished.config,
            finished.prompts,
            {},
            finished.study_folder,
            folder,
            finished.providers,
            # Only computations use the journal directly.
            cast("Journal", _RepeatedJournal(outer, "/".join(scope.path), journal)),
            outer.gateway,
            plan,
            # The outer run reports its own calls.
            ignore_progress,
            outer.clock,
            asks_people=False,
            change=finished.change,
            row_order=scope._row_order,
            outer=outer,
            name="/".join(scope.path),
            source=journal,
            watched=frozenset(watched),
            repeated=frozenset(repeated),
            keeps_given=finished.keeps_given,
            revise=revise,
        )
        await finished.protocol(Session(context))
        context.check_awaited()
        if context.halt_cause is not None:
            raise context.halt_cause
    return context


@dataclass(kw_only=True)
class RepeatedProtocol(RunContext):
    """The state of a finished run while the protocol runs again inside another run."""

    # `repeat_protocol` creates it.

    # The run that asks the changed requests, in its scope `name`.
    outer: RunContext
    name: str
    # The journal of the finished run.
    source: JournalReader
    watched: frozenset[str]
    repeated: frozenset[str]
    keeps_given: bool
    revise: Revision
    # The watched questions that the protocol asked, by address.
    questions: dict[str, WatchedQuestion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Addresses of questions, without the suffix of a re-ask.
        self._asked: set[str] = set()
        self._stale: set[str] = set()
        self._inconsistent: set[str] = set()
        self._replies: dict[str, str] = {}
        # Addresses of replies given by a researcher that do not answer the question as it is now.
        self._unfit: set[str] = set()
        self._rows: dict[str, Mapping[str, object]] = {}
        # Address of a request → order key and sources of its texts.
        self._spans: dict[str, tuple[bytes, Sequence[Span]]] = {}

    @property
    def is_exact(self) -> bool:
        """True if, outside the `repeated` scopes, all requests are those of the finished run."""
        return not self._stale

    def answers(self) -> dict[str, RepeatedAnswer]:
        """A map from each address in `watched` to the answer at this address."""
        return {
            address: RepeatedAnswer(
                row,
                self._replies.get(address, ""),
                self._outer_address(address) if address in self._asked else "",
                self._scope_of(address) not in self._inconsistent,
            )
            for address, row in self._rows.items()
        }

    def revise_question(
        self,
        address: str,
        speaker: Speaker,
        answer_type: AnswerType[T],
        reasks: int,
        built: BuiltMessages,
    ) -> tuple[BuiltMessages, AnswerType[T]]:
        if address in self.watched:
            self.questions[address] = WatchedQuestion(answer_type, reasks)
        if not self._scope_of(address):
            return built, answer_type
        given = self._given_entry(address)
        if given is not None:
            # Other options may be open after other replies. A model that is asked to correct the
            # words of the researcher would give an answer that nobody designed.
            is_missing = reason_of_missing_reply(given.finish)
            if not is_missing and isinstance(answer_type.parse_reply(given.reply), ParseFailure):
                self._unfit.add(address)
            # The reply is to the options in the order that the researcher saw.
            return built, answer_type
        options = tuple(answer_type.listed_options)
        built, listed = self.revise(address, speaker, built, options)
        if listed != options:
            answer_type = answer_type.with_listed_options(listed)
        return built, answer_type

    async def complete_request(
        self, address: str, request: ModelRequest, *, has_alternative: bool = False
    ) -> Completion:
        entry = self.source.entry_at(address, expand_texts=False)
        order, spans = self._spans.pop(address, (b"", ()))
        if address in self._unfit:
            reply = Completion("", NO_USAGE, finish=f"{FINISH_REFUSED}{UNFIT}")
        elif entry is not None and entry.fingerprint == request.fingerprint():
            reply = completion_of(entry, replayed=True)
        elif not (scope := self._scope_of(address)):
            self._stale.add(question_address(address))
            reply = Completion("", NO_USAGE, finish=NOT_REPEATED)
            if entry is not None:
                reply = completion_of(entry, replayed=True)
        elif (given := self._given_entry(address)) is not None:
            reply = completion_of(given, replayed=True)
        else:
            if any(span.source.address in self._stale for span in spans):
                self._inconsistent.add(scope)
            self._asked.add(question_address(address))
            outer_address = self._outer_address(address)
            if spans:
                cells = {
                    "address": outer_address,
                    "spans": pack_spans(self._with_outer_addresses(spans)),
                }
                self.outer.add_row(order, PROVENANCE, cells)
                self.outer.recorded_at.setdefault(PROVENANCE, None)
            reply = await self.outer.complete_request(
                outer_address, request, has_alternative=has_alternative
            )
        if (question := question_address(address)) in self.watched:
            self._replies[question] = reply.text
        return reply

    async def embed_texts(self, address: str, texts: list[str]) -> FloatArray:
        model = self.providers.embedding_choice
        if isinstance(model, Problem):
            raise InputError(model)
        entry = self.source.entry_at(address, expand_texts=False)
        if entry is not None and entry.fingerprint == digest(model, *texts):
            return decode_vectors(entry.blob, len(texts))
        return await self.gateway.embed_texts(self._outer_address(address), model, texts)

    def record_spans(self, row_order: RowOrder, address: str, spans: Sequence[Span]) -> None:
        # Whether the request is asked, and so recorded, is known only when it is made.
        self._spans[address] = row_order.next_key(), spans

    def add_row(self, key: bytes, table: str, row: Mapping[str, object]) -> None:
        """Keep a row of the table `answers`, and drop rows of other tables."""
        # The finished run has the other rows. A new answer is also added to the outer run, which is
        # still in progress.
        if table != "answers":
            return
        address = str(row["address"])
        if address in self.watched:
            self._rows[address] = row
        if address in self._asked:
            model = str(row["model_asked"])
            # The manifest and the labels of the outer run name who answered.
            self.outer.models_by_seat[model, str(row["role"])] = model
            scope = self._outer_address(str(row["scope"]))
            moved = {"address": self._outer_address(address), "stage": self.name, "scope": scope}
            self.outer.add_row(key, table, {**row, **moved})
            self.outer.recorded_at.setdefault(table, None)

    def write_json(self, name: str, data: object) -> None:
        """Do nothing, because the finished run has its files already."""

    def write_text(self, name: str, text: str) -> None:
        """Do nothing, because the finished run has its files already."""

    def write_content(self, name: str, content: object) -> None:
        """Do nothing, because the finished run has its files already."""

    def _given_entry(self, address: str) -> JournalEntry | None:
        # The entry of the reply that a researcher gave or dropped at this address in a fork.
        entry = self.source.entry_at(address, expand_texts=False) if self.keeps_given else None
        return entry if entry is not None and entry.model_served == RESEARCHER else None

    def _scope_of(self, address: str) -> str:
        return next((scope for scope in enclosing_scopes(address) if scope in self.repeated), "")

    def _outer_address(self, address: str) -> str:
        return f"{self.name}/{address}"

    def _with_outer_addresses(self, spans: Sequence[Span]) -> list[Span]:
        return [
            span._replace(source=span.source._replace(id=self._outer_address(span.source.id)))
            if self._is_new(span.source)
            else span
            for span in spans
        ]

    def _is_new(self, source: Source) -> bool:
        if source.address:
            return source.address in self._asked
        # The study itself says some utterances, such as the count of a ballot.
        return source.kind == "utterance" and bool(self._scope_of(source.id))


class _RepeatedJournal:
    # A result is looked up in the finished run first, and then in the outer run, which is still in
    # progress. New results are stored in the outer run.

    def __init__(self, outer: RunContext, name: str, source: JournalReader) -> None:
        self._outer, self._name, self._source = outer, name, source

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        entry = self._source.entry_at(address, expand_texts=False)
        if entry is not None and entry.fingerprint == fingerprint:
            return entry
        journal = self._outer.journal
        return journal.lookup_entry(f"{self._name}/{address}", fingerprint, request)

    def append(self, entry: JournalEntry) -> None:
        self._outer.journal.append(entry._replace(address=f"{self._name}/{entry.address}"))


def enclosing_scopes(address: str) -> list[str]:
    """Return the paths of the scopes that contain a call, the outermost first."""
    *parts, _ = address.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
