"""The desk: where the questions to people wait for their answers.

`human` is one more provider: the gateway puts a request here in place of sending it, and awaits
what the person answers. Whoever serves the pages (`folkmoot.view.seat`) looks at a `Chair`, shows
its question and hands the answer in. All of it happens on the loop of the run.

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
from folkmoot.engine.seats.seats import Playable, Seats
from folkmoot.errors import StorageError
from folkmoot.files import write_bytes
from folkmoot.models.catalog import HUMAN
from folkmoot.models.request import NOTHING, Message, Reply, Request
from folkmoot.randomness import digest
from folkmoot.storage.json_files import read_json
from folkmoot.storage.run_folder import PEOPLE, SEATS

TOKEN_BYTES = 24
TOGETHER = 0.02  # seconds in which arrivals are written down together; a write takes as long
# Why a seat gives no more answers, as `Missing.reason` has it.
TIMED_OUT, DECLINED, CLOSED, WITHDRAWN = "timed out", "declined", "seat closed", "withdrawn"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a question looks like to the person asked: who they are, what they heard, the question,
    and how it is answered (`form` is choice, number, text or json). `sent` counts the messages that
    this stands for; any further messages of a request ask again."""

    who: Speaker
    heard: tuple[Utterance, ...]
    prompt: str
    form: str
    offered: tuple[str, ...]
    sent: int
    problem_with: Callable[[str], str] = lambda _text: ""  # why an answer could not be read


@dataclass(eq=False)
class Question:
    """One question that waits for a person. `id` names it in forms; `reply` and `kept` are set when
    it was answered and when the answer is on the disk."""

    id: str
    address: str
    request: Request
    scene: Scene
    reply: asyncio.Future[Reply]
    kept: asyncio.Event = field(default_factory=asyncio.Event)
    left: float | None = None  # seconds, once the clock of this question runs
    stored: bool = False

    @property
    def again(self) -> tuple[Message, ...]:
        """What follows the scene: a reply that could not be read, and why."""
        return self.request.messages[self.scene.sent :]


