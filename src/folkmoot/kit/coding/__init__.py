"""Coding: free text becomes data by a codebook, a coder, and a check of the coder.

No finding rests on a list of phrases. A study hands the texts it wants read to `code_texts`, with a
codebook; a model that sees the text and the codebook and nothing else gives each code with the
quote that justifies it. Where a speaker can be asked in a structured way, ask instead.

**A codebook** is a YAML file, `studies/<name>/codebooks/price.yaml`:

    name: price
    question: What does the speaker say about the price?
    choose: one                    # or any: all codes that apply; then none may
    codes:
      - name: too_dear
        definition: The price keeps the speaker from buying, or is called too high.
        examples: ["I would not pay that much for it."]
        counter_examples: ["It is not cheap, but worth it."]
      - name: not_mentioned
        definition: The price is not spoken of.
        quoted: false              # no quote can show what is absent

`fixed: true` where findings name the codes: a user's own version then has to keep them. Codebooks
stand in the folder `codebooks` beside the study's config. `level: ordinal` says that codes of
`choose: one` stand in order, most first. `slots` names what a code is said of
(`slots: {option: the option that is decided on}`); each text lists its values.

**In the study**, four lines:

    class Config(CodedConfig):                                 # adds the key `coding:`
        ...
    STUDY = Study(..., tables=(Vote, *coding.TABLES))

    async def protocol(session):
        ...
        texts = [coding.Text(f"g1/turn{n}", said.text, said.speaker_id) for n, said in ...]
        codes = await coding.code(session, CODEBOOKS / "price.yaml", texts)
        codes["g1/turn0"]                                      # (Coded("too_dear", "…"),)

`about` of a text is what the codebook's question refers to (`{"concern": "…"}`); it is shown to the
coder, so nothing in it may tell the condition. `rule=` is a phrase rule, text → codes, recorded as
a coder of its own, whose disagreement the report shows; nothing else may use it.

**In the findings**, from the tables, never from the protocol's memory:

    read = coding.codings(run)["price"]
    read.one("g1/turn0")           # "too_dear"; None where no answer was had
    read.of("g1/turn0")            # {code: quote}; {} where no code applies
    read.supports                  # False: embedded codes, or nobody coded; then no finding
    read.note                      # who coded, α; one of the finding's notes

**Roles** are `coder` and `second_coder` under `models:`. The second codes a sample drawn by the
seed and sealed; it may not be the first. `--model synthetic` answers with the embedded coder
(`coder.py`). `folkmoot codes RUN` codes a finished run, writes the sheets on which
a person corrects the coder or codes the sample blind, and reads them back as amendments.
See docs/coding.md.
"""

from __future__ import annotations

from folkmoot.kit.coding.codebook import NO_CODE_LABEL, Code, Codebook, read_codebook
from folkmoot.kit.coding.coder import (
    AssignedCode,
    CodingSettings,
    CodingStudyConfig,
    RuleCoder,
    TextToCode,
    code_texts,
)
from folkmoot.kit.coding.results import (
    EMBEDDED_NOTE,
    CodebookResults,
    CoderResult,
    coding_finding,
    read_codings,
)
from folkmoot.kit.coding.tables import CODER_ROLE, TABLES, CodebookRow, CodeRow, TextRow

__all__ = [
    "CODER_ROLE",
    "EMBEDDED_NOTE",
    "NO_CODE_LABEL",
    "TABLES",
    "AssignedCode",
    "Code",
    "CodeRow",
    "Codebook",
    "CodebookResults",
    "CodebookRow",
    "CoderResult",
    "CodingSettings",
    "CodingStudyConfig",
    "RuleCoder",
    "TextRow",
    "TextToCode",
    "code_texts",
    "coding_finding",
    "read_codebook",
    "read_codings",
]
