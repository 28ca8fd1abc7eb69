"""Images in workbooks are sent to models that accept them and refused for others. The preview shows
the requests.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.errors import FatalModelError, InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.workbook.preparation import config_advisories, load_workbook_config
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.studies.workbook.workbook_builder import (
    find_mistakes,
    make_provider,
    make_workbook,
    read_config,
    save_workbook,
    with_cell,
    with_setting,
    write_workbook,
)
from tests.sweeps import sample_daily

PLAN = "https://example.org/plan.png"
FRUIT = "https://example.org/{{ goods }}.png"
APPLES, PEARS = FRUIT.replace("{{ goods }}", "apples"), FRUIT.replace("{{ goods }}", "pears")
PROMPTS = "interview_prompts!F"


def make_workbook_with_images() -> dict[str, list[list[Any]]]:
    """Make a workbook with images in the context, a treatment, a question and a constant."""
    book = with_cell(make_workbook(), f"{PROMPTS}2", f"This is a market. Its plan: {PLAN}")
    book = with_cell(book, "treatments!B2", "Today: ![the weather](https://example.org/sun)")
    book = with_cell(book, f"{PROMPTS}3", f"What is a fair price for {FRUIT}?")
    return with_cell(book, "constants!B2", '["apples", "pears"]')


def list_shown_images(request: Any) -> set[str]:
    return set(request.images)


def test_each_speaker_sees_the_images_of_its_own_prompts(tmp_path: Path) -> None:
    provider = make_provider()
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=provider)
    treatments = {s["session"]: s["treatment"] for s in run.table("sessions").iter_rows(named=True)}
    assert set(treatments.values()) == {"calm", "NONE"}
    for address, request in provider.seen:
        _, session, task, who = address.split("/")[:4]
        fruit = APPLES if session.startswith("market_1") else PEARS
        wanted = {PLAN}
        if treatments[session.rpartition(".")[2]] == "calm":
            wanted.add("![the weather](https://example.org/sun)")
        # All participants hear the question of the discussion, and it stays in their history.
        wanted.add(fruit)
        assert list_shown_images(request) == wanted, (address, task, who)


def test_images_in_one_cell_may_be_separated_by_commas_alone(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{PROMPTS}3", f"Which? {APPLES},{PEARS}")
    provider = make_provider()
    path = save_workbook(book, tmp_path / "book.xlsx")
    folkmoot.run(path, out=tmp_path / "out", provider=provider)
    assert {r.images for _, r in provider.seen} == {(APPLES, PEARS)}


def test_what_a_participant_says_is_never_an_image(tmp_path: Path) -> None:
    book = with_cell(
        make_workbook(), f"{PROMPTS}5", "You said {{ talk }} Trade? {response_options}"
    )
    provider = make_provider(text="Look: https://evil.example/me.png", number=3)
    path = save_workbook(book, tmp_path / "book.xlsx")
    folkmoot.run(path, out=tmp_path / "out", provider=provider)
    told = [r for a, r in provider.seen if "/m/" in a]
    assert told and all("https://evil.example/me.png" in r.messages[-1].content for r in told)
    assert not any(r.images for _, r in provider.seen)


def test_an_address_that_an_answer_completes_is_an_image(tmp_path: Path) -> None:
    """The workbook states the image, and only a part of its name comes from the participant."""
    book = with_cell(
        make_workbook(),
        f"{PROMPTS}5",
        "{% if offer > 1 %}https://example.org/{{ offer }}.png{% endif %} ok?",
    )
    provider = make_provider(number=7)
    path = save_workbook(book, tmp_path / "book.xlsx")
    folkmoot.run(path, out=tmp_path / "out", provider=provider)
    told = [r for a, r in provider.seen if "/m/" in a]
    assert told and all(r.images == ("https://example.org/7.png",) for r in told)


@pytest.mark.parametrize(
    ("model", "variable", "where"),
    sample_daily(
        [
            ("openai/m", "OPENAI", ("messages", 1, "content")),
            ("anthropic/m", "ANTHROPIC", ("messages", 0, "content")),
            ("google/m", "GOOGLE", ("contents", 0, "parts")),
        ],
        daily=1,
        part="sweeps",
    ),
)
def test_images_go_over_the_wire_and_into_the_journal(
    model: str,
    variable: str,
    where: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies: list[dict[str, Any]] = []

    def says(messages: Any, body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return {"text": "5"}

    path = save_workbook(
        with_setting(make_workbook_with_images(), "num_sessions", 1), tmp_path / "book.xlsx"
    )
    with ServerThread(FaultPlan()) as server:
        server.model.says = says  # type: ignore[method-assign]
        url = server.openai if variable == "OPENAI" else server.url
        monkeypatch.setenv(f"{variable}_BASE_URL", url)
        run = folkmoot.run(path, model=model, out=tmp_path / "out", overrides=("reasks=0",))
    assert bodies
    for body in bodies:
        first: Any = body
        for key in where:
            first = first[key]
        assert sum(PLAN in json.dumps(part) for part in first) == 1
        assert first[0]["text"] == "[image 1]" and PLAN in json.dumps(first[1])
    with Journal(run.path / "journal.sqlite") as journal:
        asked = [e.request for e in journal.read_entries() if e.kind == "ask"]
    assert asked and all(PLAN in request["images"] for request in asked)
    assert folkmoot.run(path, model=model, out=run.path, overrides=("reasks=0",))
    assert CliRunner().invoke(app, ["verify", str(run.path)]).exit_code == 0


@pytest.mark.parametrize("model", ["synthetic", "gpt-3.5-turbo", "kimi-k2"])
def test_a_model_that_reads_text_alone_is_refused_beforehand(model: str, tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    for command in (["check"], ["run", "--out", str(tmp_path / "out")]):
        done = CliRunner().invoke(
            app,
            [*command, str(path), "--model", model],
            env={"OPENAI_API_KEY": "k", "MOONSHOT_API_KEY": "k"},
        )
        assert done.exit_code == 2
        said = " ".join(done.output.split())
        assert (
            "book.xlsx:treatments!B2" in said
            and "accepts no images" in said
            and "--model gpt" in said
        )
    assert not (tmp_path / "out").exists()


def test_check_says_that_the_cost_of_images_is_not_estimated(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    for options, is_said in (((), True), (("--set", "images=placeholder"), False)):
        words = ["check", str(path), "--model", "openai/gpt-4o", *options]
        done = CliRunner().invoke(app, words, env={"OPENAI_API_KEY": "k"})
        assert done.exit_code == 0, done.output
        text = " ".join(done.output.split())
        assert ("Not included: images" in text) == is_said and "reasoning tokens" in text


def test_a_model_of_a_role_is_checked_too(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    options = ["--set", "models.summarizer=kimi-k2"]
    done = CliRunner().invoke(app, ["check", str(path), *options])
    assert done.exit_code == 2 and "kimi-k2-0905-preview accepts no images" in " ".join(
        done.output.split()
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "this model is not multimodal"),
        (400, "Invalid type for 'messages[1].content': expected a string"),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (422, "no"),
    ],
)
def test_a_server_that_takes_no_images_ends_the_run_with_its_words(
    status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is missing because of it, and earlier answers are kept."""

    def says(messages: Any, body: dict[str, Any]) -> dict[str, Any]:
        shows = any(isinstance(m["content"], list) for m in messages)
        return {"status": status, "message": said} if shows else {"text": "5"}

    book = with_cell(make_workbook(), f"{PROMPTS}5", f"Trade {PLAN}? {{response_options}}")
    path = save_workbook(book, tmp_path / "book.xlsx")
    with ServerThread(FaultPlan()) as server:
        server.model.says = says  # type: ignore[method-assign]
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        with pytest.raises(FatalModelError, match="rejected a prompt with images") as error:
            folkmoot.run(path, model="openai/m", out=tmp_path / "out", overrides=("reasks=0",))
    assert said in str(error.value)
    with Journal(tmp_path / "out" / "journal.sqlite") as journal:
        entries = list(journal.read_entries())
    assert entries and not any(e.finish.startswith("refused") for e in entries)


