"""Read the codes of a run, and measure how well its coders agree."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from folkmoot.engine.seats.withdrawal import select_since_withdrawal
from folkmoot.engine.session.folder_access import has_calls
from folkmoot.errors import InputError, Problem
from folkmoot.kit.coding.codebook import NO_CODE_LABEL, Codebook
from folkmoot.kit.coding.tables import CODER_ROLE, HUMAN_ROLE, RULE_ROLE, SECOND_CODER_ROLE
from folkmoot.kit.findings import Row, estimate_cells, format_mean_value
from folkmoot.measures.agreement import (
    FloatArray,
    Level,
    krippendorff_alpha,
    krippendorff_interval,
    number_codes,
)
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.randomness import digest
from folkmoot.storage.amendments import Amendment, read_amendments
from folkmoot.storage.findings import Finding, ResultTable, column_heading
from folkmoot.storage.run_folder import CODINGS, RunFolder

# The kinds of amendments that codings and sheets make.
POST_HOC_CODING, CODE_CORRECTION, HAND_CODING = "coding", "code", "hand_coding"
# Krippendorff's customary limits for conclusions and for tentative conclusions.
RELIABLE_ALPHA, TENTATIVE_ALPHA = 0.8, 0.667

# The object of a code (slot values as JSON), and the code.
Key = tuple[str, str]
EMBEDDED_NOTE = (
    "The codes come from the embedded coder, which only compares words. They serve tests and demos "
    "and support no finding."
)


@dataclass(frozen=True)
class CoderResult:
    """The codes that one coder assigned with one codebook."""

    # coder, second_coder, rule or person.
    coder_role: str
    name: str
    kind: str
    # Maps a text id to the valid codes with their quotes. A text without an answer is left out. A
    # text to which no code applies has an empty mapping.
    codes: Mapping[str, Mapping[Key, str]]
    rejected_count: int = 0
    # Maps a text id to the objects on which a human decided. None if the coder decided on all.
    examined: Mapping[str, frozenset[str]] | None = None

    @property
    def is_embedded(self) -> bool:
        """True if the coder was `--model synthetic`."""
        # Its codes support no finding.
        return self.kind == "embedded"


@dataclass(frozen=True)
class CodebookResults:
    """The codes that all coders of a run assigned with one codebook.

    Findings use `codes_by_text`, and only if `supports_findings` is True.
    """

    book: Codebook
    texts: Mapping[str, Mapping[str, Any]]
    coders: tuple[CoderResult, ...]
    # The last correction of each code, by any human, in the order in which they were made.
    corrections: tuple[Amendment, ...] = ()
    # The last correction of each code by each human.
    corrections_by_human: tuple[Amendment, ...] = ()

    @cached_property
    def primary_coder(self) -> CoderResult | None:
        """The coder that findings use, or None if the texts were not coded."""
        # The first model, or else `--model synthetic`.
        first = [
            coder_result for coder_result in self.coders if coder_result.coder_role == CODER_ROLE
        ]
        return next(
            (coder_result for coder_result in first if not coder_result.is_embedded),
            first[0] if first else None,
        )

    @property
    def supports_findings(self) -> bool:
        """True if findings may use the codes."""
        return self.primary_coder is not None and not self.primary_coder.is_embedded

    @cached_property
    def codes_by_text(self) -> dict[str, dict[Key, str]]:
        """The codes of each text with their quotes, after human corrections.

        Texts without an answer are left out.
        """
        codes_by_text = {
            text: dict(codes)
            for text, codes in (self.primary_coder.codes if self.primary_coder else {}).items()
        }
        given: dict[str, dict[Key, str]] = {}
        for correction in self.corrections:
            data = correction.data
            of, was, now = data["of"], data["was"], data["code"]
            # A correction may also code a text for which the coder gave no answer.
            codes_by_text.setdefault(data["text_id"], {}).pop((of, was), None)
            given_codes = given.setdefault(data["text_id"], {})
            # Corrections of the coder's codes do not depend on their order. A human may correct one
            # code into another one, and strike out that other one.
            if not self._coder_gave(data):
                # The code comes from an earlier correction.
                given_codes.pop((of, was), None)
            if self.book.choose == "one":
                given_codes = {key: quote for key, quote in given_codes.items() if key[0] != of}
            if now != NO_CODE_LABEL:
                given_codes = {**given_codes, (of, now): data["quote"]}
            given[data["text_id"]] = given_codes
        for text_id, codes in given.items():
            # Sheets of earlier versions could add a second code where only one is allowed.
            replaced = {of for of, _ in codes} if self.book.choose == "one" else set()
            kept = codes_by_text[text_id].items()
            codes_by_text[text_id] = {
                **{key: quote for key, quote in kept if key[0] not in replaced},
                **codes,
            }
        return codes_by_text

    def codes_of(self, text_id: str) -> dict[str, str] | None:
        """Return the codes of one text, each with the quote that justifies it.

        Returns None if the coder gave no answer for the text.
        """
        # A code that is about several things (such as two options) appears once.
        codes = self.codes_by_text.get(text_id)
        return None if codes is None else {code: quote for (_, code), quote in codes.items()}

    def single_code(self, text_id: str) -> str | None:
        """Return the code of a text, for a codebook with `choose: one` and no slots.

        Returns None if the coder gave no answer for the text.
        """
        return next(iter(self.codes_of(text_id) or ()), None)

    def codes_with_target(self, text_id: str) -> list[tuple[dict[str, str], str, str]]:
        """Return the codes of a text as triples: the slots of the code, the code, and the quote.

        The slots say what the code is about. Example: `({"option": "A"}, "too_dear", "…")`.
        """
        codes = self.codes_by_text.get(text_id, {})
        return [(json.loads(of), code, quote) for (of, code), quote in codes.items()]

    def agreement_with(self, other: CoderResult, code: str | None = None) -> Estimate:
        """Return Krippendorff's α of the primary coder and another coder, on texts that both coded.

        `code`: compare only whether this code applies.
        """
        ids, ratings, level = self._rating_matrix(other, code)
        # No shared text means an unknown agreement, not one of zero.
        if not ids:
            return Estimate(math.nan, math.nan, math.nan, 0)
        return krippendorff_interval(ratings, level, ids)

    def agreement_by_code(self, other: CoderResult) -> dict[str, float]:
        """Return Krippendorff's α of the primary coder and another coder, for each code.

        α is NaN if the code is never or always assigned.
        """
        alphas = {}
        for code in self.book.code_names:
            ids, ratings, level = self._rating_matrix(other, code)
            alphas[code] = krippendorff_alpha(ratings, level) if ids else math.nan
        return alphas

    def _rating_matrix(
        self, other: CoderResult, code: str | None
    ) -> tuple[list[str], FloatArray, Level]:
        # (text ids of the units, ratings of shape (2, units), level of measurement).
        units = list(self._shared_units(other, code))
        ids = [unit[0] for unit in units]
        ratings = [[unit[1] for unit in units], [unit[2] for unit in units]]
        if self.book.level == "ordinal" and code is None:
            rank_of = {name: float(i) for i, name in enumerate(self.book.code_names)}
            # "(none)" has no rank among the ordered codes, so it counts as a missing rating.
            numbers = [[rank_of.get(code, math.nan) for code in codes] for codes in ratings]
            return ids, np.array(numbers), "ordinal"
        return ids, number_codes(ratings), "nominal"

    def _shared_units(
        self, other: CoderResult, single_code: str | None
    ) -> Iterator[tuple[str, Any, Any]]:
        # (text id, first coder's rating, other's rating) for everything that both rated. For
        # `choose: one`, a rating is the assigned code or "none". For `choose: any`, or a single
        # code, it says whether the code applies.
        assert self.primary_coder is not None
        several = self.book.choose == "any"
        for text_id, theirs in other.codes.items():
            ours = self.primary_coder.codes.get(text_id)
            if ours is None:
                continue
            # Slot values that no coder mentioned do not count as units. They would inflate α.
            mentioned = dict.fromkeys([target for target, _ in (*ours, *theirs)] or ["{}"])
            for of in mentioned:
                # A line that a human left empty says nothing about its object.
                if of != "{}" and other.examined is not None and of not in other.examined[text_id]:
                    continue
                for code in (
                    (single_code,) if single_code else self.book.code_names if several else ()
                ):
                    yield text_id, (of, code) in ours, (of, code) in theirs
                if not several and not single_code:
                    yield text_id, _code_for_target(ours, of), _code_for_target(theirs, of)

    @cached_property
    def confirmed_counts(self) -> tuple[int, int]:
        """The number of codes that a human confirmed, and the number that a human checked."""
        checked = [
            correction.data
            for correction in self.corrections
            # A code that a human added beside those of the coder is none that the coder gave.
            if self._coder_gave(correction.data)
        ]
        return sum(data["was"] == data["code"] for data in checked), len(checked)

    def _coder_gave(self, data: Mapping[str, Any]) -> bool:
        # Whether the corrected code, or none, was the answer of the coder.
        codes = self.primary_coder.codes.get(data["text_id"]) if self.primary_coder else None
        if data["was"] == NO_CODE_LABEL:
            return codes == {}
        return (data["of"], data["was"]) in (codes or {})

    @property
    def disputed_counts(self) -> tuple[int, int]:
        """The number of codes on which humans disagree, and the number that several checked."""
        decisions: dict[tuple[str, ...], list[str]] = {}
        for amendment in self.corrections_by_human:
            key = correction_key(amendment, self.book)
            decisions.setdefault(key, []).append(amendment.data["code"])
        shared = [codes for codes in decisions.values() if len(codes) > 1]
        return sum(len(set(codes)) > 1 for codes in shared), len(shared)

    @property
    def note(self) -> str:
        """A note for a finding: who coded the texts, and how well other coders agree."""
        # It starts with a warning if no language model coded (the coder was `--model synthetic`).
        if self.primary_coder is not None and self.primary_coder.is_embedded:
            return f"{EMBEDDED_NOTE} {self.coder_summary}"
        return self.coder_summary

    def describe_withheld(self, content: str) -> str:
        """Return the sentence that replaces a result if no language model coded the texts.

        `content`: the name of the result, with which the sentence begins.
        """
        # The codes of `--model synthetic` support no finding, because it only compares words.
        return f"{content} would be shown here. {EMBEDDED_NOTE}"

    @property
    def coder_summary(self) -> str:
        """The primary coder and the agreement with other coders, in one or two sentences."""
        if self.primary_coder is None:
            return f"No text was coded by the codebook {self.book.name}."
        summary = (
            f"Coded by {self.primary_coder.name} "
            f"({format_count(len(self.primary_coder.codes), 'text')})"
        )
        agreements = [
            f"{_coder_label(coder_result)} α = {_format_alpha(estimate)}, "
            f"{format_count(estimate.clusters, 'text')}"
            for coder_result in self.coders
            if coder_result is not self.primary_coder
            # A phrase rule is a cross-check and no coder, so its α says nothing about reliability.
            and coder_result.coder_role != RULE_ROLE
            and (estimate := self.agreement_with(coder_result)).n
        ]
        summary += (
            f"; agreement with {'; '.join(agreements)}."
            if agreements
            else ("; there is no second coder, so the reliability of the codes is unknown.")
        )
        confirmed, checked = self.confirmed_counts
        humans = {amendment.author.casefold() for amendment in self.corrections_by_human}
        if checked and len(humans) > 1:
            disputed, shared = self.disputed_counts
            summary += (
                f" {len(humans)} humans checked {format_count(checked, 'code')}. The last human to "
                f"check each code confirmed {format_percent(confirmed / checked)}. Of "
                f"{format_count(shared, 'code')} that several checked, they disagree on {disputed}."
            )
        elif checked:
            summary += (
                f" A human checked {format_count(checked, 'code')} and confirmed "
                f"{format_percent(confirmed / checked)}."
            )
        return summary


def correction_key(correction: Amendment, book: Codebook) -> tuple[str, ...]:
    """Return the codebook, the text, the object and the code that a human corrected.

    The last value is a code that the human added beside others, or empty.
    """
    data = correction.data
    adds_code = book.choose == "any" and data["was"] == NO_CODE_LABEL != data["code"]
    added_code = data["code"] if adds_code else ""
    return (*(data[name] for name in ("codebook", "text_id", "of", "was")), added_code)


def count_replaced(
    earlier: Mapping[str, CodebookResults], later: Iterable[Amendment]
) -> Counter[str]:
    """Return how many codes of each earlier human later corrections replace by another code."""
    codes_by_key = {
        correction_key(amendment, results.book): amendment
        for results in earlier.values()
        for amendment in results.corrections
    }

    def find_replaced(amendment: Amendment) -> Amendment | None:
        book = earlier[amendment.data["codebook"]].book
        return codes_by_key.get(correction_key(amendment, book))

    return Counter(
        before.author
        for amendment in later
        if amendment.kind == CODE_CORRECTION
        and (before := find_replaced(amendment)) is not None
        and before.author.casefold() != amendment.author.casefold()
        and before.data["code"] != amendment.data["code"]
    )


def read_codings(run: RunFolder) -> dict[str, CodebookResults]:
    """Return the assigned codes of a run: one `CodebookResults` for each codebook name.

    The result is empty if the run has no texts to code.
    """
    # The codes come from the run itself, from post-hoc codings and from sheets of human coders.
    if not run.has_table("texts"):
        return {}
    texts = run.read_table("texts")
    amendments = read_amendments(run.path)
    # Codings of the run itself come first, so they take precedence as the primary coder.
    tables = [run.read_table("codes")]
    tables += [
        coding_run.read_table("codes")
        for amendment in select_since_withdrawal(amendments, POST_HOC_CODING)
        if (coding_run := run.open_subfolder(amendment.data["folder"])) is not None
        and coding_run.has_table("codes")
    ]
    results = {}
    for name in texts["codebook"].unique(maintain_order=True):
        text_rows = {
            row["text_id"]: row for row in texts.filter(codebook=name).iter_rows(named=True)
        }
        coders = [
            coder_result
            for table in tables
            for coder_result in _read_coders(table.filter(codebook=name))
        ]
        book = sealed_codebook(run, name)
        # A correction counts only for the text that the human saw. A withdrawal may have changed
        # the text since.
        digests = {text_id: text_digest(row) for text_id, row in text_rows.items()}
        matching = [
            amendment
            for amendment in amendments
            if amendment.data.get("codebook") == name
            and digests.get(amendment.data.get("text_id", "")) == amendment.data.get("words")
        ]
        # The last correction of a code wins: later entries replace earlier ones with the same key.
        all_corrections = [amendment for amendment in matching if amendment.kind == CODE_CORRECTION]
        keys = [correction_key(amendment, book) for amendment in all_corrections]
        corrections: dict[tuple[str, ...], Amendment] = {}
        for key, amendment in zip(keys, all_corrections, strict=True):
            # The later entry also takes a later place, because its order matters.
            corrections.pop(key, None)
            corrections[key] = amendment
        corrections_by_human = {
            (*key, amendment.author.casefold()): amendment
            for key, amendment in zip(keys, all_corrections, strict=True)
        }
        coders += _hand_coders(
            [amendment for amendment in matching if amendment.kind == HAND_CODING]
        )
        results[name] = CodebookResults(
            book,
            text_rows,
            tuple(coders),
            tuple(corrections.values()),
            tuple(corrections_by_human.values()),
        )
    return results


def text_digest(row: Mapping[str, Any]) -> str:
    """Return a digest of a text and its context, to identify what a human coded."""
    return digest(row["text"] or "", row["about"] or "", size=8).hex()


def no_texts_error(run: RunFolder) -> InputError:
    """Return the error for a command that needs texts to code, if the run has none."""
    hint = (
        "only study types with codebooks record texts to code; a run of an earlier version must be "
        "repeated"
    )
    return InputError(Problem(f"{run.path}: there are no texts to code", hint=hint))


def sealed_codebook(run: RunFolder, name: str) -> Codebook:
    """Return the codebook from the plan of the run."""
    return Codebook.model_validate(run.plan["sealed"][f"codebook {name}"]["data"])


TITLE = "How free text was coded"


def coding_finding(run: RunFolder) -> Finding | None:
    """Return the finding on how free text was coded and how well coders agree.

    Returns None if the run has no texts to code.
    """
    rows: list[Row] = []
    sentences: list[str] = []
    alpha_lines: list[str] = []
    codings = read_codings(run)
    sentences += _describe_unfinished(run)
    if any(
        results.primary_coder is not None and results.primary_coder.is_embedded
        for results in codings.values()
    ):
        sentences.append(EMBEDDED_NOTE)
    for name, results in codings.items():
        sentences.append(f"{name}: {results.coder_summary}")
        for coder in results.coders or (None,):
            rows.append(_coder_row(results, coder))
            alpha_lines += _format_code_agreement(results, coder)
    # While a run is in progress the tables exist, but coding is its last stage.
    if not rows and run.partial and run.has_table("texts"):
        statement = "No text has been coded yet. Coding is the last stage of a run."
        return Finding("coding", TITLE, statement, ResultTable((), ()), section="Coding")
    if not rows:
        return None
    return Finding(
        "coding",
        TITLE,
        " ".join(sentences),
        ResultTable.from_records(
            rows, "One row per coder. α: agreement with the primary coder of the codebook."
        ),
        section="Coding",
        notes=(
            "Krippendorff's α with texts as independent units. The customary minimum is "
            f"{format_mean_value(RELIABLE_ALPHA)} for conclusions and "
            f"{format_mean_value(TENTATIVE_ALPHA)} for tentative conclusions. Coders see the text "
            "and the codebook, never the condition. A code counts only if its quote is in the "
            "text. Phrase rules are a cross-check, and no finding uses them.",
            *alpha_lines,
        ),
        unit="text",
        units=sum(len(results.texts) for results in codings.values()),
    )


def _describe_unfinished(run: RunFolder) -> Iterator[str]:
    # A coding is named by an amendment once it is finished.
    recorded = select_since_withdrawal(read_amendments(run.path), POST_HOC_CODING)
    finished = {amendment.data["folder"] for amendment in recorded}
    for path in sorted((run.path / CODINGS).glob("*")):
        folder = f"{CODINGS}/{path.name}"
        begun = None if folder in finished else run.open_subfolder(folder)
        if begun is not None and has_calls(path):
            coder = begun.config.get("model", path.name)
            sample = " --sample" if begun.config.get("sample") else ""
            yield (
                f"The coding by {coder} is not finished: `folkmoot codes RUN --coder {coder}"
                f"{sample}` goes on with it."
            )


def _coder_row(results: CodebookResults, coder: CoderResult | None) -> Row:
    if coder is None:
        return {
            "codebook": results.book.name,
            "by": "no coder yet",
            "coder": "",
            "texts": 0,
            "codes": 0,
            "refused": 0,
            **estimate_cells(None, "alpha"),
        }
    is_primary = coder is results.primary_coder
    agreement = (
        None if is_primary or results.primary_coder is None else results.agreement_with(coder)
    )
    return {
        "codebook": results.book.name,
        "by": f"embedded {coder.coder_role}" if coder.is_embedded else coder.coder_role,
        "coder": coder.name,
        "texts": len(coder.codes),
        "codes": sum(map(len, coder.codes.values())),
        "refused": coder.rejected_count,
        **estimate_cells(agreement, "alpha"),
    }


def _format_code_agreement(results: CodebookResults, coder: CoderResult | None) -> list[str]:
    if coder is None or results.primary_coder in (None, coder):
        return []
    alpha_by_code = results.agreement_by_code(coder).items()
    alphas = [
        f"{column_heading(code)} {format_mean_value(alpha)}"
        for code, alpha in alpha_by_code
        if math.isfinite(alpha)
    ]
    # A phrase rule is called rule in both columns.
    label = " ".join(dict.fromkeys((coder.coder_role, coder.name)))
    return [f"{results.book.name}, α of {label} by code: {', '.join(alphas)}."] if alphas else []


def _read_coders(table: pl.DataFrame) -> list[CoderResult]:
    coders = []
    for (by, name, kind), rows in table.group_by("by", "coder", "coder_kind", maintain_order=True):
        codes: dict[str, dict[Key, str]] = {}
        rejected_count = 0
        for row in rows.iter_rows(named=True):
            if row["refused"] is not None:
                rejected_count += 1
                continue
            # A text without an applicable code must have an entry, to differ from a text without an
            # answer.
            codes_of_text = codes.setdefault(row["text_id"], {})
            if row["code"] != NO_CODE_LABEL:
                codes_of_text[row["of"] or "{}", row["code"]] = row["quote"] or ""
        coders.append(CoderResult(str(by), str(name), str(kind), codes, rejected_count))
    return coders


def _hand_coders(amendments: Sequence[Amendment]) -> list[CoderResult]:
    # If a human coded a text twice, the last codes count.
    codes_by_human: dict[str, dict[str, dict[Key, str]]] = {}
    for amendment in amendments:
        codes = {(amendment.data["of"], code): "" for code in amendment.data["codes"]}
        own_codes = codes_by_human.setdefault(amendment.author, {}).setdefault(
            amendment.data["text_id"], {}
        )
        # Replace the earlier codes of the same slot values, and keep those of other slot values.
        for key in [key for key in own_codes if key[0] == amendment.data["of"]]:
            del own_codes[key]
        own_codes.update(codes)
    # Human codes have no quotes and cannot be rejected.
    return [
        CoderResult(
            HUMAN_ROLE, name, HUMAN_ROLE, codes, examined=_examined_objects(amendments, name)
        )
        for name, codes in codes_by_human.items()
    ]


def _examined_objects(amendments: Sequence[Amendment], name: str) -> dict[str, frozenset[str]]:
    examined: dict[str, set[str]] = {}
    for amendment in amendments:
        if amendment.author == name:
            examined.setdefault(amendment.data["text_id"], set()).add(amendment.data["of"])
    return {text_id: frozenset(objects) for text_id, objects in examined.items()}


def _code_for_target(codes: Mapping[Key, str], of: str) -> str:
    return next((code for target, code in codes if target == of), NO_CODE_LABEL)


def _coder_label(coder: CoderResult) -> str:
    titles = {
        SECOND_CODER_ROLE: "the second coder",
        HUMAN_ROLE: "the human coder",
        CODER_ROLE: "the coder",
    }
    return f"{titles[coder.coder_role]} {coder.name}:"


def _format_alpha(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return "unknown (all codes are the same)"
    interval = (
        f" ({format_mean_value(estimate.low)} to {format_mean_value(estimate.high)})"
        if estimate.has_interval
        else ""
    )
    return f"{format_mean_value(estimate.value)}{interval}"
