"""A Qualtrics survey is uploaded in the studio and becomes a study."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.studies.workbook.qualtrics.qsf_builder import (
    make_question,
    make_survey,
    single_choice,
    write_survey,
)
from tests.studio.conftest import StudioProcess
from tests.studio.test_studio import look, page

__all__ = ["page"]


# Daily, surveys are imported by the command, without a browser.
@pytest.mark.nightly(part="pages")
def test_a_survey_is_uploaded_and_what_is_no_survey_is_refused(
    page: Page, studio: StudioProcess, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.qsf"
    broken.write_text("<html>", "utf-8")
    upload(page, studio, broken)
    expect(page.locator("main")).to_contain_text(
        "not a survey exported from Qualtrics: it is not JSON"
    )
    expect(page.locator("main")).not_to_contain_text(str(tmp_path.parent))
    page.goto(studio.link)
    expect(page.locator(".studies")).to_have_count(0)

    document = make_survey(
        [
            single_choice("QID1", "Do you drink coffee?", "Yes", "No"),
            make_question("QID2", "FileUpload", "FileUpload", "Send a <b>photo</b>"),
        ]
    )
    upload(page, studio, write_survey(document, tmp_path / "pets.qsf"))
    # The page says what was left out, and the file of the survey is kept.
    expect(page.locator(".estimate dt:text-is('Calls to the model') + dd")).to_contain_text(
        "about 20"
    )
    notes = page.locator("details.section", has_text="What the import did")
    expect(notes.locator("h3")).to_have_text(["Kept", "To do", "Left out"])
    lists = [
        each.all_inner_texts() for each in (li.locator("li") for li in notes.locator("ul").all())
    ]
    assert lists[0] == ["1 question as 1 task (a task has one answer), 1 treatment"]
    assert lists[2] == [
        "Q2 “Send a photo” (QID2): a file upload is not supported; if you need it, ask it in words "
        "or with choices"
    ]
    # The names of sheets and settings are those of the form.
    assert "“Agent profiles”" in lists[1][0] and "“Number of sessions”" in lists[1][0]
    assert "into “Model info”" in lists[1][1]
    expect(page.locator(".files")).to_contain_text("pets.qsf")
    look(page, "survey")


def upload(page: Page, studio: StudioProcess, path: Path) -> None:
    page.goto(studio.link)
    page.get_by_label("Qualtrics survey").set_input_files(path)
    page.get_by_role("button", name="Open it").click()
