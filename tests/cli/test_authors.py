"""Errors in the code of a study: the command reports file, line and remedy, with exit status 2."""

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
LAST_LINE = "    pass  # here"
ASK_LINE = 'await scope.ask(ANN, "Well?")  # ask'


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})


@pytest.fixture
def study_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("study: ./mine.py\nmodel: synthetic\n")
    return tmp_path


def write_study_with_mistake(folder: Path, correct_code: str, wrong_code: str) -> int:
    """Write the study with one mistake in it. Return the line of the mistake."""
    assert correct_code in STUDY
    text = STUDY.replace(correct_code, wrong_code)
    (folder / "mine.py").write_text(text)
    marked_line = next(
        (number for number, line in enumerate(text.splitlines(), 1) if "# wrong" in line), 0
    )
    return marked_line or text[: text.index(wrong_code)].count("\n") + 1


MISTAKES = {
    "sync protocol": (
        "async def protocol(session):",
        "def protocol(session):\n    pass\n\nasync def another(session):",
        "write `async def protocol",
    ),
    "await in a plain function": ("async def one", "def one", "'await' outside async function"),
    "no session": ("protocol(session)", "protocol()", "one argument"),
    "notes without a folder": (
        "Config, protocol)",
        "Config, protocol, notes=lambda config: [])",
        "write `notes=lambda config, folder",
    ),
    "problems as texts": (
        "Config, protocol)",
        "Config, protocol, check_config=lambda config, folder: ['bad'])",
        "check_config gave str; return a list of folkmoot.errors.Problem",
    ),
    "no problems": (
        "Config, protocol)",
        "Config, protocol, check_config=lambda config, folder: None)",
        "check_config gave NoneType; return a list",
    ),
    "one note": (
        "Config, protocol)",
        "Config, protocol, notes=lambda config, folder: 'Mind the gap.')",
        "notes gave str; return a list of texts",
    ),
    "no notes": (
        "Config, protocol)",
        "Config, protocol, notes=lambda config, folder: None)",
        "notes gave NoneType; return a list of texts",
    ),
    "one table": (
        "Config, protocol)",
        "Config, protocol, tables=Row)",
        "write `tables=(Vote,)`",
    ),
    "tables by name": (
        "Config, protocol)",
        "Config, protocol, tables=('said',))",
        "write `tables=(Vote,)`",
    ),
    "files as a dictionary": (
        "Config, protocol)",
        "Config, protocol, derived=lambda run, journal: {'a.json': 1})",
        'derived gave str; yield "counts.json", counts',
    ),
    "no files": (
        "Config, protocol)",
        "Config, protocol, derived=lambda run, journal: None)",
        "derived gave NoneType; yield",
    ),
    "files with three parts": (
        "Config, protocol)",
        "Config, protocol, derived=lambda run, journal: [('a.json', 1, 2)])",
        'derived gave tuple; yield "counts.json", counts',
    ),
    "a file named by a number": (
        "Config, protocol)",
        "Config, protocol, derived=lambda run, journal: [(5, 1)])",
        'derived gave tuple; yield "counts.json", counts',
    ),
    "a file that is no JSON": (
        "Config, protocol)",
        "Config, protocol, derived=lambda run, journal: [('a.json', {'n': {1}})])",
        "a.json: $.n: set cannot be written as JSON",
    ),
    "no reason": (
        "Config, protocol)",
        "Config, protocol, unusable_reason=lambda run: None)",
        "unusable_reason gave NoneType; return a text",
    ),
    "a model in place of a list": (
        "Config, protocol)",
        "Config, protocol, extra_models=lambda config: 'synthetic')",
        "extra_models gave str; return a list of names of models",
    ),
    "no name of the run": (
        "Config, protocol)",
        "Config, protocol, run_id=lambda config: None)",
        "run_id gave NoneType; return a text",
    ),
    "conditions as a list": (
        "Config, protocol)",
        "Config, protocol, conditions=lambda config: ['a'])",
        "conditions gave list; return a dict",
    ),
    "tables made of others": (
        "Config, protocol)",
        "Config, protocol, derived_tables=lambda run, journal: [run.sayd])",
        "has no attribute 'sayd'",
    ),
    "derived rows as dictionaries": (
        "Config, protocol)",
        "Config, protocol, derived_tables=lambda run, journal: [{'n': 1}])",
        "derived_tables gave dict; yield Row(",
    ),
    "no derived rows": (
        "Config, protocol)",
        "Config, protocol, derived_tables=lambda run, journal: None)",
        "derived_tables gave NoneType; yield Row(",
    ),
    "no decisions": (
        "STUDY = Study(",
        "from functools import partial\n"
        "from folkmoot.kit.exposure import ExposureRow, ExposureTable\n"
        "def decide(run): pass  # wrong\n"
        "EXPOSURE = ExposureTable(decide, lambda source: '')\n"
        "STUDY = partial(Study, tables=(ExposureRow,), derived_tables=EXPOSURE)(",
        "decisions gave NoneType; yield Decision(",
    ),
    "a yield": (LAST_LINE, "    yield 1", "yield"),
    "config key": (LAST_LINE, "    session.config.peple", "did you mean people?"),
    "heard": (
        ASK_LINE,
        'await scope.ask(ANN, "Well?", history=[])',
        "EMPTY_TRANSCRIPT + Utterance",
    ),
    "who": (ASK_LINE, 'await scope.ask("ann", "Well?")', "pass Speaker("),
    "prompt": (ASK_LINE, "await scope.ask(ANN, None)", "the prompt is of type NoneType"),
    "answer class": (
        ASK_LINE,
        'await scope.ask(ANN, "Well?", answer_type=Text)',
        "pass Text(), Choice",
    ),
    "answer list": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=["a"])',
        "pass Text(), Choice",
    ),
    "no await, used": (ASK_LINE, 'scope.ask(ANN, "Well?").strip()  # wrong', "put `await` before"),
    "no await, recorded": (
        '"text": str(said)',
        '"text": scope.ask(ANN, "x")',
        "put `await` before",
    ),
    "no await, alone": (LAST_LINE, '    session.ask(ANN, "Sure?")', "write `await` before it"),
    "no await, kept": (
        LAST_LINE,
        '    kept = session.ask(ANN, "Sure?")',
        "write `await` before it",
    ),
    "no await, own function": (
        LAST_LINE,
        "    async def talk(): await session.ask(ANN, 'x')\n    talk()  # wrong",
        "talk(…) is not awaited",
    ),
    "task, not awaited": (
        LAST_LINE,
        "    __import__('asyncio').create_task(session.child('x').ask(ANN, 'Sure?'))  # wrong",
        "ask(…) runs in a task that is not awaited",
    ),
    "too much await": (LAST_LINE, '    await session.record("t", {"a": 1})', "leave out `await`"),
    "map, sync": (LAST_LINE, "    await session.child('x').map([1], lambda s, n: n)", "not async"),
    "take_turns gives text": (
        LAST_LINE,
        "    async def turn(scope, who, heard): return 'x'\n"
        "    await session.child('t').take_turns([ANN], turn)  # wrong",
        "return Utterance(",
    ),
    "take_turns of names": (
        LAST_LINE,
        "    await session.take_turns(['ann'], None)",
        "pass Speaker(…)",
    ),
    "a row that is a list": (LAST_LINE, '    session.record("t", [1])', 'record("table", {'),
    "a cell that is a set": (LAST_LINE, '    session.record("t", {"a": {1}})', "record sorted"),
    "a cell that is Missing": (
        LAST_LINE,
        '    session.record("t", {"a": Missing("x")})',
        "record None",
    ),
    "a cell that is an object": (LAST_LINE, '    session.record("t", {"a": ANN})', "a Speaker"),
    "a list that is no JSON": (LAST_LINE, '    session.record("t", {"a": [ANN]})', "JSON"),
    "kinds mixed in a column": (
        LAST_LINE,
        '    session.record("t", {"a": 1})\n    session.record("t", {"a": "x"})',
        "int and str in one column",
    ),
    "a table in another folder": (
        LAST_LINE,
        '    session.record("../t", {"a": 1})',
        "not a plain name",
    ),
    "a table of the engine": (
        LAST_LINE,
        '    session.record("answers", {"a": 1})',
        "of the engine",
    ),
    "a class for a table of the engine": (
        LAST_LINE,
        '    class Mine(Row, table="answers"):\n        a: int\n\n'
        "    session.record(Mine(a=1))  # wrong",
        "a table of the engine",
    ),
    "a column that is a number": (
        LAST_LINE,
        '    session.record("t", {1: 1})',
        "a column of t is of",
    ),
    "a number of 100 bits": (LAST_LINE, '    session.record("t", {"a": 2**100})', "63 bits"),
    "half a character": (
        LAST_LINE,
        '    session.record("t", {"a": "\\ud800"})',
        "half a character",
    ),
    "a file of the engine": (LAST_LINE, '    session.write_json("plan.json", {})', "another name"),
    "a file among tables": (
        LAST_LINE,
        '    session.write_text("tables/t.csv", "")',
        "another name",
    ),
    "exit": (LAST_LINE, "    raise SystemExit(0)", "return instead"),
    "exit inside": (ASK_LINE, 'exit(await scope.ask(ANN, "?"))  # wrong', "return instead"),
    "stop": (LAST_LINE, "    next(iter([]))", "StopIteration"),
    "no options": (ASK_LINE, 'await scope.ask(ANN, "?", answer_type=Choice([]))', "no options"),
    "options as a word": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Choice("abc"))',
        "list of texts",
    ),
    "options as numbers": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Choice([1]))',
        "list of texts",
    ),
    "low above high": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Number(5, 1))',
        "no number is from",
    ),
    "an option without text": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Choice(["yes", "\\u200b "]))',
        "an option has no text",
    ),
    "a bound that is a text": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Number("a", 2))',
        "the bounds of a number are numbers or None",
    ),
    "a bound that is no number": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Number(float("nan"), 1))',
        "the bounds of a number are numbers or None",
    ),
    "JSON without a model": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=Json(dict))',
        "Json(Model) needs a subclass of BaseModel, and dict is none",
    ),
    "a list of no model": (
        ASK_LINE,
        'await scope.ask(ANN, "?", answer_type=JsonList("Idea"))',
        "and 'Idea' is none",
    ),
    "map of a dictionary with key=": (
        LAST_LINE,
        "    async def ask(s, n): pass\n"
        "    await session.child('x').map({'a': 1}, ask, key=str)  # wrong",
        "a dictionary has its own keys",
    ),
    "say by a name": (
        LAST_LINE,
        '    session.say("ann", "Hello.")',
        "pass the Speaker who said it",
    ),
    "embed one text": (LAST_LINE, '    await session.embed("x")', "embed(): texts is one text"),
    "hot": (
        ASK_LINE,
        'await scope.ask(ANN, "?", temperature="hot")',
        "temperature='hot' is no num",
    ),
    "below zero": (ASK_LINE, 'await scope.ask(ANN, "?", temperature=-1)', "is no number from 0"),
    "no tokens": (ASK_LINE, 'await scope.ask(ANN, "?", max_tokens=0)', "is no whole number from 1"),
    "a speaker with half a token": (
        ASK_LINE,
        'await scope.ask(Speaker("a", max_tokens=0.5), "?")',
        "max_tokens=0.5 is no whole number from 1",
    ),
    "an utterance of a speaker": (
        ASK_LINE,
        'await scope.ask(ANN, "?", history=EMPTY_TRANSCRIPT + Utterance(ANN, "Well?"))',
        "write Utterance(speaker.id, text)",
    ),
    "say nothing": (LAST_LINE, "    session.say(ANN, None)", "say(): text is of type NoneType"),
    "say a number": (LAST_LINE, "    session.say(ANN, 5)", "say(): text is of type int, not str"),
    "say a missing answer": (
        LAST_LINE,
        '    session.say(ANN, Missing("refused"))',
        'write say(speaker, "", missing=answer.reason)',
    ),
    "utterances as rows": (
        LAST_LINE,
        '    session.record("utterances", {"a": 1})',
        "a table of the engine; write say(speaker, text",
    ),
    "compute gives a set": (LAST_LINE, "    await session.compute(set)", "is not JSON"),
    "file is no JSON": (LAST_LINE, '    session.write_json("x.json", {"a": ANN})', "Speaker"),
    "no prompts folder": (LAST_LINE, '    session.prompt("vote")', "has no prompts folder"),
    "an error of one's own": (
        LAST_LINE,
        '    raise ValueError("not today")',
        "ValueError: not today",
    ),
    "a name": (LAST_LINE, "    print(sesion)", "did you mean session?"),
    "while it is read": ("people: int = 3", "people: int = nothing", "nothing"),
    "syntax": (LAST_LINE, "    if:", "invalid syntax"),
    "no StudyConfig": ("class Config(StudyConfig)", "class Config", "class Config(StudyConfig)"),
    "another type for a shared key": (
        "people: int = 3",
        "people: int = 3\n    models: str = 'synthetic'",
        "config= gives models, a key of all studies, another type",
    ),
    "prompts as text": ("Config, protocol)", 'Config, protocol, prompts="p")', "Path(__file__)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_study_is_reported_with_file_and_line(study_folder: Path, name: str) -> None:
    correct_code, wrong_code, hint = MISTAKES[name]
    line = write_study_with_mistake(study_folder, correct_code, wrong_code)
    result = run_command("run", "mine.yaml", "--trust")
    output = " ".join(result.output.split())
    assert result.exit_code == 2, output
    assert hint in output and "Internal error" not in output
    if name == "await in a plain function":
        line += 1
    if name not in (
        "notes without a folder",
        "a yield",
        "no StudyConfig",
        "another type for a shared key",
        "prompts as text",
        "one table",
        "tables by name",
    ):  # these are reported for the protocol
        assert f"mine.py:{line}: " in output, output
    assert "mine.py" in output
    (study_folder / "mine.py").write_text(STUDY)


# The function, the command that calls it, and the message.
WRONG_RETURNS = {
    "choices=lambda run: None": ("report outputs/mine", "choices gave NoneType; return a list"),
    "choices=lambda run: [('a', 'b')]": ("report outputs/mine", "choices gave tuple; return a"),
    "expected_rows=lambda sealed: None": (
        "report outputs/mine",
        "expected_rows gave NoneType; return a list of ExpectedRows(…)",
    ),
    "repeats=lambda run: None": ("report outputs/mine", "repeats gave NoneType; return a list"),
    "repeats=lambda run: [(1, 2)]": (
        "report outputs/mine",
        "repeats gave tuple; return a list of Repeat(…)",
    ),
    "render_run=lambda run, key: 'a'": ("show outputs/mine", "render_run gave str; return a list"),
    "reply_unit=lambda row: []": ("report outputs/mine", "reply_unit gave list; return the id of"),
    "seats=lambda config, folder: None": (
        "check mine.yaml --set seats={open: true}",
        "seats gave NoneType; return a list of Seat(…)",
    ),
    "seats=lambda config, folder: ['ann']": (
        "check mine.yaml --set seats={open: true}",
        "seats gave str; return a list of Seat(…)",
    ),
    "size=lambda config, folder: 3": ("check mine.yaml", "size gave int; return DesignSize(…) or"),
    "preview=lambda config, prompts: 'a'": (
        "check mine.yaml --preview",
        "preview gave str; return a list of Preview(…)",
    ),
    "with_limit=lambda config, limit: None": (
        "run mine.yaml --limit 1",
        "with_limit gave NoneType; return a configuration",
    ),
}


@pytest.mark.parametrize("function", WRONG_RETURNS)
def test_a_wrong_return_value_is_reported_with_file_and_line(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setenv("FOLKMOOT_TRUST", "1")
    line = write_study_with_mistake(
        study_folder, "Config, protocol)", f"Config, protocol, {function})"
    )
    command, message = WRONG_RETURNS[function]
    if "outputs/mine" in command:
        run_command("run", "mine.yaml")
    words = command.split(maxsplit=3)
    result = run_command(*words)
    output = " ".join(result.output.split())
    assert result.exit_code == 2, output
    assert message in output and "Internal error" not in output
    assert f"mine.py:{line}: " in output, output


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("codebook=5", "codebook= is no dictionary (write `codebook={"),
        (
            "compared_tables='said'",
            "compared_tables= is no list of texts (write `compared_tables=(",
        ),
        ("roles=5", "roles= is no list of texts (write `roles=("),
        ("question=5", "question= is no text (write `question="),
        ("notes=None", "notes= is not a function"),
    ],
)
def test_a_field_of_a_wrong_kind_is_reported(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch, field: str, message: str
) -> None:
    monkeypatch.setenv("FOLKMOOT_TRUST", "1")
    write_study_with_mistake(study_folder, "Config, protocol)", f"Config, protocol, {field})")
    result = run_command("check", "mine.yaml")
    output = " ".join(result.output.split())
    assert result.exit_code == 2, output
    assert message in output and "mine.py:" in output


