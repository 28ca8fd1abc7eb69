"""The tables of coding: codebooks, texts to code, and assigned codes."""

from __future__ import annotations

from folkmoot.measures.reply_checks import CODER, SECOND_CODER
from folkmoot.storage.rows import Row, column

# Who coded: the two models, a phrase rule, a human.
CODER_ROLE, SECOND_CODER_ROLE, RULE_ROLE, HUMAN_ROLE = CODER, SECOND_CODER, "rule", "person"


class CodebookRow(Row, table="codebooks", key=("codebook",)):
    """A codebook as the coders of the run saw it."""

    codebook: str = column("name of the codebook")
    text: str = column("the codebook in YAML, as prompts show it")
    codes: list[str] = column("the names of its codes, in order")
    slots: list[str] = column("kinds of objects that its codes refer to (option, member)")


class TextRow(Row, table="texts", key=("codebook", "text_id")):
    """One text to code. The study's own tables say where the text comes from."""

    codebook: str = column("the codebook by which the text is coded")
    text_id: str = column("id of the text, which tells where the text was said")
    participant_id: str | None
    text: str = column("the text to be coded, as the coder reads it")
    about: dict[str, str] = column("what the codebook's question refers to, as JSON")
    slots: dict[str, list[str]] = column("the objects that a code can refer to, by slot, as JSON")
    sampled: bool = column(
        "whether the text is in the sample for a second coder, drawn by the seed"
    )


class CodeRow(Row, table="codes"):
    """One code that one coder assigned to one text."""

    codebook: str = column("name of the codebook")
    text_id: str = column("the text, as in the table texts")
    participant_id: str | None
    code: str | None = column(
        "the code; (none) if no code applies; empty if the coder gave no answer"
    )
    of: dict[str, str] = column("the object that the code refers to, as JSON: slot and value")
    quote: str | None = column("the words of the text that justify the code")
    by: str = column("coder, second_coder, or rule (a phrase rule, for comparison only)")
    coder: str = column("name of the model, or rule")
    coder_kind: str = column(
        "model, embedded (for tests and demos, supports no finding), rule or person"
    )
    refused: str | None = column(
        "why the code does not count, such as a quote that is not in the text"
    )


TABLES: tuple[type[Row], ...] = (CodebookRow, TextRow, CodeRow)
