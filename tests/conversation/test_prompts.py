"""Prompts: exact wording, own files over shipped ones, a sandbox, and checks before a run."""

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
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    (folder / "vote").mkdir(parents=True)
    (folder / "vote.md").write_text(VOTE)
    (folder / "vote" / "final.md").write_text("{{ who }} again")
    return folder


def with_own(tmp_path: Path, **files: str) -> Path:
    own = tmp_path / "own"
    own.mkdir()
    for name, text in files.items():
        (own / f"{name}.md").write_text(text)
    return own


def failing(tmp_path: Path, text: str) -> str:
    (tmp_path / "p.md").write_text(text)
    with pytest.raises(ProtocolError) as caught:
        PromptLibrary(tmp_path).render_prompt("p", x=1)
    return str(caught.value)


def test_wording_is_exact(shipped: Path) -> None:
    library = PromptLibrary(shipped)
    assert library.render_prompt(
        "vote", who="Ann <&> 'Bob'", options=["Parks & more", '"Jobs"']
    ) == (
        "You are Ann <&> 'Bob'.\n\nOptions:\n1. Parks & more\n2. \"Jobs\"\n\n"
        "Reply with ONLY the text of your choice, nothing else."
    )
    assert library.render_prompt("vote/final", who="Ann") == "Ann again"


def test_what_a_variable_holds_is_never_read_as_template(shipped: Path) -> None:
    said = "{{ 7 * 7 }} {% if %} {# x #}"
    assert PromptLibrary(shipped).render_prompt("vote/final", who=said) == f"{said} again"


def test_own_prompts_replace_shipped_ones_and_change_the_hash(
    shipped: Path, tmp_path: Path
) -> None:
    plain = PromptLibrary(shipped)
    own = PromptLibrary(shipped, with_own(tmp_path, vote="{{ who }}: choose"))
    assert own.render_prompt("vote", who="Ann", options=[]) == "Ann: choose"
    assert own.render_prompt("vote/final", who="Ann") == "Ann again"
    assert list(own.hashes()) == list(plain.hashes()) == ["vote", "vote/final"]
    assert own.hashes()["vote"] != plain.hashes()["vote"]
    assert own.hashes()["vote/final"] == plain.hashes()["vote/final"]
    assert own.find_problems() == []


def test_text_that_prompts_share_is_one_file_and_can_be_replaced(
    shipped: Path, tmp_path: Path
) -> None:
    (shipped / "known.md").write_text("Known: {{ what }}\n")
    for name in ("ask", "tell"):
        (shipped / f"{name}.md").write_text('{% include "known" %}\n' + name + " {{ who }}\n")
    plain = PromptLibrary(shipped)
    assert plain.render_prompt("ask", what="x", who="Ann") == "Known: x\nask Ann"
    assert plain.variables_of("tell") == {"what", "who"}
    own = PromptLibrary(shipped, with_own(tmp_path, known="I know {{ what }}.\n"))
    assert own.find_problems() == []
    assert own.render_prompt("tell", what="x", who="Ann") == "I know x.\ntell Ann"


def test_a_mistake_in_a_shared_part_is_told_of_the_file_that_holds_it(
    shipped: Path, tmp_path: Path
) -> None:
    (shipped / "known.md").write_text("{{ what }}")
    (shipped / "ask.md").write_text('{% include "known" %}\n{{ who }}')
    own = PromptLibrary(shipped, with_own(tmp_path, known="{{ wat }}"))
    assert "known.md:1: unknown variable wat" in str(own.find_problems()[0])
    with pytest.raises(InputError, match=r"known\.md.*'wat' is undefined"):
        own.render_prompt("ask", what="x", who="Ann")
    (tmp_path / "b").mkdir()
    lost = PromptLibrary(shipped, with_own(tmp_path / "b", ask='{% include "knwon" %}\n{{ who }}'))
    assert "there is no prompt knwon" in str(lost.find_problems()[0])
    endless = '{% include "ask" %}\n'
    (tmp_path / "c").mkdir()
    circle = PromptLibrary(shipped, with_own(tmp_path / "c", known=endless, ask=endless))
    assert "may not include" in str(circle.find_problems()[0])


def test_mistakes_in_own_prompts_are_all_found_before_a_run(shipped: Path, tmp_path: Path) -> None:
    folder = with_own(tmp_path, vote="a\n{{ wo }} {{ colour }}", vot="x")
    (folder / "vote").mkdir()
    (folder / "vote" / "final.md").write_text("a\n\n{% if %}")
    found = {
        str(p).replace(f"{folder}/", "") for p in PromptLibrary(shipped, folder).find_problems()
    }
    assert found == {
        "vot.md: prompts: unknown prompt vot (did you mean vote?)",
        "vote.md:2: unknown variable colour (known are: options, who)",
        "vote.md:2: unknown variable wo (did you mean who?)",
        "vote/final.md:3: Expected an expression, got 'end of statement block'",
    }
    (problem,) = PromptLibrary(shipped, tmp_path / "none").find_problems()
    assert "no such folder" in str(problem)


def test_undefined_variables_are_errors_of_whose_file_it_is(shipped: Path, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="'who' is undefined"):
        PromptLibrary(shipped).render_prompt("vote", options=[])
    own = PromptLibrary(shipped, with_own(tmp_path, vote="{{ whom }}"))
    with pytest.raises(InputError, match="'whom' is undefined"):
        own.render_prompt("vote", who="Ann", options=[])
    with pytest.raises(ProtocolError, match=r"did you mean vote\?"):
        PromptLibrary(shipped).render_prompt("votes")


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
def test_the_sandbox_lets_nothing_out(tmp_path: Path, text: str) -> None:
    assert "prompt p" in failing(tmp_path, text)


def test_endless_text_of_somebodys_own_is_stopped(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "MAX_PROMPT_CHARACTERS", 1000)
    loop = "{% for i in range(99999) %}"
    own = with_own(tmp_path, vote=f"{loop}{loop}aaaaaaaaaa{{% endfor %}}{{% endfor %}}")
    with pytest.raises(InputError, match="longer than 1,000 characters"):
        PromptLibrary(shipped, own).render_prompt("vote")


def test_json_in_a_prompt_keeps_its_characters(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("{{ x | tojson }}")
    assert PromptLibrary(tmp_path).render_prompt("p", x={"a": "<é>"}) == '{"a": "<é>"}'


def test_a_study_without_prompts_has_none() -> None:
    assert PromptLibrary(None).hashes() == {}


def test_wording_for_people_changes_nothing_for_models(shipped: Path) -> None:
    (shipped / "vote.md").write_text(
        "{{ card }}\nWhich?\n{% if not for_people %}\n\n- {{ a }}\n\nWrite JSON.\n{% endif %}\n"
    )
    (shipped / "card.md").write_text("You are Ines.{% if not for_people %} Write JSON.{% endif %}")
    library = PromptLibrary(shipped)
    plain = library.render_prompt("vote", card=library.render_prompt("card"), a="Yes")
    assert wording_for_people(plain) is plain
    library.renders_for_people = True
    prompt = library.render_prompt("vote", card=library.render_prompt("card"), a="Yes")
    assert prompt == plain == "You are Ines. Write JSON.\nWhich?\n\n- Yes\n\nWrite JSON."
    assert wording_for_people(prompt) == "You are Ines.\nWhich?"
    assert wording_for_people(pickle.loads(pickle.dumps(prompt))) == "You are Ines.\nWhich?"
