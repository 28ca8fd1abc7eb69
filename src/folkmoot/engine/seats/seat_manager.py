"""Deliver questions to human participants and collect the answers.

The gateway and the server of the pages use this module.
"""

# `human` is a model name like any other. The gateway passes a request for this model to the seat
# manager and awaits the reply. The page server (`folkmoot.view.seat`) shows the question and passes
# the answer back. All of this runs on the event loop of the run. `seats.json` holds what a later
# process needs: the tokens of the links, the closed seats, and the cookies and codes of people.
# Only the owner of the file can read it. Answers are in the journal, like those of models.

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.engine.seats.activity import PageActivity
from folkmoot.engine.seats.lobby import (
    Lobby,
    Occupant,
    digest_code,
    digest_visit,
    make_code,
    restore_occupants,
)
from folkmoot.engine.seats.question_view import QuestionView
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.errors import StorageError
from folkmoot.files import write_bytes
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import FINISH_REFUSED, NO_USAGE, Completion, Message, ModelRequest
from folkmoot.randomness import digest
from folkmoot.storage.json_files import read_json
from folkmoot.storage.run_folder import PEOPLE, SEATS, utc_timestamp

# 192 bits: a token in a link is the only proof that its visitor may answer for the seat.
TOKEN_BYTES = 24
# Group arrivals that come within 20 ms into one write. A write takes about as long, and a classroom
# opens its links at the same moment.
ARRIVAL_WRITE_DELAY_SECONDS = 0.02
# Reasons of missing answers of humans. They are part of the written data.
TIMED_OUT, DECLINED, SEAT_CLOSED, WITHDRAWN = "timed out", "declined", "seat closed", "withdrawn"
# The human failed a check that ends their part.
SCREENED_OUT = "screened out"
# Why an open seat gets no questions: no human had taken it when the study started.
PLAYED_BY_MODEL = "played by a model"
# The key of a typed name in `people.json`.
NAME = "name"


@dataclass(eq=False)
class PendingQuestion:
    """One question that waits for a human's answer."""

    # The name of the question in the forms of its page.
    id: str
    address: str
    request: ModelRequest
    view: QuestionView
    # Resolved when the human has answered.
    reply: asyncio.Future[Completion]
    # Set when the journal has written the answer (`is_saved`), or when the run has dropped the
    # question.
    saved: asyncio.Event = field(default_factory=asyncio.Event)
    # Seconds until the question times out. None while its clock does not run.
    left: float | None = None
    is_saved: bool = False

    @property
    def reask_messages(self) -> tuple[Message, ...]:
        """The messages that ask the question again, because a reply could not be parsed."""
        return self.request.messages[self.view.message_count :]


@dataclass(eq=False)
class SeatState:
    """The state of one seat during a run."""

    seat: Seat
    # The secret part of the seat's link.
    token: str
    # The waiting questions. The page shows the first one.
    questions: list[PendingQuestion] = field(default_factory=list)
    # The human has arrived and has agreed to take part.
    has_agreed: bool = False
    # Why the seat gets no more questions: a reason of missing answers, or `done` at the end of the
    # run. Empty while it gets questions.
    ended: str = ""
    # Seconds within which the human must arrive. None if there is no limit.
    left: float | None = None
    # Set whenever the page of the seat changes.
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # A page of the seat was open during this process.
    is_connected: bool = False
    end_shown: bool = False
    answers: int = 0
    # The system prompts that the human has already seen.
    seen_system_prompts: set[str] = field(default_factory=set)
    # The code with which the human can return, until they have noted it.
    return_code: str = ""
    # The number of questions so far, including those of earlier processes.
    question_count: int = 0
    activity: PageActivity = field(default_factory=PageActivity)

    def notify_change(self) -> None:
        """Wake the pages that wait for a change."""
        # A new event for the next change. A cleared event could be missed by a page that has not
        # resumed yet.
        self.changed.set()
        self.changed = asyncio.Event()


