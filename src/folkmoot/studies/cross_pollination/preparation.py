"""Before and after a run: a rehearsal, a smaller version, a template, and whether it was of use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl

from folkmoot.measures.power import DesignSize
from folkmoot.people.sources import quota
from folkmoot.randomness import generator
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig, Exposed


def unusable(run: RunFolder) -> str:
    """Why nothing in a pilot is of use. One that ended early still has its votes."""
    if run.json("summary.json")["terminated_early"] and not _lacks(run, "initial_choice"):
        return ""
    if _lacks(run, "initial_choice"):
        return "no participant gave a valid first vote"
    config = CrossPollinationConfig.model_validate(run.config)
    informed = [name for name, shown in config.arms.items() if shown != Exposed()]
    voted = run.lazy("participants").filter(pl.col("condition").is_in(informed))
    if not informed or voted.select(pl.col("final_choice").count()).collect().item():
        return ""
    if config.those_with("interview") and _lacks(run, "individual_summary"):
        return "all interviews failed, so there was nothing to show"
    if config.those_with("summaries") and not any(run.table("clusters")["description"]):
        return "no group of reasons could be described, so there was nothing to show"
    return "nobody gave a valid final vote"


def _lacks(run: RunFolder, column: str) -> bool:
    return bool(run.lazy("participants").select(pl.col(column).is_null().all()).collect().item())


def rehearsal(config: CrossPollinationConfig, folder: Path) -> CrossPollinationConfig:
    """The same pilot with a copy of the pool, and stand-ins for lines that would be fetched."""
    named = config.personas
    if named.made or named.source == "table":
        return config
    pool, copy = Path(named.pool).expanduser(), folder / "pool.json"
    if pool.is_file():
        shutil.copyfile(pool, copy)
    changes: dict[str, object] = {"pool": str(copy)}
    if named.file is None:
        lines = folder / "lines.jsonl"
        people = quota.make(3 * config.n, generator(config.random_seed, ("rehearsal",)))
        lines.write_text("".join(json.dumps({"persona": p.text}) + "\n" for p in people), "utf-8")
        changes["file"] = str(lines)
    return config.model_copy(update={"personas": named.model_copy(update=changes)})


def cut(config: CrossPollinationConfig, limit: int) -> CrossPollinationConfig:
    """The same pilot with at most `limit` participants, at least one a condition, and no more draws
    of the summaries than a condition has readers."""
    per = max(1, min(config.participants_per_condition, limit // len(config.arms)))
    draws = min(config.summary_draws, per)
    return config.model_copy(update={"participants_per_condition": per, "summary_draws": draws})


def template() -> dict[str, str | bytes]:
    """A first study file."""
    return {"cross_pollination.yaml": (Path(__file__).parent / "template.yaml").read_bytes()}


def size(config: CrossPollinationConfig, _folder: Path) -> DesignSize:
    """How large the design is, for `folkmoot power`."""
    per = config.participants_per_condition
    key = ("participants_per_condition", per)
    return DesignSize("independent", len(config.arms), per, setting=key)
