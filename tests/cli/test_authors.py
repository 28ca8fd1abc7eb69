"""A mistake in a study of one's own: its file, its line and the mend, with exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from folkmoot.cli.app import app

STUDY = """from pathlib import Path
from folkmoot import *
HERE = Path(__file__).parent
ANN = Speaker("ann")

class Config(StudyConfig):
    people: int = 3

async def protocol(session):
    async def one(scope, n):
        said = await scope.ask(ANN, "Well?")  # ask
        scope.record("said", {"text": str(said), "n": int(n)})
    await session.map(range(session.config.people), one)
    pass  # here

STUDY = Study("mine", "Mine", Config, protocol)
"""
HERE = "    pass  # here"
ASK = 'await scope.ask(ANN, "Well?")  # ask'


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "300"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("study: ./mine.py\nmodel: synthetic\n")
    return tmp_path


def write(folder: Path, old: str, new: str) -> int:
    """The study with one mistake in it; the line of the mistake."""
    assert old in STUDY
    text = STUDY.replace(old, new)
    (folder / "mine.py").write_text(text)
    mark = next((k for k, line in enumerate(text.splitlines(), 1) if "# wrong" in line), 0)
    return mark or text[: text.index(new)].count("\n") + 1


MISTAKES = {
    "sync protocol": (
        "async def protocol(session):",
        "def protocol(session):\n    pass\n\nasync def another(session):",
        "write `async def protocol",
    ),
    "await in a plain function": ("async def one", "def one", "'await' outside async function"),
    "no session": ("protocol(session)", "protocol()", "one argument"),
    "a yield": (HERE, "    yield 1", "yield"),
    "config key": (HERE, "    session.config.peple", "did you mean people?"),
    "heard": (ASK, 'await scope.ask(ANN, "Well?", history=[])', "EMPTY_TRANSCRIPT + Utterance"),
    "who": (ASK, 'await scope.ask("ann", "Well?")', "pass Speaker("),
    "prompt": (ASK, "await scope.ask(ANN, None)", "the prompt is of type NoneType"),
    "answer class": (ASK, 'await scope.ask(ANN, "Well?", answer_type=Text)', "pass Text(), Choice"),
    "answer list": (ASK, 'await scope.ask(ANN, "?", answer_type=["a"])', "pass Text(), Choice"),
    "no await, used": (ASK, 'scope.ask(ANN, "Well?").strip()  # wrong', "put `await` before"),
    "no await, recorded": (
        '"text": str(said)',
        '"text": scope.ask(ANN, "x")',
        "put `await` before",
    ),
    "no await, alone": (HERE, '    session.ask(ANN, "Sure?")', "write `await` before it"),
    "no await, kept": (HERE, '    kept = session.ask(ANN, "Sure?")', "write `await` before it"),
    "no await, own function": (
        HERE,
        "    async def talk(): await session.ask(ANN, 'x')\n    talk()  # wrong",
        "talk(…) is not awaited",
    ),
    "too much await": (HERE, '    await session.record("t", {"a": 1})', "leave out `await`"),
    "map, sync": (HERE, "    await session.child('x').map([1], lambda s, n: n)", "not async"),
    "take_turns gives text": (
        HERE,
        "    async def turn(scope, who, heard): return 'x'\n"
        "    await session.child('t').take_turns([ANN], turn)  # wrong",
        "return Utterance(",
    ),
    "take_turns of names": (HERE, "    await session.take_turns(['ann'], None)", "pass Speaker(…)"),
    "a row that is a list": (HERE, '    session.record("t", [1])', 'record("table", {'),
    "a cell that is a set": (HERE, '    session.record("t", {"a": {1}})', "record sorted"),
    "a cell that is Missing": (HERE, '    session.record("t", {"a": Missing("x")})', "record None"),
    "a cell that is an object": (HERE, '    session.record("t", {"a": ANN})', "a Speaker"),
    "a list that is no JSON": (HERE, '    session.record("t", {"a": [ANN]})', "JSON"),
    "kinds mixed in a column": (
        HERE,
        '    session.record("t", {"a": 1})\n    session.record("t", {"a": "x"})',
        "int and str in one column",
    ),
    "a table in another folder": (HERE, '    session.record("../t", {"a": 1})', "not a plain name"),
    "a table of the engine": (HERE, '    session.record("answers", {"a": 1})', "of the engine"),
    "a class for a table of the engine": (
        HERE,
        '    class Mine(Row, table="answers"):\n        a: int\n\n'
        "    session.record(Mine(a=1))  # wrong",
        "a table of the engine",
    ),
    "a column that is a number": (HERE, '    session.record("t", {1: 1})', "a column of t is of"),
    "a number of 100 bits": (HERE, '    session.record("t", {"a": 2**100})', "63 bits"),
    "half a character": (HERE, '    session.record("t", {"a": "\\ud800"})', "half a character"),
    "a file of the engine": (HERE, '    session.write_json("plan.json", {})', "another name"),
    "a file among tables": (HERE, '    session.write_text("tables/t.csv", "")', "another name"),
    "exit": (HERE, "    raise SystemExit(0)", "return instead"),
    "exit inside": (ASK, 'exit(await scope.ask(ANN, "?"))  # wrong', "return instead"),
    "stop": (HERE, "    next(iter([]))", "StopIteration"),
    "no options": (ASK, 'await scope.ask(ANN, "?", answer_type=Choice([]))', "no options"),
    "options as a word": (
        ASK,
        'await scope.ask(ANN, "?", answer_type=Choice("abc"))',
        "list of texts",
    ),
    "options as numbers": (
        ASK,
        'await scope.ask(ANN, "?", answer_type=Choice([1]))',
        "list of texts",
    ),
    "low above high": (
        ASK,
        'await scope.ask(ANN, "?", answer_type=Number(5, 1))',
        "no number is from",
    ),
    "compute gives a set": (HERE, "    await session.compute(set)", "is not JSON"),
    "file is no JSON": (HERE, '    session.write_json("x.json", {"a": ANN})', "Speaker"),
    "no prompts folder": (HERE, '    session.prompt("vote")', "has no prompts folder"),
    "an error of one's own": (HERE, '    raise ValueError("not today")', "ValueError: not today"),
    "a name": (HERE, "    print(sesion)", "did you mean session?"),
    "while it is read": ("people: int = 3", "people: int = nothing", "nothing"),
    "syntax": (HERE, "    if:", "invalid syntax"),
    "no StudyConfig": ("class Config(StudyConfig)", "class Config", "class Config(StudyConfig)"),
    "prompts as text": ("Config, protocol)", 'Config, protocol, prompts="p")', "Path(__file__)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_the_author_is_the_authors(here: Path, name: str) -> None:
    old, new, hint = MISTAKES[name]
    line = write(here, old, new)
    done = command("run", "mine.yaml", "--trust")
    said = " ".join(done.output.split())
    assert done.exit_code == 2, said
    assert hint in said and "Internal error" not in said
    if name == "await in a plain function":
        line += 1
    if name not in ("a yield", "no StudyConfig", "prompts as text"):  # these name the protocol
        assert f"mine.py:{line}: " in said, said
    assert "mine.py" in said
    (here / "mine.py").write_text(STUDY)


def test_after_the_mend_the_same_line_runs(here: Path) -> None:
    write(here, "    await session.map", "    session.config.peple\n    await session.map")
    assert command("run", "mine.yaml", "--trust").exit_code == 2
    # Another process would load the changed file. This one caches modules by path.
    (here / "other.py").write_text(STUDY)
    (here / "mine.yaml").write_text("study: ./other.py\nmodel: synthetic\n")
    done = command("run", "mine.yaml", "--trust")
    assert done.exit_code == 0, done.output


def test_a_variable_that_a_prompt_wants_is_named_with_the_prompt(here: Path) -> None:
    (here / "prompts").mkdir()
    (here / "prompts" / "vote.md").write_text("Hello\n{{ town }}, vote.\n")
    text = STUDY.replace(HERE, '    session.prompt("vote", twon="Ulm")')
    (here / "mine.py").write_text(
        text.replace("Config, protocol)", 'Config, protocol, prompts=HERE / "prompts")')
    )
    done = command("run", "mine.yaml", "--trust")
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "mine.py:14: " in said
    assert "vote.md" in said and "'town' is undefined" in said


def test_a_mistake_in_findings_is_the_authors_too(here: Path) -> None:
    text = STUDY.replace("Config, protocol)", "Config, protocol, findings=found)")
    (here / "mine.py").write_text(
        text.replace("STUDY = ", "def found(run):\n    return run.tabel('said')\n\nSTUDY = ")
    )
    done = command("run", "mine.yaml", "--trust")
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "mine.py:17: " in said and "did you mean table" in said


def test_our_own_mistakes_stay_ours(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of ours")

    (here / "mine.py").write_text(STUDY)
    monkeypatch.setattr("folkmoot.engine.run.execution.write_table", broken)
    done = command("run", "mine.yaml", "--trust")
    assert done.exit_code == 1 and "Internal error" in done.output
