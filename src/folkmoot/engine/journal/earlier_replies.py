"""A run that repeats another one but for one reply: what is changed, and what is taken over.

The new run has a journal of its own. An effect that the earlier run made with the same request at
the same address is copied into it and costs nothing; the fingerprint decides. So whatever depends
on the changed reply is asked, and nothing else is.

`ReplyChange` is sealed in the plan of the new run; `EarlierReplies` is what its journal looks in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from folkmoot.engine.journal.journal_file import JournalEntry, format_difference
from folkmoot.errors import DriftError

RESEARCHER = "researcher"  # who served a reply that was given by hand
DROPPED = "dropped"  # the reason of a missing answer that was left out by hand
TAKEN_OVER = 0  # attempts of an entry that was copied from another run, or given by hand


@dataclass(frozen=True)
class ReplyChange:
    """The one reply in which a run differs from the run that it repeats.

    `run` is the folder of the earlier run as seen from the new one, `journal_digest` the content
    digest of its journal. `reply` is the raw reply that is given by hand, None where the reply is
    left out (`dropped`), comes from another `model`, or stays as it was. `asked_again` are further
    addresses of which the earlier reply is not taken. `draw` is added to the seed that models are
    sent, so that the embedded respondent and vendors that take a seed answer afresh; 0: as it was.
    """

    run: str
    run_id: str
    journal_digest: str
    address: str
    reply: str | None = None
    dropped: bool = False
    model: str | None = None
    draw: int = 0
    asked_again: tuple[str, ...] = ()

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> ReplyChange | None:
        """The change that a plan has sealed; None where it has none. Raises TypeError."""
        sealed = plan.get("sealed", {}).get("fork")
        if sealed is None:
            return None
        data = dict(sealed["data"])
        return cls(**{**data, "asked_again": tuple(data.get("asked_again", ()))})

    def to_json(self) -> dict[str, Any]:
        """The change as it is sealed in the plan."""
        return {**asdict(self), "asked_again": list(self.asked_again)}

    @property
    def is_given(self) -> bool:
        """Whether the changed reply is given by hand, and no model is asked for it."""
        return self.dropped or self.reply is not None

    def gives(self, address: str) -> bool:
        """Whether the reply at this address is given by hand."""
        return self.is_given and address == self.address

    def applied_to(self, entry: JournalEntry) -> JournalEntry:
        """The entry of the earlier run with the reply that is given in its place. Nothing was asked
        for it, so it used no tokens."""
        return entry._replace(
            reply=self.reply or "",
            finish=f"refused:{DROPPED}" if self.dropped else "stop",
            input_tokens=0,
            output_tokens=0,
            cached_tokens=0,
            model_served=RESEARCHER,
            request_id="",
        )


class _Readable(Protocol):
    """A journal that is open to read."""

    def entry_at(self, address: str, /) -> JournalEntry | None: ...

    def close(self) -> None: ...


class EarlierReplies:
    """The journal of the earlier run, as the new run sees it.

    `is_changed`: whether the run has come to the changed reply. Until then nothing may differ:
    what is not in the earlier journal means that this is another program or another study.
    """

    def __init__(self, journal: _Readable, change: ReplyChange, *, is_changed: bool) -> None:
        self._journal = journal
        self._change = change
        self._asked_again = frozenset(change.asked_again)
        self._is_changed = is_changed

    def take(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """The entry for an address, as it is to be copied; None where it has to be asked for.

        Raises DriftError where the run differs from the earlier one before the changed reply.
        """
        change = self._change
        earlier = self._journal.entry_at(address)
        is_same = earlier is not None and earlier.fingerprint == fingerprint
        if address == change.address:
            # Another model is another request, and is asked.
            if not is_same and change.model is None:
                raise self._drifted(address, earlier, request)
            self._is_changed = True
            if change.model is not None:
                return None
        if earlier is None or not is_same:
            if not self._is_changed:
                raise self._drifted(address, earlier, request)
            return None
        if address in self._asked_again:
            return None
        taken = earlier._replace(cost_usd=0.0, attempts=TAKEN_OVER)
        return change.applied_to(taken) if address == change.address and change.is_given else taken

    def close(self) -> None:
        """Close the journal of the earlier run."""
        self._journal.close()

    def _drifted(
        self,
        address: str,
        earlier: JournalEntry | None,
        request: Callable[[], Mapping[str, object]],
    ) -> DriftError:
        told = (
            f"\n{format_difference(earlier.request, request())}"
            if earlier is not None
            else " was not asked there."
        )
        return DriftError(
            f"{address}: before the changed reply this run already differs from "
            f"{self._change.run_id}, so it is no fork of it. Use the version of Folkmoot and the "
            f"files that the run was made with.{told}"
        )
