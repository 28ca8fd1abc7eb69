"""Forks: runs that repeat an earlier run except for one changed reply."""

# The new run has its own journal. If it makes the same request at the same address as the earlier
# run, the earlier entry is copied at no cost. So exactly the calls that depend on the changed reply
# are made again. `ReplyChange` is stored in `plan.json` of the new run.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from folkmoot.engine.journal.journal_file import JournalEntry, format_difference
from folkmoot.errors import DriftError

# The value of `model_served` for a reply that a researcher gave by hand.
RESEARCHER = "researcher"
# The reason of an answer that a researcher removed.
DROPPED = "dropped"
# The value of `attempts` for an entry that was copied from another run or given by hand. A real
# call has at least one attempt.
TAKEN_OVER = 0


@dataclass(frozen=True)
class ReplyChange:
    """The one reply in which a fork differs from the earlier run."""

    # The folder of the earlier run relative to the new one.
    run: str
    run_id: str
    # The content digest of the earlier journal.
    journal_digest: str
    address: str
    # The raw reply that the researcher gives. None if the reply is left out (`dropped`), comes from
    # another `model`, or stays unchanged.
    reply: str | None = None
    dropped: bool = False
    model: str | None = None
    # Added to the seed that models are sent, so that models which accept a seed give another
    # answer.
    draw: int = 0
    # Further addresses to ask again.
    asked_again: tuple[str, ...] = ()

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> ReplyChange | None:
        """Return the changed reply that `plan.json` names, or None if the run is no fork.

        Raises TypeError for unknown fields.
        """
        sealed = plan.get("sealed", {}).get("fork")
        if sealed is None:
            return None
        data = dict(sealed["data"])
        return cls(**{**data, "asked_again": tuple(data.get("asked_again", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return the change as it is written to `plan.json`."""
        return {**asdict(self), "asked_again": list(self.asked_again)}

    @property
    def is_given(self) -> bool:
        """True if the researcher wrote or dropped the changed reply, so that no model is asked."""
        return self.dropped or self.reply is not None

    def count_copied(self, taken_over: int) -> int:
        """Return how many replies of the fork are those of the earlier run.

        `taken_over`: the number of entries without a call. It includes the reply that the
        researcher gave in place of one of the run.
        """
        return taken_over - self.is_given

    def gives(self, address: str) -> bool:
        """Return whether the researcher wrote or dropped the reply at this address."""
        return self.is_given and address == self.address

    def apply_to(self, entry: JournalEntry) -> JournalEntry:
        """Return a copy of `entry` that holds the changed reply and counts zero tokens.

        `entry`: the entry in the earlier run.
        """
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
    def entry_at(self, address: str, /) -> JournalEntry | None: ...

    def close(self) -> None: ...


class EarlierReplies:
    """The journal of the earlier run, from which a fork copies entries.

    - `is_changed`: True if the fork has reached the changed reply.
    """

    # Before the changed reply a missing entry is an error, because the program or the study must
    # have changed.
    def __init__(self, journal: _Readable, change: ReplyChange, *, is_changed: bool) -> None:
        self._journal = journal
        self._change = change
        self._asked_again = frozenset(change.asked_again)
        self._is_changed = is_changed

    def take(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """Return the entry to copy for an address, or None if a call is needed.

        `fingerprint`, `request`: the fork's request at the address.

        Raises DriftError if the two runs differ already before the changed reply.
        """
        change = self._change
        earlier = self._journal.entry_at(address)
        is_same = earlier is not None and earlier.fingerprint == fingerprint
        if address == change.address:
            # Another model is another request, and is asked.
            if not is_same and change.model is None:
                raise self._drift_error(address, earlier, request)
            self._is_changed = True
            if change.model is not None:
                return None
        if earlier is None or not is_same:
            if not self._is_changed:
                raise self._drift_error(address, earlier, request)
            return None
        # Only after the drift check: an address to ask again must also exist in the earlier run.
        if address in self._asked_again:
            return None
        # The earlier run has paid for it.
        taken = earlier._replace(cost_usd=0.0, attempts=TAKEN_OVER)
        return change.apply_to(taken) if address == change.address and change.is_given else taken

    def close(self) -> None:
        """Close the journal of the earlier run."""
        self._journal.close()

    def _drift_error(
        self,
        address: str,
        earlier: JournalEntry | None,
        request: Callable[[], Mapping[str, object]],
    ) -> DriftError:
        difference = (
            f"\n{format_difference(earlier.request, request())}"
            if earlier is not None
            else " was not asked there."
        )
        return DriftError(
            f"{address}: this run differs from {self._change.run_id} already before the changed "
            "reply, so it cannot be a fork of it. Use the files and the version of Folkmoot "
            f"with which the run was made.{difference}"
        )
