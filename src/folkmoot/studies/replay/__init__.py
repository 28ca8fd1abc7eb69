"""Study type `replay`: an experiment with humans, repeated with a model in place of the humans.

`folkmoot new --from-people FILE` makes a replay from a table of human answers. Start reading at
`asking.run_protocol`.
"""
# The study folder holds a short Python file that imports this package: `writing.CODE`.

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study.study import Study
from folkmoot.studies.replay.asking import (
    ReplayConfig,
    ReplayRow,
    check_config,
    limit_answers,
    run_protocol,
)
from folkmoot.studies.replay.results import describe_people, findings

STUDY = Study(
    name="replay",
    title="A human experiment, replayed",
    config=ReplayConfig,
    protocol=run_protocol,
    prompts=Path(__file__).parent / "prompts",
    check_config=check_config,
    with_limit=limit_answers,
    stopping_rule=lambda _config: "",
    findings=findings,
    descriptions=describe_people,
    tables=(ReplayRow,),
)
