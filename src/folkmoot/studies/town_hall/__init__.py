"""Town hall: who is heard when twenty residents, four of them vulnerable, discuss a local issue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine.study import Study
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.protocol import protocol

STUDY = Study(
    name="town_hall",
    title="Town hall: who is heard, at each level of technical implementation",
    config=TownHallConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
)
