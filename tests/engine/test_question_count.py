"""The number of questions that a human is told to expect."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.run.question_count import count_questions
from folkmoot.engine.study.study_file import load_study_file

STUDY_FILE = """\
study: cross_pollination
pilot_id: test
topic: {description: "Which?", options: [A park, Job training]}
participants_per_condition: 4
conditions: CONDITIONS
max_clarification_exchanges: 1
personas: {source: quota}
model: synthetic
coding: off
seats: {count: 1}
"""


def test_no_human_is_told_fewer_questions_than_a_condition_asks(tmp_path: Path) -> None:
    def count(conditions: str) -> int:
        path = tmp_path / "study.yaml"
        path.write_text(STUDY_FILE.replace("CONDITIONS", conditions), "utf-8")
        counted = count_questions(load_study_file(path))
        assert counted is not None
        return counted

    few, many = count("[simple_voting]"), count("[clarified_passive, simple_voting]")
    assert few == 1
    # A clarified reader has a vote, an interview with a statement and a vote.
    assert many >= 3
    assert count("[simple_voting, simple_passive, clarified_passive]") == many