def test_the_same_command_runs_after_the_mistake_is_corrected(study_folder: Path) -> None:
    write_study_with_mistake(
        study_folder, "    await session.map", "    session.config.peple\n    await session.map"
    )
    assert run_command("run", "mine.yaml", "--trust").exit_code == 2
    # Another process would load the changed file. This one caches modules by path.
    (study_folder / "other.py").write_text(STUDY)
    (study_folder / "mine.yaml").write_text("study: ./other.py\nmodel: synthetic\n")
    result = run_command("run", "mine.yaml", "--trust")
    assert result.exit_code == 0, result.output


def test_a_missing_prompt_variable_is_reported_with_its_prompt(study_folder: Path) -> None:
    (study_folder / "prompts").mkdir()
    (study_folder / "prompts" / "vote.md").write_text("Hello\n{{ town }}, vote.\n")
    text = STUDY.replace(LAST_LINE, '    session.prompt("vote", twon="Ulm")')
    (study_folder / "mine.py").write_text(
        text.replace("Config, protocol)", 'Config, protocol, prompts=HERE / "prompts")')
    )
    result = run_command("run", "mine.yaml", "--trust")
    output = " ".join(result.output.split())
    assert result.exit_code == 2 and "mine.py:14: " in output
    assert "vote.md" in output and "'town' is undefined" in output


