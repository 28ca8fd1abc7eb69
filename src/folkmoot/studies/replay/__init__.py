"""Replay: a human experiment with the same people, texts and arms, answered by a model.

Made of a table by `folkmoot new --from-people FILE`; start with `protocol`. It is no registered
study type: a study folder names it by a file of one line, as any study of one file.
"""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.studies.replay.asking import ReplayConfig, ReplayRow, check, limit, protocol
from folkmoot.studies.replay.results import findings

STUDY = Study(
    name="replay",
    title="A human experiment, replayed",
    config=ReplayConfig,
    protocol=protocol,
    prompts=Path(__file__).parent / "prompts",
    check_config=check,
    with_limit=limit,
    findings=findings,
    tables=(ReplayRow,),
)
