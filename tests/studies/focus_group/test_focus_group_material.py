"""Image material is sent as an image, or refused before the first call."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.focus_group import STUDY
from tests.studies.focus_group.at_hand import make_config
from tests.studies.focus_group.test_focus_group_run import (
    STUDY_FILE,
    reply_plainly,
    run_focus_group,
)

AD = "https://example.org/ads/oven.png"
SMALL = "num_personas: 3\nmax_responses_per_question: 3\nquestions_per_phase: 1\n"


def format_study_file(material: str) -> str:
    return STUDY_FILE.replace("Meet the oven that reads. 299 dollars.", f"'{material}'") + SMALL


def test_an_image_is_sent_as_one_wherever_the_material_is_shown(tmp_path: Path) -> None:
    scripted = ScriptedProvider(reply_plainly, keep_requests=True)
    path = tmp_path / "study.yaml"
    path.write_text(format_study_file(f"Look at this. ![the oven]({AD})"))
    folkmoot.run(path, out=tmp_path / "run", provider=scripted)
    for address, request in scripted.seen:
        shows = any(AD in m.content for m in request.messages if m.role != "assistant")
        assert bool(request.images) == shows, address
    kinds = {a.split("/")[3] for a, r in scripted.seen if r.images}
    assert {"before", "after", "guide", "reaction", "synthesis"} <= kinds
    assert "warmup" not in kinds


@pytest.mark.parametrize(
    ("material", "words"),
    [
        ("ad.png", "ad.png is a file"),
        ("materials/new ad.JPG", "ad.JPG is a file"),
        ("See ![the ad](images/ad.webp) and say", "images/ad.webp is a file"),
        ("[image: ./ad.jpeg]", "ad.jpeg is a file"),
        ("file:///home/me/ad.gif", "is a file"),
        ("spot.mp4", "spot.mp4 is a file"),
        ("https://example.org/logo.svg", "no images of type svg"),
    ],
)
def test_an_image_that_no_model_would_see_is_refused(
    tmp_path: Path, material: str, words: str
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(format_study_file(material))
    scripted = ScriptedProvider(reply_plainly)
    with pytest.raises(InputError) as caught:
        folkmoot.run(path, out=tmp_path / "run", provider=scripted)
    (problem,) = caught.value.problems
    assert problem.key == "stimulus_material" and words in problem.message
    assert scripted.calls == 0


def test_an_image_in_place_of_a_concept_is_refused(tmp_path: Path) -> None:
    (problem,) = STUDY.check_config(make_config(product_concept=f"This: {AD}"), tmp_path)
    assert problem.key == "product_concept" and "stimulus_material" in problem.hint


def test_a_model_without_image_input_is_refused_an_image(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(format_study_file(AD))
    with pytest.raises(InputError, match="shows an image, but synthetic"):
        folkmoot.run(path, out=tmp_path / "run", model="synthetic")


@pytest.mark.parametrize(
    "material",
    ["Meet the oven. 299 dollars.", "Version 2.0 of oven.com, e.g. on https://example.org/oven."],
)
def test_words_are_no_images(tmp_path: Path, material: str) -> None:
    assert STUDY.check_config(make_config(stimulus_material=material), tmp_path) == []
    assert STUDY.image_locations(make_config(stimulus_material=material)) == []


def test_one_person_is_no_group(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be at least 2"):
        run_focus_group(tmp_path, "num_personas: 1\nmax_responses_per_question: 1\n")
