"""The files of a focus group: transcripts and statistics per discussion, one topline.

A single discussion stands in the run folder itself; several stand under `groups/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.engine.session import Session
from folkmoot.studies.focus_group import topline, topline_page
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.transcript import TranscriptFormatter


def folder_of(config: DiscussionConfig, group: str, stimulus: str) -> str:
    """Where the files of one discussion stand, with a slash at the end; empty for the root."""
    if config.replications == 1 and len(config.concepts) == 1:
        return ""
    if len(config.concepts) == 1:
        return f"groups/{group}/"
    return f"groups/{group}/{stimulus}/"


def write_discussion(
    session: Session, config: DiscussionConfig, transcript: DiscussionTranscript
) -> None:
    """transcript.md, .json, .html and statistics.json of one discussion."""
    at = folder_of(config, transcript.group, transcript.stimulus)
    mark = session.synthetic_mark
    session.write_text(f"{at}transcript.md", TranscriptFormatter.to_markdown(transcript, mark))
    session.write_text(f"{at}transcript.json", TranscriptFormatter.to_json(transcript))
    session.write_text(f"{at}transcript.html", TranscriptFormatter.to_html(transcript, mark))
    session.write_json(f"{at}statistics.json", TranscriptFormatter.summary_stats(transcript))


def write_topline(
    session: Session, config: DiscussionConfig, transcripts: Sequence[DiscussionTranscript]
) -> None:
    """topline.md and topline.json over all groups and concepts."""
    pages = {
        f"{t.group}/{t.stimulus}": f"{folder_of(config, t.group, t.stimulus)}transcript.html"
        for t in transcripts
    }
    data = topline.topline(transcripts, pages)
    if session.synthetic_mark:
        data = {"mark": session.synthetic_mark, **data}
    session.write_json("topline.json", data)
    session.write_text("topline.md", topline_page.to_markdown(data, session.synthetic_mark))