@pytest.mark.parametrize("ending", ["svg", "bmp", "tiff", "heic"])
def test_images_that_models_do_not_take_are_mistakes(ending: str, tmp_path: Path) -> None:
    book = with_cell(
        make_workbook(), f"{PROMPTS}3", f"See https://example.org/{{{{ goods }}}}.{ending}"
    )
    (found,) = find_mistakes(book, tmp_path)
    assert found.startswith(f"book.xlsx:{PROMPTS}3: models accept no images of type {ending}")
    assert "PNG" in found


def test_an_option_cannot_be_an_image(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "interview_prompts!I5", f'["{PLAN}", "none"]')
    (found,) = find_mistakes(book, tmp_path)
    assert found.startswith("book.xlsx:interview_prompts!I5: an option is an image")


def test_the_notes_say_that_images_are_not_in_the_estimate(tmp_path: Path) -> None:
    (note,) = [
        n
        for n in config_advisories(read_config(make_workbook_with_images(), tmp_path))
        if "images" in n
    ]
    assert note.endswith(
        "tokens are not part of the estimate: treatments!B2, interview_prompts!F2, "
        "interview_prompts!F3"
    )
    assert not any("images" in n for n in config_advisories(read_config(make_workbook(), tmp_path)))


@pytest.mark.parametrize(
    "mark",
    [
        "![plan](plan.png)",
        "[IMAGE: https://example.org/1,https://example.org/2]",
        "[IMAGE: pictures/plan.jpg]",
        "![plan](https://example.org/my plan.png)",
        "![plan](https://example.org/plan(1).png)",
        "data:image/svg+xml;base64,PHN2Zz4=",
    ],
)
def test_the_notes_name_a_marked_image_that_cannot_be_sent(mark: str, tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{PROMPTS}3", f"What is fair? {mark}")
    notes = [n for n in config_advisories(read_config(book, tmp_path)) if "no image" in n]
    assert [note.partition(": ")[0] for note in notes] == [f"{PROMPTS}3"]


@pytest.mark.parametrize(
    "text", [PLAN, f"![a]({PLAN})", "[IMAGE: a photo of the market]", f"![]({FRUIT})", "f(x)!"]
)
def test_words_about_an_image_are_no_image_that_is_lost(text: str, tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{PROMPTS}3", f"What is fair? {text}")
    assert not any("no image" in n for n in config_advisories(read_config(book, tmp_path)))


def test_a_document_that_is_marked_as_an_image_is_a_mistake(tmp_path: Path) -> None:
    text = "See ![the plan](https://example.org/plan.pdf)"
    (found,) = find_mistakes(with_cell(make_workbook(), f"{PROMPTS}3", text), tmp_path)
    assert found.startswith(f"book.xlsx:{PROMPTS}3: models accept no images of type pdf")
    link = "See https://example.org/plan.pdf"
    assert not find_mistakes(with_cell(make_workbook(), f"{PROMPTS}3", link), tmp_path)


@pytest.mark.parametrize(
    ("drawn", "is_told"),
    [
        ("<xdr:pic><xdr:blipFill/></xdr:pic>", True),
        ("<xdr:sp><xdr:txBody><a:p><a:r><a:t>Read</a:t></a:r></a:p></xdr:txBody></xdr:sp>", True),
        ("<xdr:graphicFrame/>", False),
    ],
)
def test_the_notes_name_a_sheet_with_pictures_or_text_boxes(
    drawn: str, is_told: bool, tmp_path: Path
) -> None:
    book = make_workbook()
    path = write_workbook(book, tmp_path / "book.xlsx")
    number = list(book).index("interview_prompts")
    with zipfile.ZipFile(path, "a") as file:
        relation = '<Relationship Id="r1" Type="drawing" Target="drawings/drawing1.xml"/>'
        relations = f"<Relationships>{relation}</Relationships>"
        file.writestr(f"xl/_rels/s{number}.xml.rels", relations)
        file.writestr("xl/drawings/drawing1.xml", f"<xdr:wsDr>{drawn}</xdr:wsDr>")
    config = load_workbook_config(path)

    notes = [n for n in config_advisories(config) if "pictures or text boxes" in n]
    assert [("interview_prompts" in note) for note in notes] == [True] * is_told
    # The plan of a run is the same as before, so that earlier runs can be resumed.
    assert "sheets_with_drawings" not in config.model_dump_json()


# --- the preview -----------------------------------------------------------------------------


def read_previews(path: Path) -> list[Any]:
    found = load_study_with_options(
        path, RunOptions(custom_provider=ScriptedProvider(lambda *_: ""))
    )
    assert found.study.preview is not None
    return found.study.preview(found.config, found.prompt_library())


def test_the_preview_is_what_the_run_sends(tmp_path: Path) -> None:
    """The preview has one request per permutation, treatment and role, equal to the byte."""
    provider = make_provider()
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=provider)
    arms = {
        (row["experiment_id"], row["treatment"], row["role"])
        for row in run.table("assignment").iter_rows(named=True)
    }
    found = read_previews(path)
    titles = [tuple(one.title.split(" · ")) for one in found]
    seen = {(t[0], t[2], t[3]) for t in titles if t[3] in ("Buyer", "Seller")}
    assert seen == {(e, t, r) for e in ("market_1", "market_2") for _, t, r in arms}
    assert len(found) == len(seen) + 4  # the Summarizer in each permutation and treatment
    requests = [(r.messages, r.images) for _, r in provider.seen]
    for one in found:
        if not one.note:
            assert (one.messages, one.images) in requests, one.title
    whole = [one for one in found if not one.note]
    assert len(whole) >= 4


def test_the_preview_says_what_it_leaves_out(tmp_path: Path) -> None:
    (first, *_) = [
        p
        for p in read_previews(save_workbook(make_workbook(), tmp_path / "b.xlsx"))
        if "Summarizer" in p.title
    ]
    assert "earlier messages are left out" in first.note
    assert first.messages[-1].content == "Sum up."
    assert "You keep the books." in first.messages[0].content


def test_the_preview_has_the_options_in_the_order_of_the_run(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "interview_prompts!B3", "private_question")
    book = with_cell(book, "interview_prompts!H3", "category")
    book = with_cell(book, "interview_prompts!I3", '["one", "two", "three", "four", "five"]')
    book = with_cell(book, "interview_prompts!J3", 1)
    provider = make_provider()
    path = save_workbook(book, tmp_path / "book.xlsx")
    folkmoot.run(path, out=tmp_path / "out", provider=provider)
    requests = [r.messages for _, r in provider.seen]
    found = [p for p in read_previews(path) if "Summarizer" not in p.title]
    assert found and all(one.messages in requests for one in found)


def test_check_prints_the_preview(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    done = CliRunner().invoke(app, ["check", str(path), "--preview"])
    assert done.exit_code == 0, done.output
    assert "market_1 · goods = apples · calm · Buyer · task t" in done.output
    assert "market_2 · goods = pears · NONE · Seller" in done.output
    assert f"Sent as an image: {APPLES}" in done.output
    assert "This is a market. Its plan" in done.output
    assert "{{" not in done.output
    assert "Its plan" not in CliRunner().invoke(app, ["check", str(path)]).output


def test_a_study_type_without_a_preview_says_so() -> None:
    done = CliRunner().invoke(app, ["check", "examples/town_hall.yaml", "--preview"])
    assert done.exit_code == 2 and "--preview" in done.output


def test_rehearsals_of_workbooks_with_images_still_count(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0 and "Calls     about" in done.output


def test_the_study_file_from_python_refuses_as_well(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    with pytest.raises(InputError, match="accepts no images"):
        folkmoot.run(path, model="synthetic", out=tmp_path / "out")


def test_a_workbook_with_images_can_be_tried_with_placeholders(tmp_path: Path) -> None:
    path = save_workbook(make_workbook_with_images(), tmp_path / "book.xlsx")
    with pytest.raises(InputError, match="--set images=placeholder"):
        folkmoot.run(path, model="synthetic", out=tmp_path / "refused")
    provider = make_provider(text="Look: https://elsewhere.example/me.png")
    options = {"overrides": ("images=placeholder",)}
    folkmoot.run(path, out=tmp_path / "out", provider=provider, **options)
    assert provider.seen and not any(r.images for _, r in provider.seen)
    sent = "\n".join(m.content for _, r in provider.seen for m in r.messages)
    assert "Its plan: [image]" in sent and "Today: [image]" in sent
    assert "a fair price for [image]?" in sent and "example.org" not in sent
    assert "https://elsewhere.example/me.png" in sent  # the words of a participant
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "tried", **options)
    assert run.table("responses").height
