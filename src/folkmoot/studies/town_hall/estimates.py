"""How many calls and tokens a study file will take, for `folkmoot check`."""

from __future__ import annotations

from folkmoot.engine.study import StageEstimate
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.levels import Level, levels_of
from folkmoot.studies.town_hall.single_session import (
    REACTION_TOKENS,
    REFLECTION_TOKENS,
    TURN_TOKENS,
)

# Tokens, measured over runs of the shipped prompts: persona and rules, one statement, a ballot.
PERSONA, STATEMENT, INSTRUCTIONS, BALLOT, SURVEY = 460, 45, 260, 220, 40
THINK_FIXED, SPEAK = 110, 170
USUAL = 4  # vulnerable residents


def estimate(config: TownHallConfig) -> list[StageEstimate]:
    """One estimate per level (all its discussions)."""
    # A folder is not looked into here: it is taken to hold four profiles, as the shipped one does.
    vulnerable = sum(1 if place.endswith(".md") else USUAL for place in config.vulnerable)
    residents = config.residents.general + vulnerable
    return [_level(level, config, residents) for level in levels_of(config)]


def _level(level: Level, config: TownHallConfig, residents: int) -> StageEstimate:
    shared = level.context == "shared"
    one = _shared(level, config, residents) if shared else _separate(level, config, residents)
    calls, sent, written, chain = one
    # Planner and closing text read everything that was said.
    heard = residents * STATEMENT * config.rounds
    calls, sent, written, chain = calls + 2, sent + 2 * (heard + 300), written + 900, chain + 2
    if level.moderated:
        extra = config.rounds
        sent += extra * (residents * STATEMENT + 500)
        calls, written, chain = calls + extra, written + extra * 350, chain + extra
    n = config.sets
    return StageEstimate(f"level {level.name}", n * calls, n * sent, n * written, chain)


def _separate(level: Level, config: TownHallConfig, n: int) -> tuple[int, int, int, int]:
    rounds, heard = config.rounds, n * STATEMENT
    reactions = REACTION_TOKENS * (n - 1)
    think, reflect = int(level.think), int(level.reflect)
    calls = n * (rounds * (1 + think) + (rounds - 1) * reflect + 3)
    thought = THINK_FIXED + reactions
    sent = calls * PERSONA + n * (
        think * (rounds * INSTRUCTIONS + (rounds - 1) * (heard + STATEMENT * rounds))
        + rounds * (INSTRUCTIONS + (thought if think else heard))
        + reflect * (rounds - 1) * (heard + INSTRUCTIONS)
        + heard
        + BALLOT
        + 2 * SURVEY
        + BALLOT
    )
    written = n * (
        think * (rounds * THINK_FIXED + (rounds - 1) * reactions)
        + rounds * SPEAK
        + reflect * (rounds - 1) * REFLECTION_TOKENS
        + BALLOT
        + 2 * SURVEY
    )
    return calls, sent, written, rounds * (1 + think) + (rounds - 1) * reflect + 3


def _shared(level: Level, config: TownHallConfig, n: int) -> tuple[int, int, int, int]:
    rounds, heard = config.rounds, n * STATEMENT
    reactions = REACTION_TOKENS * (n - 1) if level.think else 0
    parts = 1
    longest = n * (TURN_TOKENS + reactions + REFLECTION_TOKENS)
    if longest > config.longest_shared_reply:
        parts = -(-longest // config.longest_shared_reply) + 1
    calls = rounds * parts + 3
    sent = calls * (n * PERSONA // 2) + sum(range(rounds + 1)) * heard + 2 * rounds * heard
    reflections = (rounds - 1) * REFLECTION_TOKENS if level.reflect else 0
    per_resident = rounds * TURN_TOKENS + (rounds - 1) * reactions + reflections
    return calls, sent, n * (per_resident + BALLOT + 2 * SURVEY), calls
