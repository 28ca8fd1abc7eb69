"""Images in what a group is shown: they are sent as images, or refused before the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from folkmoot.errors import Problem
from folkmoot.models.images import NOT_TAKEN, TYPES, images_in
from folkmoot.studies.focus_group.config import DiscussionConfig

# Files that a text can only name. Models would be sent the name alone.
_MEDIA = (*TYPES, *NOT_TAKEN, "pdf", "mp4", "mov", "webm", "avi", "mp3", "wav")
_FILE = re.compile(rf"[^\s()\[\]<>\"']+\.(?:{'|'.join(_MEDIA)})(?![\w/.-]*\w)", re.IGNORECASE)
_AS_ADDRESS = (
    "give the address of a PNG, JPEG, GIF or WebP image (https://… or data:image/png;base64,…)"
)


def read_images(material: str | None) -> tuple[str, ...]:
    """The words of a material that are sent as images."""
    return tuple(image.words for image in images_in(material or ""))


def list_images(config: DiscussionConfig) -> list[str]:
    """The keys whose texts show images."""
    return [key for key, text in _texts(config) if images_in(text)]


def check_images(config: DiscussionConfig) -> list[Problem]:
    """Images that no model would see: those of other types, file names, and those that stand where
    a text is wanted."""
    problems: list[Problem] = []
    for key, text in _texts(config):
        shown = images_in(text)
        rest = text
        for image in shown:
            rest = rest.replace(image.words, " ")
            if image.ending in NOT_TAKEN:
                message = f"models take no images of type {image.ending} ({image.url[:80]})"
                problems.append(Problem(message, key=key, hint=_AS_ADDRESS))
        if shown and not key.endswith("stimulus_material"):
            hint = "put it into stimulus_material"
            problems.append(Problem("an image stands where words are wanted", key=key, hint=hint))
        for found in _FILE.finditer(rest):
            message = f"{found[0][:80]} is a file, of which models would be sent the name alone"
            problems.append(Problem(message, key=key, hint=_AS_ADDRESS))
    return problems


def _texts(config: DiscussionConfig) -> Iterator[tuple[str, str]]:
    """The texts of a study file that people are shown, by key."""
    parts = [("", config), *((f"stimuli.{n}.", each) for n, each in enumerate(config.stimuli))]
    for prefix, part in parts:
        for key in ("product_concept", "category", "stimulus_material"):
            text = getattr(part, key)
            if text:
                yield f"{prefix}{key}", text
