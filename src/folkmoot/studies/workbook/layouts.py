"""The layouts of this family of workbooks: which sheet, key and column is called what.

Each layout is an adapter of data alone: our name → its name. `reading.py` asks for our names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rapidfuzz import fuzz, process

from folkmoot.errors import Problem

SHEETS = ("settings", "treatments", "roles", "tasks", "profiles", "constants")
COMPUTED = "computed"
NOTES_SHEET = "notes"  # words for people; not read

SETTINGS = (
    "experiment_id",
    "model_info",
    "api_endpoint",
    "temperature",
    "num_agents_per_session",
    "num_sessions",
    "max_conversation_length",
    "treatment_assignment_strategy",
    "treatment_column",
    "session_assignment_strategy",
    "session_column",
    "role_assignment_strategy",
    "role_column",
    "random_seed",
)
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "treatments": ("treatment_label", "treatment_description"),
        "roles": ("role_label", "role_description"),
        "tasks": (
            "task_id",
            "type",
            "task_order",
            "is_adapted",
            "human_text",
            "llm_text",
            "var_name",
            "var_type",
            "response_options",
            "randomize_response_order",
            "validate_response",
            "generate_speculation_score",
            "format_response",
        ),
        "constants": ("name", "value"),
        COMPUTED: ("name", "scope", "expression"),
    }
)


@dataclass(frozen=True)
class Layout:
    """Names of one layout. What is not mentioned is called as in the source's own layout.

    `more_settings` are keys beyond the canonical ones; `optional` may be absent. `fixed` are
    settings that this layout implies. `texts_may_be_dicts`: treatments and roles with attributes.
    """

    name: str
    title: str
    sheets: Mapping[str, str]
    settings_header: str = "experimental_setting"
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    more_settings: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    texts_may_be_dicts: bool = False

    def sheet(self, ours: str) -> str:
        return self.sheets.get(ours, ours)

    def setting(self, ours: str) -> str:
        return self.settings.get(ours, ours)

    def column(self, sheet: str, ours: str) -> str:
        return self.columns.get(f"{sheet}.{ours}", ours)

    @property
    def keys(self) -> tuple[str, ...]:
        return (*SETTINGS, *self.more_settings)


AGENT_ROLES = Layout(
    "agent_roles",
    "the documented layout (agent_roles, agent_profiles)",
    {
        "settings": "experimental_setting",
        "treatments": "treatments",
        "roles": "agent_roles",
        "tasks": "interview_prompts",
        "profiles": "agent_profiles",
        "constants": "constants",
    },
    more_settings=("include_backstories",),
    optional=("include_backstories",),
)
ROLES = Layout(
    "roles",
    "the layout with roles and demographic_profiles",
    {**AGENT_ROLES.sheets, "roles": "roles", "profiles": "demographic_profiles"},
    settings={
        "api_endpoint": "hf_inference_endpoint",
        "num_agents_per_session": "num_subjects_per_session",
    },
    more_settings=("include_backstories",),
    optional=("include_backstories",),
)
SHORT = Layout(
    "short",
    "the layout with short names (settings, treatment, role, prompt, profile, constant)",
    {
        "settings": "settings",
        "treatments": "treatment",
        "roles": "role",
        "tasks": "prompt",
        "profiles": "profile",
        "constants": "constant",
    },
    settings_header="settings_label",
    settings={
        "experiment_id": "session_id",
        "api_endpoint": "hf_inference_endpoint",
        "num_agents_per_session": "num_subjects_per_group",
        "num_sessions": "num_groups",
        "max_conversation_length": "max_num_rounds",
        "session_assignment_strategy": "group_assignment_strategy",
        "session_column": "group_column",
        "show_profile": "build_profile_qna",
        "include_backstories": "build_profile_backstories",
    },
    columns={
        "treatments.treatment_description": "value",
        "roles.role_description": "value",
        "tasks.task_id": "round_id",
        "tasks.task_order": "round_order",
        "tasks.var_name": "response_name",
        "tasks.var_type": "response_type",
    },
    more_settings=("show_profile", "include_backstories"),
    # There the treatment is shown where a prompt says {{ treatment.description }}, private
    # answers stay private, and the limit counts rounds.
    fixed={"treatment_in_system": False, "reveal_private": False},
    texts_may_be_dicts=True,
)
LAYOUTS = (AGENT_ROLES, ROLES, SHORT)

# Names that one key or column had at one time or another, for workbooks between two layouts.
_ALIASES: tuple[tuple[str, ...], ...] = (
    ("api_endpoint", "hf_inference_endpoint"),
    ("num_agents_per_session", "num_subjects_per_session", "num_subjects_per_group"),
    ("num_sessions", "num_groups"),
    ("session_assignment_strategy", "group_assignment_strategy"),
    ("session_column", "group_column"),
    ("experiment_id", "session_id"),
    ("task_id", "round_id"),
    ("task_order", "round_order"),
    ("var_name", "response_name"),
    ("var_type", "response_type"),
)


def names_for(name: str) -> tuple[str, ...]:
    """The name itself first, then what the other layouts call the same thing."""
    group = next((g for g in _ALIASES if name in g), (name,))
    return (name, *(other for other in group if other != name))


def recognise(sheet_names: Collection[str]) -> tuple[Layout, Mapping[str, str]]:
    """The layout that fits best, and our sheet name → the sheet that holds it."""

    def fit(layout: Layout) -> int:
        return sum(name in sheet_names for name in layout.sheets.values())

    best = max(LAYOUTS, key=fit)  # the documented one wins a tie, it stands first
    found: dict[str, str] = {}
    for ours in SHEETS:
        candidates = [best.sheet(ours), *(other.sheet(ours) for other in LAYOUTS)]
        match = next((name for name in candidates if name in sheet_names), None)
        if match is not None:
            found[ours] = match
    if COMPUTED in sheet_names:
        found[COMPUTED] = COMPUTED
    return best, found


def sheet_problems(
    layout: Layout,
    found: Mapping[str, str],
    sheet_names: Collection[str],
    hidden: Collection[str] = (),
) -> list[Problem]:
    """Missing sheets and extra ones (also those out of sight), each with the likely mend."""
    extra = [n for n in sheet_names if n not in found.values() and n != NOTES_SHEET]
    problems: list[Problem] = []
    for ours in SHEETS:
        if ours in found:
            continue
        wanted = layout.sheet(ours)
        guess = process.extractOne(
            wanted, extra, scorer=fuzz.WRatio, processor=str.casefold, score_cutoff=80
        )
        mend = f"rename {guess[0]!r} to {wanted!r}" if guess else f"add a sheet named {wanted!r}"
        if guess:
            extra.remove(guess[0])
        problems.append(Problem(f"the sheet {wanted} is missing", mend=mend))
    known = ", ".join(layout.sheets.values())
    wanted = f"sheets are {known} and, if wanted, {COMPUTED} and {NOTES_SHEET}"
    for name in extra:
        what, first = ("hidden sheet", "unhide it, then ") if name in hidden else ("sheet", "")
        problems.append(
            Problem(
                f"the {what} {name!r} does not belong here",
                where=name,
                mend=f"{first}delete or rename it; {wanted}",
            )
        )
    return problems


def describe(layout: Layout, found: Mapping[str, str]) -> str:
    """The line that says which layout was found."""
    odd = [s for ours, s in found.items() if ours != COMPUTED and s != layout.sheet(ours)]
    mixed = f"; from another layout: {', '.join(odd)}" if odd else ""
    seventh = "; with computed values" if COMPUTED in found else ""
    return f"layout: {layout.title}{mixed}{seventh}"
