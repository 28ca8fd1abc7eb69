"""Lengthen the replies of the embedded respondent to those of a hosted model, for estimates.

A dry run counts tokens with replies as the embedded respondent gives them and with longer ones, so
that an estimate has a lower and an upper end.
"""

from __future__ import annotations

import json

from folkmoot.models.request import (
    ModelRequest,
    estimate_tokens,
)

# What people say freely may be so long, in words: replies of hosted models to prompts like the
# shipped ones are between the length of the embedded respondent's and this.
ASSUMED_UTTERANCE_WORDS = 80


# What a free reply is lengthened by. It is found again in later prompts, so that one dry run counts
# their tokens with and without it. With its space it is eight bytes: two tokens.
FILLER = "andsoon"


MIN_FREE_TEXT_WORDS = (
    6  # a reply of fewer words is a vote, a number or a signal, and stays as it is
)


def extend_reply(text: str, asked: str, request: ModelRequest) -> str:
    """A reply with its free text at the length that is expected of a model."""
    if request.schema is None:
        return _extend_text(text, asked, request.max_tokens)
    schema = json.dumps(request.schema)
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if "maxLength" in schema or "pattern" in schema:
        return text
    return json.dumps(
        _extend_json_texts(data, asked + schema, request.max_tokens), ensure_ascii=False
    )


def _extend_json_texts(data: object, asked: str, limit: int | None) -> object:
    if isinstance(data, dict):
        return {key: _extend_json_texts(value, asked, limit) for key, value in data.items()}
    if isinstance(data, list):
        return [_extend_json_texts(value, asked, limit) for value in data]
    return _extend_text(data, asked, limit) if isinstance(data, str) else data


def _extend_text(text: str, asked: str, limit: int | None) -> str:
    words = text.split()
    if not MIN_FREE_TEXT_WORDS <= len(words) < ASSUMED_UTTERANCE_WORDS or text.strip() in asked:
        return text
    longer = " ".join([text, *[FILLER] * (ASSUMED_UTTERANCE_WORDS - len(words))])
    return text if limit is not None and estimate_tokens(longer) > limit else longer
