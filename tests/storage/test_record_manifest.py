"""The manifest: totals, unknown prices, how answers were read, and software versions."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from folkmoot.storage.json_files import format_json
from folkmoot.storage.manifest import (
    ModelUsage,
    RunFacts,
    build_manifest,
    direct_dependencies,
    file_hashes,
    software_versions,
)


def build_facts(
    models: dict[str, ModelUsage] | None = None, synthetic: tuple[str, ...] = ()
) -> RunFacts:
    return RunFacts(
        run_id="r1",
        study="mine",
        outcome="done",
        seed=7,
        synthetic=synthetic,
        started_at="2026-01-01T00:00:00+00:00",
        finished_at="2026-01-01T00:01:00+00:00",
        wall_seconds=60.0,
        models=models or {},
    )


def test_totals_add_up_over_models() -> None:
    data = build_manifest(
        build_facts(
            {
                "a": ModelUsage(3, 0, 30, 6, 0, 0.5, served_models={"a-1"}),
                "b": ModelUsage(2, 0, 20, 4, 0, 0.25),
            }
        ),
        {},
    )
    assert (data["calls"], data["input_tokens"], data["output_tokens"]) == (5, 50, 10)
    assert data["cost_usd"] == 0.75
    assert data["cost_unknown_for"] == []
    assert "mark" not in data
    format_json(data)


def test_unknown_price_is_unknown_and_not_zero() -> None:
    assert (
        build_manifest(build_facts({"a": ModelUsage(calls=1, calls_without_price=1)}), {})[
            "cost_usd"
        ]
        is None
    )
    mixed = build_manifest(
        build_facts(
            {
                "a": ModelUsage(calls=1, calls_without_price=1),
                "b": ModelUsage(calls=1, cost_usd=0.5),
            }
        ),
        {},
    )
    assert (mixed["cost_usd"], mixed["cost_unknown_for"]) == (0.5, ["a"])


def test_label_is_set_for_every_synthetic_run() -> None:
    data = build_manifest(build_facts(synthetic=("participant",)), {})
    assert data["mark"] == "SYNTHETIC"
    assert "no evidence" in data["note"]


def test_parse_steps_are_shares_and_missing_answers_have_reasons() -> None:
    answers = pl.DataFrame(
        {
            "parse_step": ["exact", "exact", "named", "missing"],
            "missing": [None, None, None, "refused"],
            "reasks": [0, 0, 1, 2],
        }
    )
    answer_summary = build_manifest(build_facts(), {"answers": answers.lazy()})["answers"]
    assert answer_summary == {
        "count": 4,
        "parse_steps": {"exact": 0.5, "missing": 0.25, "named": 0.25},
        "reasks": 3,
        "missing": {"refused": 1},
    }


def test_software_names_every_direct_dependency() -> None:
    names = direct_dependencies("folkmoot")
    assert "pydantic" in names
    assert "pytest" not in names
    assert software_versions()["packages"]["pydantic"] != "not installed"
    assert direct_dependencies("no-such-package") == []


def test_hashes_cover_the_existing_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    empty_file_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert file_hashes(tmp_path, ["b", "a"]) == {"b": empty_file_hash}