def test_a_mistake_in_findings_is_reported_with_file_and_line(study_folder: Path) -> None:
    text = STUDY.replace("Config, protocol)", "Config, protocol, findings=found)")
    (study_folder / "mine.py").write_text(
        text.replace("STUDY = ", "def found(run):\n    return run.tabel('said')\n\nSTUDY = ")
    )
    result = run_command("run", "mine.yaml", "--trust")
    output = " ".join(result.output.split())
    assert result.exit_code == 2 and "mine.py:17: " in output and "did you mean table" in output


@pytest.mark.parametrize(
    ("returned", "hint"),
    [
        ("None", "findings(run) returned NoneType; return a list of Finding"),
        ("{'a': 1}", "findings(run) returned dict"),
        ("[None]", "findings(run) returned a list with NoneType"),
        ("Finding('a', 'A', 'a', ResultTable((), ()))", "findings(run) returned Finding"),
        ("[Finding('a', 'A', 'a', ResultTable(('x', 'y'), ((1,),)))]", "1 cells in place of 2"),
    ],
)
def test_a_wrong_return_value_of_findings_is_reported_with_file_and_line(
    returned: str, hint: str, study_folder: Path
) -> None:
    text = STUDY.replace("Config, protocol)", "Config, protocol, findings=found)")
    found = f"def found(run):\n    return {returned}\n\n"
    (study_folder / "mine.py").write_text(text.replace("STUDY = ", f"{found}STUDY = "))
    run = ("run", "mine.yaml", "--trust", "--out", "out")
    for command in (run, ("report", "out")):
        result = run_command(*command)
        output = " ".join(result.output.split())
        assert result.exit_code == 2 and hint in output, output
        assert "mine.py:16: " in output or "mine.py:17: " in output


def test_a_mistake_in_a_claim_is_reported_before_the_run(study_folder: Path) -> None:
    text = STUDY.replace("Config, protocol)", "Config, protocol, claims=claims, tables=(Said,))")
    (study_folder / "mine.py").write_text(
        text.replace(
            "STUDY = ",
            "class Said(Row, table='said'):\n    condition: str\n    changed: bool\n\n"
            "from folkmoot.measures.inference.claims import Claim\n"
            "def claims(config):\n    return [Claim('said.chnaged', ('a', 'b'))]\n\nSTUDY = ",
        )
    )
    for command in ("check", "run"):
        result = run_command(command, "mine.yaml", "--trust")
        output = " ".join(result.output.split())
        assert result.exit_code == 2 and "mine.py:21: claims[1].measure: " in output, output
        assert "did you mean changed?" in output
    assert not (study_folder / "outputs").exists()


def test_a_bug_in_folkmoot_is_an_internal_error(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of ours")

    (study_folder / "mine.py").write_text(STUDY)
    monkeypatch.setattr("folkmoot.engine.run.execution.write_table", raise_bug)
    result = run_command("run", "mine.yaml", "--trust")
    assert result.exit_code == 1 and "Internal error" in result.output
