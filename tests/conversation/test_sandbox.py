"""Untrusted prompts: templates that could fill the memory or never end are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.study.study import load_installed_studies
from folkmoot.errors import InputError
from tests.bounded import run_with_limits

LOOP = "{% for i in range(99999) %}"
BOMBS = [
    "{{ 'a'.zfill(3000000000) }}",
    "{{ 'a'.center(3000000000) }}",
    "{{ 'a'.ljust(3000000000) | length }}",
    "{{ '\t'.expandtabs(3000000000) }}",
    "{{ '{:>3000000000}'.format(1) }}",
    "{{ '%3000000000d' % 1 }}",
    "{{ '%*d' % (3000000000, 1) }}",
    "{{ 'a' * 3000000000 }}",
    "{{ [1] * 1000000000 }}",
    "{{ 9 ** 99999999 }}",
    "{{ 9 ** 40 ** 40 }}",
    "{{ 9.0 ** 400 }}",
    "{{ 1 << 99999999999 }}",
    "{{ 'a' | center(3000000000) }}",
    "{{ x | indent(3000000000) }}",
    "{{ x | replace('', '" + "y" * 99 + "')" + " | replace('', 'yyyyyyyyyyyyyyyyyyyy')" * 9 + " }}",
    "{{ x | list | join(x) | list | join(x) | list | join(x) }}",
    "{{ " + " ~ ".join(["x"] * 9000) + " }}",
    "{{ " + " + ".join(["x"] * 300) + " }}",
    "{{ x | map('replace', 'a', x) | list }}",
    "{{ [x, x] | sum(start='') }}",
    "{{ 1.5 | round(999999999) }}",
    LOOP * 3 + "{% endfor %}" * 3,
    LOOP * 2 + "{{ x | upper | length }}" + "{% endfor %}" * 2,
    "{% for a in [[1, 1]] %}" + "{% for a in [[a, a]] %}" * 15 + "{{ a }}" + "{% endfor %}" * 16,
    "{% set a = x %}" + "{% set a = a ~ a %}" * 40 + "{{ a | length }}",
    "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
    "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{% filter upper %}x{% endfilter %}",
    "{% with a = x %}{{ a }}{% endwith %}",
    "{% block b %}{{ self.b() }}{% endblock %}",
    "{% include '/etc/passwd' %}",
    "{{ range(1000000000) | list }}",
    "{{ _work }}",
    "{{ x | _measured(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ x.join }}{{ x | attr('join') }}",
    "{{ " + "9" * 5000 + " }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "{{ " + "not " * 50000 + "1 }}",
    "{{ x " + "| upper " * 9000 + "}}",
    "a" * 100_001,
]


def test_no_prompt_fills_the_memory_or_runs_forever(tmp_path: Path) -> None:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "p.md").write_text("{{ x }}")
    setup = """
from pathlib import Path
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.errors import InputError
folder, bombs = Path(given[0]), given[1]
(folder / "own").mkdir()
"""
    body = """
passed = []
for bomb in bombs:
    (folder / "own" / "p.md").write_text(bomb)
    try:
        said = PromptLibrary(folder / "shipped", folder / "own").render_prompt("p", x="a" * 100_000)
        passed.append([bomb[:60], said[:60]])
    except InputError as error:
        assert "own/p.md" in str(error), error
print(json.dumps(passed))
"""
    assert json.loads(run_with_limits(setup, body, [str(tmp_path), BOMBS])) == []


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a\n{{ 'a'.zfill(9) }}", "2", "only range"),
        ("a\n\n{% macro m() %}{% endmacro %}", "3", "`macro` is not allowed"),
        ("{{ " + "9" * 5000 + " }}", "", "digits"),
    ],
)
def test_a_check_names_the_line_of_a_refused_prompt(
    tmp_path: Path, text: str, line: str, why: str
) -> None:
    for name, content in (("shipped", "{{ x }}"), ("own", text)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.md").write_text(content)
    (problem,) = PromptLibrary(tmp_path / "shipped", tmp_path / "own").find_problems()
    assert (problem.where, why in problem.message) == (line, True), problem


def test_the_features_that_prompts_need_are_allowed(tmp_path: Path) -> None:
    for name in ("shipped", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.md").write_text(
            '{% set names = {"a": "Ann", "b": -1} %}'
            "{% for key, value in d.items() if value %}{{ loop.index }}/{{ loop.length }} "
            '{{ names.get(key, "no " ~ key) }}={{ value + 1 }}{{ "" if loop.last else ", " }}'
            '{% endfor %} {{ l | join(", ") | upper }} {{ l[0][:2] }} {{ 7 % 4 }} {{ d | json }} '
            '{{ rows | selectattr("n", "gt", 1) | map(attribute="n") | list }} '
            '{{ none | default("x" ~ l[0], true) }} {{ "a" in l }} {{ 2 ** 10 }} '
            "{% for i in range(2) %}{{ i }}{% else %}-{% endfor %} {{ 'a' + 'b' }}"
        )
    values = {"d": {"a": 1, "c": 2}, "l": ["abc", "d"], "rows": [{"n": 1}, {"n": 2}]}
    custom_library = PromptLibrary(tmp_path / "shipped", tmp_path / "own")
    expected = '1/2 Ann=2, 2/2 no c=3 ABC, D ab 3 {"a": 1, "c": 2} [2] xabc False 1024 01 ab'
    assert custom_library.render_prompt("p", **values) == expected
    assert PromptLibrary(tmp_path / "shipped").render_prompt("p", **values) == expected


def test_an_undefined_name_is_reported_as_undefined(tmp_path: Path) -> None:
    for text in ("{{ y + 1 }}", "{{ y ~ 1 }}", "{{ y | upper }}", "{% for i in y %}{% endfor %}"):
        for name, content in (("shipped", "{{ x }}"), ("own", text)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "p.md").write_text(content)
        with pytest.raises(InputError, match="'y' is undefined"):
            PromptLibrary(tmp_path / "shipped", tmp_path / "own").render_prompt("p", x=1)


def test_every_packaged_prompt_can_be_copied_and_changed(tmp_path: Path) -> None:
    studies, _ = load_installed_studies()
    copied = 0
    for study in studies:
        if study.prompts is not None:
            custom_folder = shutil.copytree(study.prompts, tmp_path / study.name)
            library = PromptLibrary(study.prompts, Path(custom_folder))
            assert library.find_problems() == []
            copied += len(library.prompt_files)
    assert copied > 50
