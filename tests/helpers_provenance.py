"""What tests of provenance share."""

from __future__ import annotations

from folkmoot.provenance import Source, SourcedText

Told = tuple[str, str, bool]


def told(text: SourcedText) -> list[Told]:
    """Each span of a text: its characters, its kind, and whether they were altered."""
    return [(text[s.start : s.end], s.source.kind, s.source.altered) for s in text.spans]


def sources_in(text: SourcedText) -> list[Source]:
    """The sources of a text, in order."""
    return [span.source for span in text.spans]
