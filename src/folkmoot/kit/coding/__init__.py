"""Coding: turn free text into data with a codebook, a coder, and a check of the coder.

A study passes its texts to `code_texts` with a codebook. The coder is a model that sees only the
text and the codebook. The coder assigns codes, each with a quote as evidence. If a speaker can be
asked with a closed question, ask instead of coding.

**A codebook** is a YAML file, `studies/<name>/codebooks/price.yaml`:

    name: price
    question: What does the speaker say about the price?
    choose: one                    # or any: all codes that apply, possibly none
    codes:
      - name: too_dear
        definition: The price keeps the speaker from buying, or is called too high.
        examples: ["I would not pay that much for it."]
        counter_examples: ["It is not cheap, but worth it."]
      - name: not_mentioned
        definition: The price is not spoken of.
        quoted: false              # no quote can show what is absent

- `fixed: true`: findings name the codes, so a researcher's version must keep them.
- `level: ordinal`: the codes of `choose: one` are ordered, the highest first.
- `slots`: what a code can be about, such as `{option: the option that is decided on}`.

Codebooks are in the folder `codebooks` next to the study's config.

**In the study**, four lines:

    class Config(CodingStudyConfig):                           # adds the key `coding:`
        ...
    STUDY = Study(..., tables=(Vote, *coding.TABLES))

    async def protocol(session):
        ...
        texts = [TextToCode(f"g1/turn{n}", said.text, said.speaker_id) for n, said in ...]
        codes = await code_texts(session, CODEBOOKS / "price.yaml", texts)
        codes["g1/turn0"]                                      # (AssignedCode("too_dear", "…"),)

- `context` of a text: further texts that the coder sees, such as `{"concern": "…"}`. They must not
  reveal the condition.
- `slots` of a text: the values that its codes can be about.
- `rule=`: a function that codes a text by phrases, for comparison. Findings must not use its codes.

**In the findings**, read the tables, not variables of the protocol:

    results = read_codings(run)["price"]
    results.single_code("g1/turn0")    # "too_dear", or None if no code was given
    results.codes_of("g1/turn0")       # {code: quote}, or {} if no code applies
    results.supports_findings          # False if the coder was embedded or absent
    results.note                       # who coded, and α, for the notes of the finding

**Roles** are `coder` and `second_coder` under `models:`, which must be different models. The second
coder codes a random sample. See docs/coding.md for finished runs and human coders.

Study types, reports and the command line import this folder.
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
