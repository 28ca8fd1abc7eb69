"""Audit a cross-pollination run: planted effects and the wiring of the pipeline.

Each check returns the faults that it finds. A correct run has none, a miswired run at least one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from sklearn.metrics import adjusted_rand_score

from folkmoot.engine.journal.journal import Journal
from folkmoot.respondent.mind.persona import persona_from_text
from folkmoot.storage.run_folder import RunFolder
from tests.planted.mirror import Exposure, compute_true_rates

# What a faithful pipeline exposes people to between their two votes: a page with about 45 of the
# respondent's 80 argument words for each option, and a dialogue of three turns about one of them.
EXPOSED = {
    "simple_voting": Exposure(),
    "simple_passive": Exposure(read=45),
    "clarified_passive": Exposure(read=45, interviewed=True),
    "acp": Exposure(read=45, turns=3, interviewed=True),
}
TOLERANCE = 0.10  # points at 300 a condition, one seed


class Audit:
    """A finished run, read for auditing."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.people: list[dict[str, Any]] = run.read_json("participants.json")["participants"]
        self.clusters: list[dict[str, Any]] = run.read_json("cluster_embeddings.json")["clusters"]
        self.options: list[str] = run.config["topic"]["options"]

    @cached_property
    def requests(self) -> dict[str, str]:
        """All requests by address."""
        with Journal(self.run.path / "journal.sqlite") as journal:
            return {
                e.address: "\n".join(m["content"] for m in e.request["messages"])
                for e in journal.read_entries("ask")
            }

    def rates(self) -> dict[str, float]:
        """Return the share of changed positions by condition, from summary.json."""
        rows = self.run.read_json("summary.json")["by_condition"]
        return {c: float(rows[c]["position_changed_rate"]) for c in EXPOSED}

    def truth(self) -> dict[str, float]:
        """Return the same shares as the respondent's model predicts them for these participants."""
        found = {}
        for condition, exposure in EXPOSED.items():
            own = [p for p in self.people if p["condition"] == condition]
            rates = compute_true_rates(
                [p["enriched_persona"] for p in own],
                self.options,
                exposure,
                seed=int(self.run.manifest["seed"]),
                settings=self.run.config.get("respondent") or {},
                against=_count_opposing_views(own),
            )
            found[condition] = sum(rates) / len(rates)
        return found

    def camps_recovered(self) -> float:
        """Return the adjusted Rand index of clusters within options against the planted camps."""
        seed = int(self.run.manifest["seed"])
        scores = []
        for option in self.options:
            own = [p for p in self.people if p["cluster_id"] and p["initial_choice"] == option]
            camps = [persona_from_text(p["enriched_persona"], seed).camp for p in own]
            scores.append(adjusted_rand_score(camps, [p["cluster_id"] for p in own]))
        return sum(scores) / len(scores)

    def faults(self, tolerance: float = TOLERANCE) -> list[str]:
        """Return all faults of this run."""
        return [*self._effects(tolerance), *self._wiring()]

    def _effects(self, tolerance: float) -> Iterator[str]:
        rates, truth = self.rates(), self.truth()
        for condition in EXPOSED:
            if abs(rates[condition] - truth[condition]) > tolerance:
                yield f"{condition}: {rates[condition]:.3f}, planted {truth[condition]:.3f}"
        passive = (rates["simple_passive"] + rates["clarified_passive"]) / 2
        if not rates["acp"] > passive > rates["simple_voting"]:
            yield f"the planted order of the conditions is lost: {rates}"
        if self.camps_recovered() < 0.8:
            yield f"clusters are not the planted camps: ARI {self.camps_recovered():.2f}"

    def _wiring(self) -> Iterator[str]:
        by_id = {p["participant_id"]: p for p in self.people}
        page = self._page()
        # The last question to a participant in a stage is the vote.
        votes = {a.rpartition("/")[0]: a for a in sorted(self.requests, key=_number)}.values()
        for address, text in self.requests.items():
            stage, *rest = address.split("/")
            who = next((by_id[part] for part in rest if part in by_id), None)
            if address.startswith("cross_pollination/p_") and page not in text:
                yield f"{address}: not the summaries of all options"
            if "/summary/" in address and who is not None:
                said = [t["content"] for t in who["clarification_transcript"]]
                if any(words not in text for words in said):
                    yield f"{address}: not this participant's interview"
            if address in votes and stage == "adversarial_dialogue" and who is not None:
                said = [t["content"] for t in who["adversarial_transcript"]]
                if any(words not in text for words in said):
                    yield f"{address}: not this participant's dialogue"
            if stage == "adversarial_dialogue" and rest[-1] == "ask0" and page not in text:
                yield f"{address}: the moderator does not know the summaries"
        yield from self._cluster_wiring(by_id)

    def _page(self) -> str:
        """Return the expected summaries, made from the saved clusters."""
        parts = []
        for option in self.options:
            own = [c["description"] for c in self.clusters if c["option"] == option]
            if own:
                numbered = "\n\n".join(f"Position {n}: {d}" for n, d in enumerate(own, 1))
                parts.append(f"## {option}\n\n{numbered}")
        return "\n\n".join(parts)

    def _cluster_wiring(self, by_id: dict[str, dict[str, Any]]) -> Iterator[str]:
        for cluster in self.clusters:
            option, key = (quoted(cluster[name]) for name in ("option", "cluster_id"))
            text = self.requests[f"summaries/{option}/descriptions/{key}/ask0"]
            for who in cluster["member_ids"]:
                person = by_id[who]
                if person["individual_summary"] not in text:
                    yield f"{key}: described without {who}"
                if person["initial_choice"] != cluster["option"]:
                    yield f"{key}: {who} chose another option"
        for person in by_id.values():
            if person["condition"] == "acp" and person["status"] == "complete":
                view = person["opposition_view"]
                if view == person["initial_choice"]:
                    yield f"{person['participant_id']}: opposed with the own choice"


def _count_opposing_views(people: list[dict[str, Any]]) -> dict[str, Counter[str]] | None:
    """Return how often each option opposed each first vote, or None without opposing views."""
    views: dict[str, Counter[str]] = {}
    for p in people:
        if p["opposition_view"]:
            views.setdefault(p["initial_choice"], Counter())[p["opposition_view"]] += 1
    return views or None


def _number(address: str) -> int:
    return int(re.findall(r"\d+", address)[-1])


def quoted(name: str) -> str:
    """Quote a name as one component of an address."""
    return name.replace("%", "%25").replace("/", "%2F")
