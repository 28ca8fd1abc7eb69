"""Write the files of a study that replays a human experiment (`folkmoot new --from-people`)."""

from __future__ import annotations

from pathlib import Path

import yaml

from folkmoot.engine.settings.yaml_tree import StudyDumper
from folkmoot.hints import number_text
from folkmoot.people.sources.experiment import read_experiment
from folkmoot.people.sources.missing_answers import find_missing_codes

# The study folder needs a Python file, because `replay` is not a registered study type.
CODE = """\"\"\"The study type of this folder: a human experiment, replayed.\"\"\"

from folkmoot.studies.replay import STUDY

__all__ = ["STUDY"]
"""


def files_of_replay(table: Path) -> dict[str, str | bytes]:
    """Return the files of a replay, as a map from file name to content.

    Raises InputError if the table has problems.
    """
    # The scale is set to the range from the lowest to the highest human answer. The researcher must
    # correct it if the question had a wider scale.
    answers = read_experiment(table)
    values = [
        value
        for human_answer in answers
        for value in (human_answer.before, human_answer.after)
        if value is not None
    ]
    # `check` then names the answers outside the scale, such as -99 for a missing answer.
    codes = find_missing_codes(values)
    on_scale = [value for value in values if value not in codes] or values
    name = f"people{table.suffix.lower()}"
    settings = {
        "study": "replay.py",
        "people": name,
        "scale": [min(on_scale), max(on_scale)],
        "first_answer": "given",
        "model": "synthetic",
        "random_seed": 42,
    }
    arms = dict.fromkeys(answer.arm for answer in answers)
    header = (
        f"# {len(answers):,} answers of people, replayed: {', '.join(arms)}.\n"
        "# scale: the lowest and the highest answer here; write the scale of the question.\n"
        "# first_answer: given (the person's own) or asked. answers: 100 draws as many rows.\n"
    )
    if codes:
        named = ", ".join(map(number_text, sorted(codes)))
        header += f"# {named}: looks like a code for a missing answer; write NA into the table.\n"
    study = header + yaml.dump(settings, Dumper=StudyDumper, sort_keys=False, allow_unicode=True)
    return {"replay.yaml": study, "replay.py": CODE, name: table.read_bytes()}
