"""The GUIDE-LLM reporting checklist, filled in as far as a program can, the rest named as blank.

Core items after Feuerriegel et al., "GUIDE-LLM: a reporting checklist for LLMs in behavioural
science" (https://llm-checklist.com/checklist), in our own words.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.records.findings import Grid
from folkmoot.records.run_folder import RunFolder

BLANK = "to be filled in by the authors"


def checklist(run: RunFolder) -> Grid:
    """Item, what it asks, the answer or that it is blank."""
    rows = [(item, asks, fill(run) if fill else BLANK) for item, asks, fill in ITEMS]
    return Grid(("item", "asks for", "answer"), tuple(rows))


def _use(run: RunFolder) -> str:
    return f"Simulated participants and other roles of a {run.study.replace('_', ' ')} study."


def _versions(run: RunFolder) -> str:
    used = [
        f"{m['asked']} (served as {', '.join(m['served']) or 'not said'})"
        for m in run.manifest.get("models", [])
    ]
    return (
        f"{'; '.join(used)}; accessed from {_day(run, 'started_at')} to {_day(run, 'finished_at')}"
    )


def _parameters(run: RunFolder) -> str:
    config = run.config
    return (
        f"temperature {config.get('temperature', 'provider default')}, longest reply "
        f"{config.get('max_tokens', 'provider default')}, random seed of the design "
        f"{run.manifest.get('seed')}, one run"
    )


def _prompts(run: RunFolder) -> str:
    sealed = run.plan.get("sealed", {}).get("design", {}).get("data", {})
    count = len(sealed.get("prompts", {}))
    return (
        f"{count} prompt files, hashes in plan.json; every request as sent is in journal.sqlite "
        f"({run.manifest.get('calls', 0):,} calls)"
    )


def _post(run: RunFolder) -> str:
    reasks = run.manifest.get("answers", {}).get("reasks", 0)
    return (
        "Answers are parsed by a documented ladder; shares by rung stand in the table of answers; "
        f"{reasks:,} were asked for again; unreadable ones are missing with a reason, never scored"
    )


def _day(run: RunFolder, key: str) -> str:
    return str(run.manifest.get(key, "?"))[:10]


Fill = Callable[[RunFolder], str]
ITEMS: tuple[tuple[str, str, Fill | None], ...] = (
    ("A.1", "what the models were used for", _use),
    ("A.2", "human in the loop, or fully automated", lambda _: "Fully automated."),
    ("B.1", "model name, provider, version, date of access", _versions),
    ("B.2", "mode of access", lambda _: "API, one separate request a call."),
    ("B.3", "parameters", _parameters),
    ("B.4", "fine-tuning or customisation", None),
    (
        "B.5",
        "whether sessions kept state",
        lambda _: "No: each request carries all that the speaker has heard.",
    ),
    ("C.1", "exact prompts", _prompts),
    ("C.2", "system-wide instructions", lambda _: "Persona and task; see the system messages."),
    ("D.1", "handling of personal data", None),
    ("E.1", "human validation of outputs", None),
    ("E.2", "filtering and post-processing", _post),
    (
        "F.1",
        "code shared",
        lambda run: (
            f"Folkmoot {run.manifest.get('software', {}).get('folkmoot', '?')}, "
            "Apache-2.0, with study.yaml of this run"
        ),
    ),
    ("G.1", "funding and relationships", None),
)
