"""Lengthen replies of the embedded respondent to the length of a hosted model's, for estimates.

A dry run counts tokens with the short replies and with the longer ones. So an estimate has a lower
and an upper bound.
"""

from __future__ import annotations

import json

from folkmoot.models.request import (
    ModelRequest,
    estimate_tokens,
)

# The assumed maximal length of an utterance in words. Hosted models reply to the shipped prompts
# with more words than the embedded respondent, and with fewer than this.
ASSUMED_UTTERANCE_WORDS = 80


# The word that lengthens a free reply. A dry run can find it again in later prompts, so one run
# counts tokens with and without it. With its space it has eight bytes, which count as two tokens.
FILLER = "andsoon"


# A reply with fewer words is a vote, a number or a signal, which a hosted model gives as short.
MIN_FREE_TEXT_WORDS = 6


def extend_reply(text: str, prompt_text: str, request: ModelRequest) -> str:
    """Return a reply with its free texts lengthened to `ASSUMED_UTTERANCE_WORDS`.

    `prompt_text` is the text of all messages of the request. A reply that the lengthening could
    make invalid is returned unchanged.
    """
    if request.schema is None:
        return _extend_text(text, prompt_text, request.max_tokens)
    schema = json.dumps(request.schema)
    try:
        data = json.loads(text)
    except ValueError:
        return text
    # A longer text might no longer match the schema.
    if "maxLength" in schema or "pattern" in schema:
        return text
    return json.dumps(
        _extend_json_texts(data, prompt_text + schema, request.max_tokens), ensure_ascii=False
    )


def _extend_json_texts(data: object, prompt_text: str, limit: int | None) -> object:
    if isinstance(data, dict):
        return {key: _extend_json_texts(value, prompt_text, limit) for key, value in data.items()}
    if isinstance(data, list):
        return [_extend_json_texts(value, prompt_text, limit) for value in data]
    return _extend_text(data, prompt_text, limit) if isinstance(data, str) else data


def _extend_text(text: str, prompt_text: str, limit: int | None) -> str:
    words = text.split()
    # A text that occurs in the prompt or the schema is one of the options, or quotes a text.
    if (
        not MIN_FREE_TEXT_WORDS <= len(words) < ASSUMED_UTTERANCE_WORDS
        or text.strip() in prompt_text
    ):
        return text
    longer = " ".join([text, *[FILLER] * (ASSUMED_UTTERANCE_WORDS - len(words))])
    return text if limit is not None and estimate_tokens(longer) > limit else longer
