"""The desk: where the questions to people wait for their answers.

`human` is one more provider: the gateway puts a request here in place of sending it, and awaits
what the person answers. Whoever serves the pages (`folkmoot.view.seat`) looks at a `SeatState`,
shows its question and hands the answer in. All of it happens on the loop of the run.

What must outlive the process stands in `seats.json`, readable by its owner alone: the tokens of the
links, and which seats were closed. Answers stand in the journal, as everybody's do.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.errors import StorageError
from folkmoot.files import write_bytes
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import NO_USAGE, Completion, Message, ModelRequest
from folkmoot.randomness import digest
from folkmoot.storage.json_files import read_json
from folkmoot.storage.run_folder import PEOPLE, SEATS

TOKEN_BYTES = 24
ARRIVAL_WRITE_DELAY_SECONDS = (
    0.02  # seconds in which arrivals are written down together; a write takes as long
)
# Why a seat gives no more answers, as `Missing.reason` has it.
TIMED_OUT, DECLINED, SEAT_CLOSED, WITHDRAWN = "timed out", "declined", "seat closed", "withdrawn"


@dataclass(frozen=True, slots=True)
class QuestionView:
    """What a question looks like to the person asked: who they are, what they heard, the question,
    and how it is answered (`answer_kind` is choice, number, text or json). `message_count` counts
    the messages that this stands for; any further messages of a request ask again."""

    who: Speaker
    history: tuple[Utterance, ...]
    prompt: str
    answer_kind: str
    options: tuple[str, ...]
    message_count: int
    describe_parse_problem: Callable[[str], str] = lambda _text: (
        ""
    )  # why an answer could not be read


@dataclass(eq=False)
class PendingQuestion:
    """One question that waits for a person. `id` names it in forms; `reply` and `saved` are set
    when it was answered and when the answer is on the disk."""

    id: str
    address: str
    request: ModelRequest
    view: QuestionView
    reply: asyncio.Future[Completion]
    saved: asyncio.Event = field(default_factory=asyncio.Event)
    left: float | None = None  # seconds, once the clock of this question runs
    is_saved: bool = False

    @property
    def again(self) -> tuple[Message, ...]:
        """What follows the scene: a reply that could not be read, and why."""
        return self.request.messages[self.view.message_count :]


@dataclass(eq=False)
class SeatState:
    """One seat during a run. `changed` is set whenever its page changes."""

    place: Seat
    token: str
    asked: list[PendingQuestion] = field(default_factory=list)  # the first one is shown
    agreed: bool = False
    ended: str = ""  # why there are no more questions; `done` at the end of the run
    left: float | None = None  # seconds to arrive
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_connected: bool = False  # its page was open while this process ran
    end_shown: bool = False
    answers: int = 0
    read: set[str] = field(default_factory=set)  # system messages that they had before them

    def turn(self) -> None:
        """Wake the pages that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class SeatManager:
    """The seats of one run. `readers` names the models that will read what people write; `clock`
    gives seconds, and `advance_clock` makes time pass."""

    def __init__(
        self,
        places: Sequence[Seat],
        settings: SeatSettings,
        folder: Path,
        readers: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._path = folder / SEATS
        self._people = folder / PEOPLE
        self._ids: dict[str, Mapping[str, str]] = dict(recruitment_ids(folder))
        self._changed = self._kept = 0  # how often what is kept has changed, and up to where it is
        self._keeping = asyncio.Lock()
        self.clock = clock
        self._now = clock()
        self._scenes: dict[str, tuple[SeatState, QuestionView]] = {}
        known = read_json(self._path) if self._path.exists() else {}
        self.researcher_left = False
        self.port: int | None = known.get("port")
        self.token = known.get("token") or secrets.token_urlsafe(TOKEN_BYTES)  # the researcher's
        self.readers: tuple[str, ...] = readers
        arrive = None if settings.arrive_minutes is None else settings.arrive_minutes * 60
        self.chairs: dict[str, SeatState] = {}
        for place in places:
            was = known.get("seats", {}).get(place.name, {})
            chair = SeatState(
                place,
                was.get("token") or secrets.token_urlsafe(TOKEN_BYTES),
                agreed=was.get("agreed", False),
                ended=was.get("ended", ""),
                left=arrive,
            )
            self.chairs[chair.token] = chair
        self._at = {seat_state.place: seat_state for seat_state in self}
        self.save_state()

    def __iter__(self) -> Iterator[SeatState]:
        return iter(self.chairs.values())

    def save_state(self) -> None:
        """Write down what a later process must know. Raises StorageError."""
        write_private(self._path, self._serialise_seats())
        if self._kept < self._changed and self._ids:
            write_private(self._people, self._ids)
        self._kept = self._changed

    async def wait_until_saved(self) -> None:
        """Wait until who came, and with which ids, is on the disk: one write for all who arrive
        within a moment. Raises StorageError."""
        change = self._changed
        async with self._keeping:
            if self._kept < change:
                await asyncio.sleep(ARRIVAL_WRITE_DELAY_SECONDS)
                self.save_state()

    def _serialise_seats(self) -> dict[str, object]:
        seats = {
            seat_state.place.name: {
                "id": seat_state.place.id,
                "scopes": seat_state.place.scopes,
                "token": seat_state.token,
                "agreed": seat_state.agreed,
                "ended": "" if seat_state.ended == "done" else seat_state.ended,
            }
            for seat_state in self
        }
        return {"port": self.port, "token": self.token, "seats": seats}

    # --- the engine's side ----------------------------------------------------------------------

    def register_question(self, place: Seat, address: str, scene: QuestionView) -> None:
        """Say what the request at an address, and those that ask again, look like to the person."""
        self._scenes[address] = self._at[place], scene

    def enqueue(self, address: str, request: ModelRequest) -> PendingQuestion:
        """Put a request to its person; the question's `reply` is their answer."""
        chair, scene = self._view_at(address)
        reply: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        # By what is asked as well: whoever answers in an old tab answers what stands there.
        name = digest(address, request.fingerprint(), size=9).hex()
        question = PendingQuestion(name, address, request, scene, reply)
        if chair.ended:
            reply.set_result(_reply_without_answer(chair.ended))
            return question
        chair.asked.append(question)
        if len(chair.asked) == 1:
            self._start_clock(chair)
        chair.turn()
        return question

    def withdraw_question(self, question: PendingQuestion, *, stored: bool) -> None:
        """The answer is on the disk, or the run stops and nobody will hear it."""
        chair, _ = self._view_at(question.address)
        question.is_saved = stored
        question.saved.set()
        if question in chair.asked:
            chair.asked.remove(question)
            self._start_clock(chair)
        chair.turn()

    def stop_waiting(self) -> None:
        """Stop waiting for people: the study is over, and its user wants to leave."""
        self.researcher_left = True

    def finish(self) -> None:
        """Nothing more will be asked: every seat is shown the end."""
        for chair in self:
            chair.ended = chair.ended or "done"
            chair.turn()

    def _view_at(self, address: str) -> tuple[SeatState, QuestionView]:
        # Further tries stand at <address>.r1, <address>.long and the like.
        while address not in self._scenes:
            address = address.rpartition(".")[0]
        return self._scenes[address]

    def _start_clock(self, chair: SeatState) -> None:
        """Let the clock of the first question run, if there is one and the person is there."""
        minutes = self.settings.minutes
        if minutes is not None and chair.asked and self.has_arrived(chair):
            chair.asked[0].left = chair.asked[0].left or minutes * 60

    # --- the page's side ------------------------------------------------------------------------

    def has_arrived(self, chair: SeatState) -> bool:
        """Whether the person has come, and has agreed where that is asked."""
        return chair.agreed

    def current_question(self, chair: SeatState) -> PendingQuestion | None:
        """The question to show to the person now, never one that was answered already."""
        return next(
            (
                pending_question
                for pending_question in chair.asked
                if not pending_question.reply.done()
            ),
            None,
        )

    def record_consent(self, chair: SeatState) -> None:
        """The person has come and agrees to take part; `wait_until_saved` says when it is on the
        disk."""
        if not chair.agreed and not chair.ended:
            chair.agreed, chair.left = True, None
            self._changed += 1
            self._start_clock(chair)
            chair.turn()

    def record_link_ids(self, chair: SeatState, query: Mapping[str, str]) -> None:
        """Note the ids of a link's query that the study file names, for a file of their own."""
        ids = {key: query[key][:200] for key in self.settings.query if query.get(key)}
        if ids and self._ids.get(chair.place.name) != ids:
            self._ids[chair.place.name] = ids
            self._changed += 1

    def find_pending_question(self, chair: SeatState, question_id: str) -> PendingQuestion | None:
        """A question of this seat by its id, if its answer is not on the disk yet."""
        return next(
            (
                pending_question
                for pending_question in chair.asked
                if pending_question.id == question_id
            ),
            None,
        )

    async def answer(self, chair: SeatState, question: PendingQuestion, text: str | None) -> bool:
        """Hand an answer in (None: the person would rather not); whether it is on the disk.

        A question is answered once: what comes later for it, from a double click or another tab,
        changes nothing.
        """
        if not question.reply.done():
            question.reply.set_result(
                _reply_without_answer(DECLINED) if text is None else _reply_from_text(text)
            )
            chair.answers += 1
            chair.read.add(question.view.who.system)
        await question.saved.wait()
        return question.is_saved

    def close_seat(self, chair: SeatState, why: str) -> None:
        """Close a seat: its questions, now and later, have no answer, for this reason."""
        if chair.ended:
            return
        chair.ended = why
        self.save_state()
        for question in chair.asked:
            if not question.reply.done():
                question.reply.set_result(_reply_without_answer(why))
        chair.turn()

    def advance_clock(self) -> None:
        """Count the time that the clock says has passed. Called only while the run goes on."""
        now = self.clock()
        passed, self._now = max(0.0, now - self._now), now
        for chair in list(self):
            question = self.current_question(chair)
            if chair.left is not None and not chair.agreed and not chair.ended:
                chair.left -= passed
                if chair.left <= 0:
                    self.close_seat(chair, SEAT_CLOSED)
            elif question is not None and question.left is not None:
                question.left -= passed
                if question.left <= 0 and not question.reply.done():
                    question.reply.set_result(_reply_without_answer(TIMED_OUT))
                    chair.turn()


def write_private(path: Path, data: Mapping[str, object]) -> None:
    """Write JSON that its owner alone may read. Raises StorageError."""
    write_bytes(path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)


def _reply_from_text(text: str) -> Completion:
    return Completion(text, NO_USAGE, HUMAN_MODEL, "", "stop")


def _reply_without_answer(reason: str) -> Completion:
    return Completion("", NO_USAGE, HUMAN_MODEL, "", f"refused:{reason}")


def read_seats(folder: Path) -> dict[Seat, str]:
    """The seats of a run, and why each one gives no more answers (empty: it does). Raises
    StorageError."""
    path = folder / SEATS
    known = read_json(path)["seats"] if path.exists() else {}
    return {Seat(was["id"], tuple(was["scopes"])): was["ended"] for was in known.values()}


def recruitment_ids(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Seat → ids of the link's query; empty where there are none. Raises StorageError."""
    path = folder / PEOPLE
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise StorageError(f"{path}: not a list of people's ids")
    return found
