"""A prompt that `folkmoot check --preview` prints."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.models.request import Message


@dataclass(frozen=True, slots=True)
class Preview:
    """One prompt, as a request would send it.

    The title names the speaker. The messages are those of the request.
    """

    title: str
    messages: tuple[Message, ...]
    images: tuple[str, ...] = ()
    note: str = ""
