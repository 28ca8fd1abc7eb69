"""Two public data sets of belief change become tables of human answers. The files here are invented
and have the layout of the sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.people.sources.experiment import HumanAnswer, read_experiment
from tools.belief_change import main

DEBATES = """\
debate_id,treatment_type,personalized,opponent_is_ai,participant_side,topic,agreement_pre_likert,\
agreement_post_likert
1.0,Human-AI,False,True,CON,Should buses be free?,3,4
2.0,"Human-Human, personalized",True,False,PRO,Should buses be free?,1,1
2.0,"Human-Human, personalized",True,False,CON,Should buses be free?,,5
3.0,Human-AI,False,True,PRO,Should parks close?,2,
"""
ROUNDS = """\
round_id,date,human_target_id,persuader,control_dialogue,proposition,belief_before,belief_after
r1,2026-01-26,80,gpt,False,I should move.,0.6625,0.715
r2,2026-01-26,80,gpt,False,I should move.,0.1,0.9
r3,2026-01-26,80,gpt,True,I should cook.,0.5,0.5
r4,2026-01-26,81,gpt,False,I should move.,,0.4
"""
MESSAGES = """\
round_id,turn,speaker,text
r1,0,persuader,"Rents fall, they say."
r1,1,target,Do they?
r1,2,persuader,They do.
r3,0,persuader,Cats are quiet.
"""


def convert(
    capsys: pytest.CaptureFixture[str], folder: Path, kind: str, **files: str
) -> list[HumanAnswer]:
    """Write the files, convert them, and read the result as a replay does."""
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, "utf-8")
    main([kind, *(str(folder / f"{name}.csv") for name in files)])
    table = folder / "people.csv"
    table.write_text(capsys.readouterr().out, "utf-8")
    return read_experiment(table)


def test_each_participant_of_a_debate_is_one_human(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers = convert(capsys, tmp_path, "debates", debates=DEBATES)
    assert [
        (answer.person, answer.item, answer.before, answer.after, answer.arm) for answer in answers
    ] == [
        ("d0001", "Should buses be free?", 3, 4, "Human-AI"),
        ("d0002", "Should buses be free?", 1, 1, "Human-Human, personalized"),
        # Without a first answer there is no change: the third row is left out.
        ("d0004", "Should parks close?", 2, None, "Human-AI"),
    ]
    assert [answer.attributes["argued_for_side"] for answer in answers] == ["CON", "PRO", "PRO"]
    assert all(answer.text_shown == "" for answer in answers)


def test_the_first_dialogue_about_a_proposition_is_used_with_its_persuader_texts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers = convert(capsys, tmp_path, "rounds", rounds=ROUNDS, messages=MESSAGES)
    assert [
        (answer.person, answer.item, answer.before, answer.after, answer.arm) for answer in answers
    ] == [
        ("t80", "I should move.", pytest.approx(66.2, abs=0.1), 71.5, "persuasion"),
        ("t80", "I should cook.", 50, 50, "control dialogue"),
    ]
    assert answers[0].text_shown == "Rents fall, they say.\n\nThey do."
    assert answers[1].text_shown == "Cats are quiet."
