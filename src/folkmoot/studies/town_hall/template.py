"""What `folkmoot new town_hall` writes: a study file with all its keys, and the four profiles."""

from __future__ import annotations

from folkmoot.studies.town_hall.participants import BUILT_IN

STUDY_FILE = """\
# Who is heard when twenty residents, four of them vulnerable, discuss a local issue?
#   folkmoot check town_hall.yaml
#   folkmoot run town_hall.yaml --model synthetic     the embedded respondent, no key needed
study: town_hall

topic:
  title: Should the quarter be redeveloped as the city proposes?
  background: |
    What every resident has read about it: what is planned, who pays what, what is still open.

sets: 2                             # 20 in the source; each set runs through all levels
rounds: 3
levels: [1, 2-1, 3, 4]              # 2-2 is a replication and reported apart

model: gemini-3-flash               # seats that a level names no model for, and the planner
models:
  moderator: gpt-5-mini

level_settings:                     # switches of a level, changed here or new under a new name
  "3":
    models: [gemini-3-flash, gpt-5-mini, claude-haiku-4.5, kimi-k2, exaone-4.0]
  "4":
    models: [gemini-3-flash, gpt-5-mini, claude-haiku-4.5, kimi-k2, exaone-4.0]
    moderator: model                # none, model (see models above), or the name of a model

vulnerable: vulnerable/             # your own profiles; `builtin` are the four that are shipped

reaction_levels:
  partial_agree: 4                  # support with reservations; 0 ignore … 4 agree

# budget_usd: 20
# endpoints:                        # a server of your own, per model
#   exaone-4.0: https://api.friendli.ai/serverless/v1
random_seed: 42
"""


def template() -> dict[str, str | bytes]:
    """File name → content."""
    profiles = {
        f"vulnerable/{file.name}": file.read_text("utf-8") for file in sorted(BUILT_IN.glob("*.md"))
    }
    return {"town_hall.yaml": STUDY_FILE, **profiles}