class SeatManager:
    """The seats of one run, with the questions that wait in each seat."""

    # `readers` are the names of the models that will read the humans' answers, for the consent
    # page. `clock` returns seconds. `lobby` exists only with `seats: open`, and knows the person in
    # each seat.

    def __init__(
        self,
        seats: Sequence[Seat],
        settings: SeatSettings,
        folder: Path,
        readers: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._path = folder / SEATS
        self._link_ids_path = folder / PEOPLE
        self._ids: dict[str, Mapping[str, str]] = dict(recruitment_ids(folder))
        # The number of changes so far, and the number of those that are on the disk.
        self._changed = self._kept = 0
        self._keeping = asyncio.Lock()
        self.clock = clock
        self._now = clock()
        # The number of questions that a human is likely to get, if it is known.
        self.expected_questions: int | None = None
        self._views_by_address: dict[str, tuple[SeatState, QuestionView]] = {}
        saved_state = read_json(self._path) if self._path.exists() else {}
        self.researcher_left = False
        # Messages of the researcher, with `time`, `seat` (empty: all) and `text`.
        self.announcements: list[dict[str, str]] = list(saved_state.get("announcements", ()))
        self.port: int | None = saved_state.get("port")
        # The address under which people reach the pages. The server of the pages sets it.
        self.address = ""
        # The token of the researcher's page. All tokens survive a resume, so that links stay valid.
        self.token = saved_state.get("token") or secrets.token_urlsafe(TOKEN_BYTES)
        self.readers: tuple[str, ...] = readers
        arrival_seconds = None if settings.arrive_minutes is None else settings.arrive_minutes * 60
        self.seat_states: dict[str, SeatState] = {}
        for seat in seats:
            saved_seat = saved_state.get("seats", {}).get(seat.name, {})
            seat_state = SeatState(
                seat,
                saved_seat.get("token") or secrets.token_urlsafe(TOKEN_BYTES),
                has_agreed=saved_seat.get("agreed", False),
                ended=saved_seat.get("ended", ""),
                left=arrival_seconds,
            )
            self.seat_states[seat_state.token] = seat_state
        self._at = {seat_state.seat: seat_state for seat_state in self}
        # The names of the seats that humans had taken when the study started.
        self.human_seats: list[str] = []
        self.lobby = self._open_lobby(seats, saved_state) if settings.open else None
        self.save_state()

    def _open_lobby(
        self,
        seats: Sequence[Seat],
        saved_state: Mapping[str, Mapping[str, Mapping[str, str]]],
    ) -> Lobby:
        token = saved_state.get("entry", {}).get("token") or make_code().lower()
        occupants = restore_occupants(saved_state.get("seats", {}))
        for seat_state in self:
            seat_state.left = None
            occupant = occupants.get(seat_state.seat.name)
            # The process ended before this person had noted their code. Only its digest is stored.
            if occupant is not None and not occupant.code:
                seat_state.return_code = make_code()
                occupants[seat_state.seat.name] = Occupant(
                    occupant.visit, digest_code(seat_state.return_code)
                )
        return Lobby(
            str(token),
            [place.name for place in seats],
            self.settings.lobby_minutes * 60,
            occupants,
        )

    def __iter__(self) -> Iterator[SeatState]:
        return iter(self.seat_states.values())

    def save_state(self) -> None:
        """Write the state that a later process needs.

        Raises StorageError if the disk cannot be written.
        """
        write_private(self._path, self._serialise_seats())
        if self._kept < self._changed and (self._ids or self._link_ids_path.exists()):
            write_private(self._link_ids_path, self._ids)
        self._kept = self._changed

    async def wait_until_saved(self) -> None:
        """Wait until everyone who has arrived so far is recorded on disk.

        Raises StorageError if the disk cannot be written.
        """
        # One write covers all humans who arrive within `ARRIVAL_WRITE_DELAY_SECONDS`.
        change = self._changed
        async with self._keeping:
            # A write by the previous holder of the lock may have covered this change.
            if self._kept < change:
                await asyncio.sleep(ARRIVAL_WRITE_DELAY_SECONDS)
                self.save_state()

    def _serialise_seats(self) -> dict[str, object]:
        seats = {
            seat_state.seat.name: {
                "id": seat_state.seat.id,
                "scopes": seat_state.seat.scopes,
                "token": seat_state.token,
                "agreed": seat_state.has_agreed,
                # A later process finds these two states again, so they are not stored.
                "ended": "" if seat_state.ended in ("done", PLAYED_BY_MODEL) else seat_state.ended,
                **self._serialise_occupant(seat_state),
            }
            for seat_state in self
        }
        found: dict[str, object] = {"port": self.port, "token": self.token, "seats": seats}
        if self.announcements:
            found["announcements"] = self.announcements
        if self.lobby is not None:
            found["entry"] = {"token": self.lobby.token, "humans": self.human_seats}
        return found

    def _serialise_occupant(self, seat_state: SeatState) -> dict[str, str]:
        occupant = (
            self.lobby.occupants.get(seat_state.seat.name) if self.lobby is not None else None
        )
        if occupant is None:
            return {} if self.lobby is None else {"visit": ""}
        # A code that its person has not noted yet is replaced after a crash.
        return {"visit": occupant.visit, "code": "" if seat_state.return_code else occupant.code}

    # --- the engine's side ----------------------------------------------------------------------

    def register_question(self, seat: Seat, address: str, view: QuestionView) -> None:
        """Store the page content `view` for the question at `address`."""
        # It holds for the re-asks of the request as well.

        # A resume registers the questions of the earlier process again.
        # Questions outside the protocol are not counted: the page says what they are.
        self._at[seat].question_count += not view.title
        self._views_by_address[address] = self._at[seat], view

    def enqueue(self, address: str, request: ModelRequest) -> PendingQuestion:
        """Queue a request for the human in a seat, and return the question that now waits."""
        # If the seat gives no more answers, the future of the question is already done. It then
        # holds a missing answer with the reason.
        seat_state, view = self._view_at(address)
        reply: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        # The id depends on the request as well. An answer from an old browser tab then cannot
        # count for another question at the same address.
        question_id = digest(address, request.fingerprint(), size=9).hex()
        question = PendingQuestion(question_id, address, request, view, reply)
        if seat_state.ended:
            reply.set_result(_reply_without_answer(seat_state.ended))
            return question
        seat_state.questions.append(question)
        if len(seat_state.questions) == 1:
            self._start_clock(seat_state)
        seat_state.notify_change()
        return question

    def withdraw_question(self, question: PendingQuestion, *, stored: bool) -> None:
        """Remove a question that was answered or dropped.

        `stored`: whether the journal has the answer.
        """
        seat_state, _ = self._view_at(question.address)
        question.is_saved = stored
        question.saved.set()
        if question in seat_state.questions:
            seat_state.questions.remove(question)
            self._start_clock(seat_state)
        seat_state.notify_change()

    def stop_waiting(self) -> None:
        """Stop waiting for humans to read the last page."""
        # The researcher wants to leave.
        self.researcher_left = True

    def finish(self) -> None:
        """End all seats, so that every page shows the end of the study."""
        for seat_state in self:
            seat_state.ended = seat_state.ended or "done"
            seat_state.notify_change()

    def _view_at(self, address: str) -> tuple[SeatState, QuestionView]:
        # Re-asks have addresses such as <address>.r1 and <address>.long.
        while address not in self._views_by_address:
            address = address.rpartition(".")[0]
        return self._views_by_address[address]

    def _start_clock(self, seat_state: SeatState) -> None:
        # The clock starts only after the human has arrived.
        if not seat_state.questions or not self.has_arrived(seat_state):
            return
        minutes = self.minutes_for(seat_state.questions[0].view)
        if minutes is not None:
            # A clock that already runs is not reset.
            seat_state.questions[0].left = seat_state.questions[0].left or minutes * 60

    def minutes_for(self, view: QuestionView) -> float | None:
        """Return the time limit for a human's answer in minutes, or None if there is no limit."""
        if self.settings.minutes is None and view.is_afterwards:
            # The run must end, also if a human has left without a word.
            return self.settings.afterwards_minutes
        return self.settings.minutes

    def screen_out(self, seat: Seat) -> None:
        """End the participation of a human who failed a check.

        Raises StorageError if the disk cannot be written.
        """
        self.close_seat(self._at[seat], SCREENED_OUT)

    def finish_seat(self, seat: Seat) -> None:
        """Show the end of the study to the human in a seat."""
        seat_state = self._at[seat]
        seat_state.ended = seat_state.ended or "done"
        seat_state.notify_change()

    # --- the page's side ------------------------------------------------------------------------

    def has_arrived(self, seat_state: SeatState) -> bool:
        """Return whether the human in a seat has arrived and agreed to take part."""
        return seat_state.has_agreed

    def describe_state(self, seat_state: SeatState) -> str:
        """Describe the state of a seat for the researcher."""
        if seat_state.ended:
            return seat_state.ended
        if not seat_state.has_agreed:
            return "not here yet" if self.lobby is None else "free"
        has_question = self.current_question(seat_state) is not None
        return seat_state.activity.describe(self.clock(), has_question=has_question)

    def current_question(self, seat_state: SeatState) -> PendingQuestion | None:
        """Return the first unanswered question of the seat, or None."""
        return next(
            (
                pending_question
                for pending_question in seat_state.questions
                if not pending_question.reply.done()
            ),
            None,
        )

    def record_consent(self, seat_state: SeatState) -> None:
        """Record that the human in a seat has arrived and agreed to take part."""
        # The record is on disk after `wait_until_saved`.
        if not seat_state.has_agreed and not seat_state.ended:
            seat_state.has_agreed, seat_state.left = True, None
            self._changed += 1
            self._start_clock(seat_state)
            seat_state.notify_change()

    def record_link_ids(self, seat_state: SeatState, query: Mapping[str, str]) -> None:
        """Record the recruitment ids that the query of a link contains."""
        # Only the keys that the study file names are recorded. The ids go into a separate file,
        # apart from the data of the run.

        # Cut to 200 characters, because anyone with the link can write anything into its query.
        ids = {key: query[key][:200] for key in self.settings.query if query.get(key)}
        # People of an open entry have given their ids there, and others may have their link.
        if self.lobby is None and ids and self._ids.get(seat_state.seat.name) != ids:
            self._ids[seat_state.seat.name] = ids
            self._changed += 1

    # --- an open entry --------------------------------------------------------------------------

    def find_platform_id(self, id: str) -> SeatState | None:
        """Return the seat of the person to whom a recruitment site gave this id, or None."""
        key = next(iter(self.settings.query), "")
        return next(
            (
                seat_state
                for seat_state in self
                if id and self._ids.get(seat_state.seat.name, {}).get(key) == id
            ),
            None,
        )

    def find_seat(self, name: str) -> SeatState | None:
        """Return the seat with this name, or None."""
        return next((seat_state for seat_state in self if seat_state.seat.name == name), None)

    def name_of(self, seat_state: SeatState) -> str:
        """Return the name that a person has typed in the lobby, or an empty string."""
        return self._ids.get(seat_state.seat.name, {}).get(NAME, "")

    def next_free_seat(self) -> SeatState | None:
        """Return the seat for the next person from the shared link.

        Returns None if all seats are taken.
        """
        if self.lobby is None:
            return None
        closed = {seat_state.seat.name for seat_state in self if seat_state.ended}
        return self.find_seat(self.lobby.next_free_seat(closed))

    def admit(self, visit: str, ids: Mapping[str, str]) -> SeatState | None:
        """Give the next free seat to a person who has agreed to take part.

        Returns None if all seats are taken. `visit`: the secret in the person's cookie.
        """
        # The record is on disk after `wait_until_saved`.
        seat_state = self.next_free_seat()
        if seat_state is None or self.lobby is None:
            return None
        seat_state.return_code = make_code()
        self.lobby.admit(seat_state.seat.name, visit, seat_state.return_code)
        self._ids[seat_state.seat.name] = dict(ids)
        seat_state.has_agreed = True
        self._changed += 1
        if self.next_free_seat() is None:
            self._start_study(self._seated_names())
        return seat_state

    def readmit(self, seat_state: SeatState, visit: str) -> None:
        """Store a new cookie for the person in a seat."""
        assert self.lobby is not None
        code = self.lobby.occupants[seat_state.seat.name].code
        self.lobby.occupants[seat_state.seat.name] = Occupant(digest_visit(visit), code)
        self._changed += 1

    def release_seat(self, seat_state: SeatState) -> None:
        """Free the seat of a person who leaves the lobby."""
        assert self.lobby is not None
        self.lobby.release(seat_state.seat.name)
        self._ids.pop(seat_state.seat.name, None)
        # Neither the messages to this person nor the old link lead to the next person in the seat.
        name = seat_state.seat.name
        self.announcements = [given for given in self.announcements if given["seat"] != name]
        seat_state.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.seat_states = {seat_state.token: seat_state for seat_state in self}
        seat_state.has_agreed, seat_state.return_code, seat_state.is_connected = False, "", False
        self._changed += 1

    def note_code(self, seat_state: SeatState) -> None:
        """Delete the code for returning to a seat, because the person has written it down."""
        # Pages then hide the code.
        if seat_state.return_code:
            seat_state.return_code = ""
            self._changed += 1

    def go_on_with(self, humans: Collection[str]) -> None:
        """Start the study at once, with humans only in the seats that `humans` names."""
        # An earlier process of the run did so.
        self._start_study(humans)

    def start_now(self) -> None:
        """Start the study with the people who are in the lobby."""
        if self.lobby is not None and self.lobby.is_open:
            self._start_study(self._seated_names())

    def _seated_names(self) -> list[str]:
        assert self.lobby is not None
        return [
            seat_state.seat.name
            for seat_state in self
            if seat_state.seat.name in self.lobby.occupants and not seat_state.ended
        ]

    def _start_study(self, humans: Collection[str]) -> None:
        assert self.lobby is not None
        self.lobby.start()
        self.human_seats = list(humans)
        for seat_state in self:
            if seat_state.seat.name not in humans:
                seat_state.ended = seat_state.ended or PLAYED_BY_MODEL
            seat_state.notify_change()
        self.save_state()

    # --- messages of the researcher -------------------------------------------------------------

    def announce(self, text: str, seat: str = "") -> None:
        """Show a message of the researcher to one human, or to all if `seat` is empty.

        Raises StorageError if the disk cannot be written.
        """
        self.announcements.append({"time": utc_timestamp(), "seat": seat, "text": text})
        self.save_state()

    def announcements_for(self, seat_state: SeatState) -> list[dict[str, str]]:
        """Return the messages to the human in a seat, oldest first."""
        name = seat_state.seat.name
        return [given for given in self.announcements if given["seat"] in ("", name)]

    def find_pending_question(
        self, seat_state: SeatState, question_id: str
    ) -> PendingQuestion | None:
        """Return the question with this id.

        Returns None if the answer to the question is already on disk.
        """
        return next(
            (
                pending_question
                for pending_question in seat_state.questions
                if pending_question.id == question_id
            ),
            None,
        )

    async def answer(
        self, seat_state: SeatState, question: PendingQuestion, text: str | None
    ) -> bool:
        """Answer a question for the human in a seat, and return whether the answer is on disk.

        `text` is None if the human declines to answer.
        """
        # Only the first answer to a question counts. A later answer, from a double click or from
        # another tab, changes nothing.
        if not question.reply.done():
            question.reply.set_result(
                _reply_without_answer(DECLINED) if text is None else _reply_from_text(text)
            )
            seat_state.answers += 1
            seat_state.seen_system_prompts.add(question.view.speaker.system)
        await question.saved.wait()
        return question.is_saved

    def close_seat(self, seat_state: SeatState, reason: str) -> None:
        """Close a seat, so that the human in the seat gives no more answers.

        `reason`: why later answers are missing. Raises StorageError if the disk cannot be written.
        """
        if seat_state.ended:
            return
        seat_state.ended = reason
        if reason == WITHDRAWN:
            self._forget_name(seat_state.seat.name)
        # Written before the questions resolve, so that a resume cannot open the seat again.
        self.save_state()
        for question in seat_state.questions:
            if not question.reply.done():
                question.reply.set_result(_reply_without_answer(reason))
        seat_state.notify_change()

    def _forget_name(self, name: str) -> None:
        # The id of a recruitment site stays until the run ends: it leads back to the last page.
        ids = self._ids.get(name, {})
        if NAME in ids:
            self._ids[name] = {key: value for key, value in ids.items() if key != NAME}
            self._changed += 1

    def advance_clock(self) -> None:
        """Subtract the time since the last call from all time limits."""
        # Questions and seats without time left time out. The page server calls this method only
        # while the run is active.
        now = self.clock()
        elapsed, self._now = max(0.0, now - self._now), now
        if self.lobby is not None and self.lobby.is_open:
            self.lobby.advance_clock(elapsed)
            if not self.lobby.is_open:
                self._start_study(self._seated_names())
        for seat_state in list(self):
            question = self.current_question(seat_state)
            if seat_state.left is not None and not seat_state.has_agreed and not seat_state.ended:
                seat_state.left -= elapsed
                if seat_state.left <= 0:
                    self.close_seat(seat_state, SEAT_CLOSED)
            elif question is not None and question.left is not None:
                question.left -= elapsed
                if question.left <= 0 and not question.reply.done():
                    question.reply.set_result(_reply_without_answer(TIMED_OUT))
                    seat_state.notify_change()


def write_private(path: Path, data: Mapping[str, object]) -> None:
    """Write a JSON file that only the owner of the file can read.

    Raises StorageError if the disk cannot be written.
    """
    write_bytes(path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)


def _reply_from_text(text: str) -> Completion:
    return Completion(text, NO_USAGE, HUMAN_MODEL, "", "stop")


def _reply_without_answer(reason: str) -> Completion:
    return Completion("", NO_USAGE, HUMAN_MODEL, "", f"{FINISH_REFUSED}{reason}")


def read_seats(folder: Path) -> dict[Seat, str]:
    """Return a map from each seat of a run to the reason why the seat was closed.

    The reason is empty for an open seat. Raises StorageError if the file cannot be read.
    """
    path = folder / SEATS
    saved_state = read_json(path) if path.exists() else {"seats": {}}
    try:
        # Models play the open seats that no human had when the study started.
        humans = saved_state.get("entry", saved_state).get("humans", saved_state["seats"])
        return {
            Seat(saved_seat["id"], tuple(saved_seat["scopes"])): saved_seat["ended"]
            for name, saved_seat in saved_state["seats"].items()
            if name in humans
        }
    # The folder of a run may come from an untrusted source.
    except (AttributeError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: not the seats of a run") from error


def recruitment_ids(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return a map from seat name to the ids that a recruitment site gave to the human in the seat.

    Raises StorageError if the file cannot be read.
    """
    path = folder / PEOPLE
    link_ids = read_json(path) if path.exists() else {}
    if not isinstance(link_ids, dict):
        raise StorageError(f"{path}: not a list of ids of human participants")
    return link_ids
