"""The one-file study type in `examples/`: it imports only public names of the package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import folkmoot
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_study_type_needs_one_short_file_and_public_names_only() -> None:
    code = (EXAMPLES / "delphi.py").read_text("utf-8")
    nodes = list(ast.walk(ast.parse(code)))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    others = modules - sys.stdlib_module_names
    assert others == {"folkmoot"}
    assert len(code.splitlines()) < 80


def test_the_panel_estimates_twice_and_gives_reasons(tmp_path: Path) -> None:
    run = folkmoot.run(
        EXAMPLES / "delphi.yaml", model="synthetic", out=tmp_path / "run", trust=True
    )
    estimates = run.table("estimates")
    assert estimates["round"].value_counts().sort("round")["count"].to_list() == [12, 12]
    assert estimates["estimate"].is_between(0, 100).all()
    assert estimates.filter(round=1)["main_reason"].null_count() == 0
    assert run.folder.codebook()["estimates"]["columns"]["main_doubt"]["meaning"]
    finding = run.findings[0]
    assert "Round 2: median" in finding.says


def test_the_second_round_shows_the_median_and_every_reason(tmp_path: Path) -> None:
    prompts_by_panelist: dict[str, str] = {}
    reasons_asked: dict[str, str] = {}

    def answer(request: ModelRequest, address: str) -> str:
        if address.startswith("round1/") and request.schema is not None:
            reasons_asked[address.split("/")[1]] = request.messages[-1].content
        if address.startswith("round2/"):
            prompts_by_panelist.setdefault(address.split("/")[1], request.messages[-1].content)
        if request.schema is not None:
            return f'{{"main_reason": "Because of {address.split("/")[1]}", "main_doubt": "None"}}'
        return "I cannot say" if "q_00001/" in address else "30"

    run = folkmoot.run(
        EXAMPLES / "delphi.yaml",
        out=tmp_path / "run",
        trust=True,
        provider=ScriptedProvider(answer),
    )
    assert run.table("estimates")["estimate"].null_count() == 2
    reasons = [f"- Because of q_{n:05}" for n in range(1, 13)]
    assert len(prompts_by_panelist) == 12 and all(
        reason in prompt for prompt in prompts_by_panelist.values() for reason in reasons
    )
    assert all("median is 30." in prompt for prompt in prompts_by_panelist.values())
    assert "estimate, and what against" in reasons_asked["q_00001"]
    assert "estimate (30.0), and what against" in reasons_asked["q_00002"]
    assert (
        "You estimated" not in prompts_by_panelist["q_00001"]
        and "You estimated 30.0." in prompts_by_panelist["q_00002"]
    )


def test_a_round_with_one_estimate_has_a_finding(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        if request.schema is not None:
            return '{"main_reason": "Because", "main_doubt": "None"}'
        return "42" if "q_00001/" in address or "round2/" in address else "I cannot say"

    run = folkmoot.run(
        EXAMPLES / "delphi.yaml",
        out=tmp_path / "run",
        trust=True,
        provider=ScriptedProvider(answer),
    )
    finding = run.findings[0]
    assert "Round 1: median 42 of 1 estimates, quartiles 42 to 42." in finding.says
    assert "Round 2: median 42 of 12 estimates" in finding.says
