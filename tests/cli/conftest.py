"""A small study type in one file, for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

STUDY = '''
from __future__ import annotations
from folkmoot import Choice, Finding, Missing, ResultTable, Speaker, Study, StudyConfig

class Config(StudyConfig):
    """Keys of the study."""
    options: tuple[str, ...] = ("Parks", "Jobs")
    people: int = 6
    endless: bool = False
    breaks: bool = False

async def protocol(session):
    config = session.config
    if config.breaks:
        raise RuntimeError("a bug in the study")
    listed = "\\n".join(f"{k}. {o}" for k, o in enumerate(config.options, 1))
    people = [Speaker(f"p_{k:04}", system="You are a cook.") for k in range(1, config.people + 1)]

    async def one(scope, who):
        vote = await scope.ask(
            who, f"Options:\\n{listed}\\n\\nReply with ONLY the text of one option.",
            answer_type=Choice(config.options),
        )
        scope.record("votes", {"id": who.id, "vote": None if isinstance(vote, Missing) else vote})

    await session.child("vote").map(people, one)
    if config.endless:
        session.log("asking for ever")
    while config.endless:
        await session.ask(people[0], "And now?")

def findings(run):
    votes = run.read_table("votes")
    share = votes["vote"].eq("Parks").mean()
    grid = ResultTable(("votes", "parks_share"), ((votes.height, share),))
    return [
        Finding("votes", "The vote", "So many voted.", grid, headline=True),
        Finding("hidden", "Not a headline", "", grid),
    ]

STUDY = Study(
    "small", "A small study", Config, protocol, findings=findings,
    notes=lambda config, folder: ["a note to read"],
    template_files=lambda: {"small.yaml": "study: ./my_study.py\\n", "small.txt": b"words"},
)
'''


@pytest.fixture
def study_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the study and a study file `vote.yaml`, and change into it."""
    (tmp_path / "my_study.py").write_text(STUDY)
    (tmp_path / "vote.yaml").write_text("study: ./my_study.py\nmodel: synthetic\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("OPENAI_API_KEY", "OPENAI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
