"""Upload of a Qualtrics survey in the studio, which becomes a study."""

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
from tests.studio.test_studio import check_page, page

__all__ = ["page"]


# Daily, surveys are imported by the command, without a browser.
@pytest.mark.nightly(part="pages")
def test_a_survey_is_imported_and_another_file_is_refused(
    page: Page, studio: StudioProcess, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.qsf"
    broken.write_text("<html>", "utf-8")
    upload_survey(page, studio, broken)
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
    upload_survey(page, studio, write_survey(document, tmp_path / "pets.qsf"))
    # The page lists what was left out, and the survey file is kept.
    expect(page.locator(".estimate dt:text-is('Calls to the model') + dd")).to_contain_text(
        "about 20"
    )
    notes = page.locator("details.section", has_text="What the import did")
    expect(notes.locator("h3")).to_have_text(["Kept", "To do", "Left out"])
    note_texts = [
        notes_list.all_inner_texts()
        for notes_list in (list_element.locator("li") for list_element in notes.locator("ul").all())
    ]
    assert note_texts[0] == ["1 question as 1 task (a task has one answer), 1 treatment"]
    assert note_texts[2] == [
        "Q2 “Send a photo” (QID2): a file upload is not supported; if you need it, ask it in words "
        "or with choices"
    ]
    # Sheets and settings have the names of the form.
    assert "“Agent profiles”" in note_texts[1][0] and "“Number of sessions”" in note_texts[1][0]
    assert "into “Model info”" in note_texts[1][1]
    expect(page.locator(".files")).to_contain_text("pets.qsf")
    check_page(page, "survey")


def upload_survey(page: Page, studio: StudioProcess, path: Path) -> None:
    page.goto(studio.link)
    page.get_by_label("Qualtrics survey").set_input_files(path)
    page.get_by_role("button", name="Open it").click()
