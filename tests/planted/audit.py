"""What a faithful cross-pollination pipeline must show: planted effects, and its own wiring.

Each check gives the faults it finds; a healthy run has none, a miswired one at least one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from sklearn.metrics import adjusted_rand_score

from folkmoot.engine.journal import Journal
from folkmoot.models.synthetic.latents import meet, persona_text
from folkmoot.models.synthetic.mirror import true_effects
from folkmoot.records.run_folder import RunFolder

KIND = {
    "simple_voting": "re_ask",
    "simple_passive": "summaries",
    "clarified_passive": "clarified",
    "acp": "adversarial",
}
TOLERANCE = 0.10  # points at 300 a condition, one seed


class Audit:
    """A finished run, read for auditing."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.people: list[dict[str, Any]] = run.json("participants.json")["participants"]
        self.clusters: list[dict[str, Any]] = run.json("cluster_embeddings.json")["clusters"]
        self.options: list[str] = run.config["topic"]["options"]

    @cached_property
    def requests(self) -> dict[str, str]:
        """All that was sent, by address."""
        with Journal(self.run.path / "journal.sqlite") as journal:
            return {
                e.address: "\n".join(m["content"] for m in e.request["messages"])
                for e in journal.entries("ask")
            }

    def rates(self) -> dict[str, float]:
        """Share that changed, by condition, as summary.json has it."""
        rows = self.run.json("summary.json")["by_condition"]
        return {c: float(rows[c]["position_changed_rate"]) for c in KIND}

    def truth(self) -> dict[str, float]:
        """The same shares as the respondent's own model has them for these very people."""
        found = {}
        for condition, kind in KIND.items():
            own = [p for p in self.people if p["condition"] == condition]
            effects = true_effects(
                [f"You are {p['enriched_persona']}" for p in own],
                self.options,
                seed=int(self.run.manifest["seed"]),
                settings=self.run.config.get("respondent") or {},
                opponents=[p["opposition_view"] for p in own],
            )
            found[condition] = float(effects["rates"][kind])
        return found

    def camps_recovered(self) -> float:
        """Adjusted Rand index of clusters within options against the camps planted in personas."""
        seed = int(self.run.manifest["seed"])
        scores = []
        for option in self.options:
            own = [p for p in self.people if p["cluster_id"] and p["initial_choice"] == option]
            camps = [meet(persona_text(f"You are {p['enriched_persona']}"), seed).camp for p in own]
            scores.append(adjusted_rand_score(camps, [p["cluster_id"] for p in own]))
        return sum(scores) / len(scores)

    def faults(self, tolerance: float = TOLERANCE) -> list[str]:
        """Everything that is wrong with this run."""
        return [*self._effects(tolerance), *self._wiring()]

    def _effects(self, tolerance: float) -> Iterator[str]:
        rates, truth = self.rates(), self.truth()
        for condition in KIND:
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
        for address, text in self.requests.items():
            stage, *rest = address.split("/")
            who = next((by_id[part] for part in rest if part in by_id), None)
            if address.startswith("cross_pollination/p_") and page not in text:
                yield f"{address}: not the summaries of all options"
            if "/summary/" in address and who is not None:
                said = [t["content"] for t in who["clarification_transcript"]]
                if any(words not in text for words in said):
                    yield f"{address}: not this participant's interview"
            if stage == "adversarial_dialogue" and "You just had" in text and who is not None:
                said = [t["content"] for t in who["adversarial_transcript"]]
                if any(words not in text for words in said):
                    yield f"{address}: not this participant's dialogue"
            if stage == "adversarial_dialogue" and rest[-1] == "ask0" and page not in text:
                yield f"{address}: the moderator does not know the summaries"
        yield from self._cluster_wiring(by_id)

    def _page(self) -> str:
        """What the summaries must look like, from the clusters as they were saved."""
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


def quoted(name: str) -> str:
    """A name as one component of an address."""
    return name.replace("%", "%25").replace("/", "%2F")