@dataclass(eq=False)
class Chair:
    """One seat during a run. `changed` is set whenever its page changes."""

    place: Playable
    token: str
    asked: list[Question] = field(default_factory=list)  # the first one is shown
    agreed: bool = False
    ended: str = ""  # why there are no more questions; `done` at the end of the run
    left: float | None = None  # seconds to arrive
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    here: bool = False  # its page was open while this process ran
    told_end: bool = False
    answers: int = 0
    read: set[str] = field(default_factory=set)  # system messages that they had before them

    def turn(self) -> None:
        """Wake the pages that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class Desk:
    """The seats of one run. `readers` names the models that will read what people write; `clock`
    gives seconds, and `tick` makes time pass."""

    def __init__(
        self,
        places: Sequence[Playable],
        settings: Seats,
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
        self._scenes: dict[str, tuple[Chair, Scene]] = {}
        known = read_json(self._path) if self._path.exists() else {}
        self.gone = False
        self.port: int | None = known.get("port")
        self.token = known.get("token") or secrets.token_urlsafe(TOKEN_BYTES)  # the researcher's
        self.readers: tuple[str, ...] = readers
        arrive = None if settings.arrive_minutes is None else settings.arrive_minutes * 60
        self.chairs: dict[str, Chair] = {}
        for place in places:
            was = known.get("seats", {}).get(place.name, {})
            chair = Chair(
                place,
                was.get("token") or secrets.token_urlsafe(TOKEN_BYTES),
                agreed=was.get("agreed", False),
                ended=was.get("ended", ""),
                left=arrive,
            )
            self.chairs[chair.token] = chair
        self._at = {c.place: c for c in self}
        self.save()

    def __iter__(self) -> Iterator[Chair]:
        return iter(self.chairs.values())

    def save(self) -> None:
        """Write down what a later process must know. Raises StorageError."""
        write_private(self._path, self._seats())
        if self._kept < self._changed and self._ids:
            write_private(self._people, self._ids)
        self._kept = self._changed

    async def kept(self) -> None:
        """Wait until who came, and with which ids, is on the disk: one write for all who arrive
        within a moment. Raises StorageError."""
        change = self._changed
        async with self._keeping:
            if self._kept < change:
                await asyncio.sleep(TOGETHER)
                self.save()

    def _seats(self) -> dict[str, object]:
        seats = {
            c.place.name: {
                "id": c.place.id,
                "scopes": c.place.scopes,
                "token": c.token,
                "agreed": c.agreed,
                "ended": "" if c.ended == "done" else c.ended,
            }
            for c in self
        }
        return {"port": self.port, "token": self.token, "seats": seats}

    # --- the engine's side ----------------------------------------------------------------------

    def expect(self, place: Playable, address: str, scene: Scene) -> None:
        """Say what the request at an address, and those that ask again, look like to the person."""
        self._scenes[address] = self._at[place], scene

    def put(self, address: str, request: Request) -> Question:
        """Put a request to its person; the question's `reply` is their answer."""
        chair, scene = self._scene(address)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # By what is asked as well: whoever answers in an old tab answers what stands there.
        name = digest(address, request.fingerprint(), size=9).hex()
        question = Question(name, address, request, scene, reply)
        if chair.ended:
            reply.set_result(_without(chair.ended))
            return question
        chair.asked.append(question)
        if len(chair.asked) == 1:
            self._start(chair)
        chair.turn()
        return question

    def take_back(self, question: Question, *, stored: bool) -> None:
        """The answer is on the disk, or the run stops and nobody will hear it."""
        chair, _ = self._scene(question.address)
        question.stored = stored
        question.kept.set()
        if question in chair.asked:
            chair.asked.remove(question)
            self._start(chair)
        chair.turn()

    def let_go(self) -> None:
        """Stop waiting for people: the study is over, and its user wants to leave."""
        self.gone = True

    def finish(self) -> None:
        """Nothing more will be asked: every seat is shown the end."""
        for chair in self:
            chair.ended = chair.ended or "done"
            chair.turn()

    def _scene(self, address: str) -> tuple[Chair, Scene]:
        # Further tries stand at <address>.r1, <address>.long and the like.
        while address not in self._scenes:
            address = address.rpartition(".")[0]
        return self._scenes[address]

    def _start(self, chair: Chair) -> None:
        """Let the clock of the first question run, if there is one and the person is there."""
        minutes = self.settings.minutes
        if minutes is not None and chair.asked and self.present(chair):
            chair.asked[0].left = chair.asked[0].left or minutes * 60

    # --- the page's side ------------------------------------------------------------------------

    def present(self, chair: Chair) -> bool:
        """Whether the person has come, and has agreed where that is asked."""
        return chair.agreed

    def shown(self, chair: Chair) -> Question | None:
        """The question to show to the person now, never one that was answered already."""
        return next((q for q in chair.asked if not q.reply.done()), None)

    def agree(self, chair: Chair) -> None:
        """The person has come and agrees to take part; `kept` says when it is on the disk."""
        if not chair.agreed and not chair.ended:
            chair.agreed, chair.left = True, None
            self._changed += 1
            self._start(chair)
            chair.turn()

    def note_ids(self, chair: Chair, query: Mapping[str, str]) -> None:
        """Note the ids of a link's query that the study file names, for a file of their own."""
        ids = {k: query[k][:200] for k in self.settings.query if query.get(k)}
        if ids and self._ids.get(chair.place.name) != ids:
            self._ids[chair.place.name] = ids
            self._changed += 1

    def waiting(self, chair: Chair, question_id: str) -> Question | None:
        """A question of this seat by its id, if its answer is not on the disk yet."""
        return next((q for q in chair.asked if q.id == question_id), None)

    async def answer(self, chair: Chair, question: Question, text: str | None) -> bool:
        """Hand an answer in (None: the person would rather not); whether it is on the disk.

        A question is answered once: what comes later for it, from a double click or another tab,
        changes nothing.
        """
        if not question.reply.done():
            question.reply.set_result(_without(DECLINED) if text is None else _said(text))
            chair.answers += 1
            chair.read.add(question.scene.who.system)
        await question.kept.wait()
        return question.stored

    def end(self, chair: Chair, why: str) -> None:
        """Close a seat: its questions, now and later, have no answer, for this reason."""
        if chair.ended:
            return
        chair.ended = why
        self.save()
        for question in chair.asked:
            if not question.reply.done():
                question.reply.set_result(_without(why))
        chair.turn()

    def tick(self) -> None:
        """Count the time that the clock says has passed. Called only while the run goes on."""
        now = self.clock()
        passed, self._now = max(0.0, now - self._now), now
        for chair in list(self):
            question = self.shown(chair)
            if chair.left is not None and not chair.agreed and not chair.ended:
                chair.left -= passed
                if chair.left <= 0:
                    self.end(chair, CLOSED)
            elif question is not None and question.left is not None:
                question.left -= passed
                if question.left <= 0 and not question.reply.done():
                    question.reply.set_result(_without(TIMED_OUT))
                    chair.turn()


def write_private(path: Path, data: Mapping[str, object]) -> None:
    """Write JSON that its owner alone may read. Raises StorageError."""
    write_bytes(path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)


def _said(text: str) -> Reply:
    return Reply(text, NOTHING, HUMAN, "", "stop")


def _without(reason: str) -> Reply:
    return Reply("", NOTHING, HUMAN, "", f"refused:{reason}")


def seats_in(folder: Path) -> dict[Playable, str]:
    """The seats of a run, and why each one gives no more answers (empty: it does). Raises
    StorageError."""
    path = folder / SEATS
    known = read_json(path)["seats"] if path.exists() else {}
    return {Playable(was["id"], tuple(was["scopes"])): was["ended"] for was in known.values()}


def recruitment_ids(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Seat → ids of the link's query; empty where there are none. Raises StorageError."""
    path = folder / PEOPLE
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise StorageError(f"{path}: not a list of people's ids")
    return found
