"""Prompts: exact wording, replacement of packaged prompts, the sandbox, and checks before a run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from folkmoot.conversation import prompts
from folkmoot.conversation.prompts import PromptLibrary, wording_for_people
from folkmoot.errors import InputError, ProtocolError

VOTE = """You are {{ who }}.

Options:
{% for option in options %}
{{ loop.index }}. {{ option }}
{% endfor %}

Reply with ONLY the text of your choice, nothing else.
"""


@pytest.fixture
def packaged_prompts(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    (folder / "vote").mkdir(parents=True)
    (folder / "vote.md").write_text(VOTE)
    (folder / "vote" / "final.md").write_text("{{ who }} again")
    return folder


def write_custom_prompts(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def render_failing_prompt(tmp_path: Path, text: str) -> str:
    (tmp_path / "p.md").write_text(text)
    with pytest.raises(ProtocolError) as error:
        PromptLibrary(tmp_path).render_prompt("p", x=1)
    return str(error.value)


def test_wording_is_exact(packaged_prompts: Path) -> None:
    library = PromptLibrary(packaged_prompts)
    assert library.render_prompt(
        "vote", who="Ann <&> 'Bob'", options=["Parks & more", '"Jobs"']
    ) == (
        "You are Ann <&> 'Bob'.\n\nOptions:\n1. Parks & more\n2. \"Jobs\"\n\n"
        "Reply with ONLY the text of your choice, nothing else."
    )
    assert library.render_prompt("vote/final", who="Ann") == "Ann again"


def test_the_value_of_a_variable_is_never_read_as_a_template(packaged_prompts: Path) -> None:
    template_text = "{{ 7 * 7 }} {% if %} {# x #}"
    assert (
        PromptLibrary(packaged_prompts).render_prompt("vote/final", who=template_text)
        == f"{template_text} again"
    )


def test_custom_prompts_replace_packaged_ones_and_change_the_hash(
    packaged_prompts: Path, tmp_path: Path
) -> None:
    packaged_library = PromptLibrary(packaged_prompts)
    custom_library = PromptLibrary(
        packaged_prompts, write_custom_prompts(tmp_path, vote="{{ who }}: choose")
    )
    assert custom_library.render_prompt("vote", who="Ann", options=[]) == "Ann: choose"
    assert custom_library.render_prompt("vote/final", who="Ann") == "Ann again"
    assert (
        list(custom_library.hashes()) == list(packaged_library.hashes()) == ["vote", "vote/final"]
    )
    assert custom_library.hashes()["vote"] != packaged_library.hashes()["vote"]
    assert custom_library.hashes()["vote/final"] == packaged_library.hashes()["vote/final"]
    assert custom_library.find_problems() == []


def test_an_included_prompt_is_one_file_and_can_be_replaced(
    packaged_prompts: Path, tmp_path: Path
) -> None:
    (packaged_prompts / "known.md").write_text("Known: {{ what }}\n")
    for name in ("ask", "tell"):
        (packaged_prompts / f"{name}.md").write_text(
            '{% include "known" %}\n' + name + " {{ who }}\n"
        )
    packaged_library = PromptLibrary(packaged_prompts)
    assert packaged_library.render_prompt("ask", what="x", who="Ann") == "Known: x\nask Ann"
    assert packaged_library.variables_of("tell") == {"what", "who"}
    custom_library = PromptLibrary(
        packaged_prompts, write_custom_prompts(tmp_path, known="I know {{ what }}.\n")
    )
    assert custom_library.find_problems() == []
    assert custom_library.render_prompt("tell", what="x", who="Ann") == "I know x.\ntell Ann"


def test_a_problem_in_an_included_prompt_names_its_file(
    packaged_prompts: Path, tmp_path: Path
) -> None:
    (packaged_prompts / "known.md").write_text("{{ what }}")
    (packaged_prompts / "ask.md").write_text('{% include "known" %}\n{{ who }}')
    custom_library = PromptLibrary(
        packaged_prompts, write_custom_prompts(tmp_path, known="{{ wat }}")
    )
    assert "known.md:1: unknown variable wat" in str(custom_library.find_problems()[0])
    with pytest.raises(InputError, match=r"known\.md.*'wat' is undefined"):
        custom_library.render_prompt("ask", what="x", who="Ann")
    (tmp_path / "b").mkdir()
    with_unknown_include = PromptLibrary(
        packaged_prompts,
        write_custom_prompts(tmp_path / "b", ask='{% include "knwon" %}\n{{ who }}'),
    )
    assert "there is no prompt knwon" in str(with_unknown_include.find_problems()[0])
    include_line = '{% include "ask" %}\n'
    (tmp_path / "c").mkdir()
    with_circular_include = PromptLibrary(
        packaged_prompts, write_custom_prompts(tmp_path / "c", known=include_line, ask=include_line)
    )
    assert "may not include" in str(with_circular_include.find_problems()[0])


def test_all_problems_of_custom_prompts_are_found_before_a_run(
    packaged_prompts: Path, tmp_path: Path
) -> None:
    folder = write_custom_prompts(tmp_path, vote="a\n{{ wo }} {{ colour }}", vot="x")
    (folder / "vote").mkdir()
    (folder / "vote" / "final.md").write_text("a\n\n{% if %}")
    problems = {
        str(problem).replace(f"{folder}/", "")
        for problem in PromptLibrary(packaged_prompts, folder).find_problems()
    }
    assert problems == {
        "vot.md: prompts: unknown prompt vot (did you mean vote?)",
        "vote.md:2: unknown variable colour (known are: options, who)",
        "vote.md:2: unknown variable wo (did you mean who?)",
        "vote/final.md:3: Expected an expression, got 'end of statement block'",
    }
    (problem,) = PromptLibrary(packaged_prompts, tmp_path / "none").find_problems()
    assert "no such folder" in str(problem)


def test_the_error_of_an_undefined_variable_depends_on_the_owner_of_the_file(
    packaged_prompts: Path, tmp_path: Path
) -> None:
    with pytest.raises(ProtocolError, match="'who' is undefined"):
        PromptLibrary(packaged_prompts).render_prompt("vote", options=[])
    custom_library = PromptLibrary(
        packaged_prompts, write_custom_prompts(tmp_path, vote="{{ whom }}")
    )
    with pytest.raises(InputError, match="'whom' is undefined"):
        custom_library.render_prompt("vote", who="Ann", options=[])
    with pytest.raises(ProtocolError, match=r"did you mean vote\?"):
        PromptLibrary(packaged_prompts).render_prompt("votes")


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ x.__init__.__globals__ }}",
        "{{ [].append(1) }}",
        "{{ self._TemplateReference__context }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 99999999 }}",
        "{{ range(1000000000) | list }}",
        "{{ x | attr('real') }}",
        "{{ cycler('a') }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_blocks_unsafe_templates(tmp_path: Path, text: str) -> None:
    assert "prompt p" in render_failing_prompt(tmp_path, text)


def test_too_long_output_of_a_custom_prompt_is_stopped(
    packaged_prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "MAX_PROMPT_CHARACTERS", 1000)
    loop = "{% for i in range(99999) %}"
    custom_folder = write_custom_prompts(
        tmp_path, vote=f"{loop}{loop}aaaaaaaaaa{{% endfor %}}{{% endfor %}}"
    )
    with pytest.raises(InputError, match="longer than 1,000 characters"):
        PromptLibrary(packaged_prompts, custom_folder).render_prompt("vote")


def test_json_in_a_prompt_keeps_its_characters(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("{{ x | tojson }}")
    assert PromptLibrary(tmp_path).render_prompt("p", x={"a": "<é>"}) == '{"a": "<é>"}'


def test_a_study_without_prompts_has_none() -> None:
    assert PromptLibrary(None).hashes() == {}


def test_wording_for_humans_does_not_change_the_prompts_of_models(packaged_prompts: Path) -> None:
    (packaged_prompts / "vote.md").write_text(
        "{{ card }}\nWhich?\n{% if not for_people %}\n\n- {{ a }}\n\nWrite JSON.\n{% endif %}\n"
    )
    (packaged_prompts / "card.md").write_text(
        "You are Ines.{% if not for_people %} Write JSON.{% endif %}"
    )
    library = PromptLibrary(packaged_prompts)
    model_prompt = library.render_prompt("vote", card=library.render_prompt("card"), a="Yes")
    assert wording_for_people(model_prompt) is model_prompt
    library.renders_for_people = True
    prompt = library.render_prompt("vote", card=library.render_prompt("card"), a="Yes")
    assert prompt == model_prompt == "You are Ines. Write JSON.\nWhich?\n\n- Yes\n\nWrite JSON."
    assert wording_for_people(prompt) == "You are Ines.\nWhich?"
    assert wording_for_people(pickle.loads(pickle.dumps(prompt))) == "You are Ines.\nWhich?"
