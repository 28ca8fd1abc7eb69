"""Images in prompts: find the references in a text, and split messages at the references.

An image is identified by its address.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from folkmoot.models.request import Message
from folkmoot.provenance import replace_words

# The types that all vendors accept. Other types are accepted by one vendor at most.
MIME_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
UNSUPPORTED_TYPES = ("svg", "bmp", "tif", "tiff", "avif", "heic", "ico")
# Types of other material, whose addresses are images only if they are marked as such.
OTHER_MATERIAL = ("pdf", "mp4", "mov", "webm", "mp3")

# The lengths in these patterns are bounded, so that the search takes linear time in any text.
# A comma may be part of an address, but not before another one: several images in one cell are
# often separated by commas alone.
_IN_URL = r"(?![,;](?:https?://|data:image/))[^\s<>\"'()\[\]{}|\\^`"
_URL = rf"https?://(?:{_IN_URL}]){{1,2000}}"
_DATA = r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}"
# An image is marked (Markdown, or a tag in brackets), or its path ends like an image file.
_URL_OR_DATA = rf"\s*({_URL}|{_DATA})\s*"
_MARKED = rf"!\[[^\]\n]{{0,500}}\]\({_URL_OR_DATA}\)|\[image:{_URL_OR_DATA}\]"
_PATH = rf"https?://(?:{_IN_URL}?#]){{1,2000}}"
_TYPE = rf"\.(?:{'|'.join((*MIME_TYPES, *UNSUPPORTED_TYPES))})(?![\w/.%-]{{0,100}}\w)"
_QUERY = rf"(?:[?#](?:{_IN_URL}]){{0,2000}}[\w=&%/-])?"
_IMAGE = re.compile(f"{_MARKED}|({_PATH}{_TYPE}{_QUERY}|{_DATA})", re.IGNORECASE)
# The beginning of an image in Markdown or of image data, and a tag with an address or the name of a
# file.
_MARK = re.compile(
    r"!\[[^\]\n]{0,500}\]\([^\n)]{0,200}\)?|data:image/[\w.+-]{1,50};base64,"
    r"|\[image:\s*https?://[^\]\n]{1,2000}\]"
    rf"|\[image:[^\]\n]{{0,500}}\.(?:{'|'.join((*MIME_TYPES, *UNSUPPORTED_TYPES))})\s*\]",
    re.IGNORECASE,
)
_PATH_END = re.compile(r"\.(\w+)(?:[?#].*)?$", re.DOTALL)


class Image(NamedTuple):
    """One image in a text."""

    # The phrase of the text that refers to the image.
    words: str
    # The address of the image (`https:` or `data:`).
    url: str

    @property
    def file_extension(self) -> str:
        """The file extension at the end of the address, or an empty string."""
        match = None if self.data else _PATH_END.search(self.url.partition("://")[2])
        return match[1].lower() if match else ""

    @property
    def media_type(self) -> str:
        """The media type, or an empty string if the address does not state it."""
        return self.data[0] if self.data else MIME_TYPES.get(self.file_extension, "")

    @property
    def data(self) -> tuple[str, str] | None:
        """The media type and the base64 data of a `data:` address.

        None for an address that does not begin with `data:`.
        """
        head, comma, body = self.url.partition(";base64,")
        return (head.removeprefix("data:"), body) if comma and head.startswith("data:") else None


def find_image_references(text: str) -> list[Image]:
    """Return the images of a text in order, without repetitions."""
    return list(dict.fromkeys(image for image, _ in find_images(text)))


def find_unusable_images(text: str) -> list[str]:
    """Return the phrases of a text that mark an image but state no address of one."""
    # A placeholder may complete an address.
    spans = [match.span() for _, match in find_images(text)]
    marks = {
        match[0]: None
        for match in _MARK.finditer(text)
        if "{" not in match[0] and not any(a <= match.start() < end for a, end in spans)
    }
    return list(marks)


def replace_images(text: str, keep: Collection[str] = ()) -> str:
    """Return a text with `[image]` in place of each image reference.

    - `keep`: the references that are not replaced.
    """
    # The result keeps the note of where the text comes from.
    for image, _ in list(find_images(text)):
        if image.words not in keep:
            text = replace_words(text, image.words, "[image]")
    return text


class MessagePart(NamedTuple):
    """A part of a message: a text, or an image between two texts."""

    text: str = ""
    image: Image | None = None


def images_in_messages(images: Collection[str], messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the image references from `images` that occur in the messages."""
    # Models cannot generate images, so an assistant message has none.
    prompt_texts = (
        (message.content for message in messages if message.role != "assistant") if images else ()
    )
    references = (
        image.words
        for text in prompt_texts
        for image in find_image_references(text)
        if image.words in images
    )
    return tuple(dict.fromkeys(references))


def split_messages(
    messages: Sequence[Message], images: Collection[str]
) -> list[tuple[Message, list[MessagePart]]]:
    """Split messages into text parts and image parts."""
    # An image is inserted at its first mention. Every mention becomes `[image 1]`, `[image 2]`, …,
    # so that later texts can refer to the image. A system message can hold only text, so its images
    # are inserted at the start of the next user message.
    if not images:
        return [(message, [MessagePart(message.content)]) for message in messages]
    number_by_url: dict[str, int] = {}
    waiting_parts: list[MessagePart] = []
    result: list[tuple[Message, list[MessagePart]]] = []
    for message in messages:
        if message.role == "assistant":
            result.append((message, [MessagePart(message.content)]))
            continue
        parts, waiting_parts = (
            ([], waiting_parts) if message.role == "system" else (waiting_parts, [])
        )
        text, end = "", 0
        for image, match in find_images(message.content):
            if image.words not in images:
                continue
            is_new = image.url not in number_by_url
            label = f"[image {number_by_url.setdefault(image.url, len(number_by_url) + 1)}]"
            text += message.content[end : match.start()] + label
            end = match.end()
            if is_new and message.role == "user":
                parts += [MessagePart(text), MessagePart(image=image)]
                text = ""
            elif is_new:
                waiting_parts += [MessagePart(label), MessagePart(image=image)]
        text += message.content[end:]
        if text.strip():
            parts.append(MessagePart(text))
        result.append((message, parts))
    if waiting_parts:
        result.append((Message("user", ""), waiting_parts))
    return result


def find_images(text: str) -> Iterator[tuple[Image, re.Match[str]]]:
    """Yield each image of a text, together with its regular-expression match."""
    # This quick test spares the pattern search for nearly all texts.
    if "://" in text or "data:image" in text:
        for match in _IMAGE.finditer(text):
            yield Image(match[0], next(filter(None, match.groups()))), match
