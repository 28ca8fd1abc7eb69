"""`folkmoot show RUN [ID]` for this study: the list of participants, or one whole conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from folkmoot.errors import InputError
from folkmoot.kit.exposure import in_prompts
from folkmoot.storage.files import read_items
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.exposure_design import FINAL, SUMMARIES


def show(run: RunFolder, who: str | None) -> str:
    """Rich markup. Raises InputError for an id that the run does not have."""
    people = read_items(run.path / "participants.json", "participants")
    if who is None:
        return "\n".join(_line(p) for p in people)
    ids: list[str] = []
    for p in people:
        if p["participant_id"] == who:
            return "\n".join(_portrait(p, in_prompts(run, who).get(FINAL)))
        ids = [*ids[:1], p["participant_id"]]
    raise InputError(f"{who}: no such participant; ids go from {ids[0]} to {ids[-1]}")


def _line(p: Mapping[str, object]) -> str:
    final = p["final_choice"]
    moved = f" → {final}" if p["position_changed"] else (" (kept)" if final else "")
    status = "" if p["status"] == "complete" else f"  [red]{p['status']}[/red]"
    return (
        f"[bold]{p['participant_id']}[/bold]  {p['condition']:<18}"
        f"{escape(str(p['initial_choice']))}{escape(moved)}{status}"
    )


def _portrait(p: Mapping[str, Any], in_view: list[str] | None) -> list[str]:
    """`in_view`: the kinds of text in the prompt of the final vote, None where it isn't known."""
    facts = ", ".join(f"{k} {v}" for k, v in p["demographics"].items())
    lines = [
        f"[bold]{p['participant_id']}[/bold] · {p['condition']} · {p['status']}"
        + (f" ({escape(p['error_message'])})" if p["error_message"] else ""),
        "",
        f"[dim]{escape(p['enriched_persona'])}[/dim]",
        f"[dim]{escape(facts)}[/dim]",
        "",
        f"First vote: [bold]{escape(str(p['initial_choice']))}[/bold]",
    ]
    lines += _talk("Clarification", p["clarification_transcript"])
    if p["individual_summary"]:
        lines += ["", f"Summary: {escape(p['individual_summary'])}"]
    if p["cluster_id"]:
        lines.append(f"Cluster: {escape(p['cluster_id'])}")
    if p["opposition_view"]:
        lines += ["", f"Opposing view: [bold]{escape(p['opposition_view'])}[/bold]"]
    lines += _talk("Adversarial dialogue", p["adversarial_transcript"])
    if in_view is not None:
        held = ", ".join(in_view) or "none of summaries, interview and dialogue"
        lines += ["", f"[underline]In the prompt of the final vote[/underline]: {held}"]
        page = (p["cross_pollination_content"] or "") if SUMMARIES in in_view else ""
        lines += [f"[dim]{escape(x)}[/dim]" for x in page.splitlines()]
    if p["final_choice"]:
        word = "changed" if p["position_changed"] else "kept"
        lines += ["", f"Final vote: [bold]{escape(p['final_choice'])}[/bold] ({word})"]
    return lines


def _talk(title: str, said: list[Mapping[str, str]] | None) -> list[str]:
    if not said:
        return []
    lines = ["", f"[underline]{title}[/underline]"]
    for turn in said:
        style = "bold cyan" if turn["role"] == "moderator" else "bold"
        lines.append(f"[{style}]{turn['role'].capitalize()}:[/{style}] {escape(turn['content'])}")
    return lines
