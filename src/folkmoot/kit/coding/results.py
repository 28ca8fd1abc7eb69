"""What was coded in a run, read back: the codes that count, and how far coders agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from folkmoot.kit.coding.codebook import NO_CODE, Codebook
from folkmoot.kit.coding.tables import CODER, PERSON, RULE, SECOND
from folkmoot.kit.findings import Row, cells, number
from folkmoot.measures.agreement import (
    FloatArray,
    Level,
    krippendorff_alpha,
    krippendorff_interval,
    number_codes,
)
from folkmoot.measures.inference.estimates import Estimate, percent, plural
from folkmoot.randomness import digest
from folkmoot.storage.amendments import Amendment, amendments
from folkmoot.storage.findings import Finding, Grid, heading
from folkmoot.storage.run_folder import RunFolder

# The kinds of amendments that this mechanism makes.
AFTERWARDS, CORRECTION, BY_HAND = "coding", "code", "hand_coding"
GOOD, TENTATIVE = 0.8, 0.667  # Krippendorff's customary limits

Key = tuple[str, str]  # what a code is said of (JSON), and the code
EMBEDDED_NOTE = (
    "The embedded coder, which only compares words, gave codes: they serve tests and demos and "
    "support no finding."
)


@dataclass(frozen=True)
class Coder:
    """One coder's codes by one codebook: text id → the codes that count, with their quotes.

    `by`: coder, second_coder, rule or person. A text without an answer is not in `codes`; one in
    which no code applies is there with none.
    """

    by: str
    name: str
    kind: str
    codes: Mapping[str, Mapping[Key, str]]
    refused: int = 0

    @property
    def embedded(self) -> bool:
        return self.kind == "embedded"


@dataclass(frozen=True)
class Codings:
    """All that was coded by one codebook in a run.

    `by_text` is what a finding rests on: the coder's codes, with people's corrections. Where
    `supports` is false nothing may rest on it, and `note` says why; otherwise `note` says who coded
    and how far another agrees, for the notes of the finding.
    """

    book: Codebook
    texts: Mapping[str, Mapping[str, Any]]
    coders: tuple[Coder, ...]
    corrections: tuple[Amendment, ...] = ()

    @cached_property
    def coder(self) -> Coder | None:
        """Who coded: the first real model, else the embedded coder; None where nobody did."""
        first = [c for c in self.coders if c.by == CODER]
        return next((c for c in first if not c.embedded), first[0] if first else None)

    @property
    def supports(self) -> bool:
        """Whether a finding may rest on the codes."""
        return self.coder is not None and not self.coder.embedded

    @cached_property
    def by_text(self) -> dict[str, dict[Key, str]]:
        """Text id → codes with their quotes, corrected; texts without an answer left out."""
        found = {t: dict(codes) for t, codes in (self.coder.codes if self.coder else {}).items()}
        for each in self.corrections:
            codes = found.setdefault(each.data["text_id"], {})
            codes.pop((each.data["of"], each.data["was"]), None)
            if (now := each.data["code"]) != NO_CODE:
                codes[each.data["of"], now] = each.data["quote"]
        return found

    def of(self, text_id: str) -> dict[str, str] | None:
        """Code → quote of one text, whatever the codes are said of; None without an answer."""
        codes = self.by_text.get(text_id)
        return None if codes is None else {code: quote for (_, code), quote in codes.items()}

    def one(self, text_id: str) -> str | None:
        """The code of a text by a codebook of `choose: one` without slots; None without one."""
        return next(iter(self.of(text_id) or ()), None)

    def said_of(self, text_id: str) -> list[tuple[dict[str, str], str, str]]:
        """(what it is said of, code, quote) of one text."""
        codes = self.by_text.get(text_id, {})
        return [(json.loads(of), code, quote) for (of, code), quote in codes.items()]

    def agreement(self, other: Coder, code: str | None = None) -> Estimate:
        """Krippendorff's α of the coder and another over the texts that both coded, by text.

        `code`: of this code alone, given or not. Without it: of one code a text, its level (and of
        what it is said of, "none" included); of several, whether each is given.
        """
        ids, ratings, level = self._rated(other, code)
        if not ids:
            return Estimate(math.nan, math.nan, math.nan, 0)
        return krippendorff_interval(ratings, level, ids)

    def by_code(self, other: Coder) -> dict[str, float]:
        """α of each code alone, given or not; NaN where one code is never or always given."""
        alphas = {}
        for code in self.book.names:
            ids, ratings, level = self._rated(other, code)
            alphas[code] = krippendorff_alpha(ratings, level) if ids else math.nan
        return alphas

    def _rated(self, other: Coder, code: str | None) -> tuple[list[str], FloatArray, Level]:
        """Text id of each unit, the codes of both (2, units), and their level."""
        units = list(self._units(other, code))
        ids = [u[0] for u in units]
        ratings = [[u[1] for u in units], [u[2] for u in units]]
        if self.book.level == "ordinal" and code is None:
            place = {name: float(i) for i, name in enumerate(self.book.names)}
            # A code that is none of them has no place in their order.
            numbers = [[place.get(c, math.nan) for c in coder] for coder in ratings]
            return ids, np.array(numbers), "ordinal"
        return ids, number_codes(ratings), "nominal"

    def _units(self, other: Coder, wanted: str | None) -> Iterator[tuple[str, Any, Any]]:
        """Text id, the coder's code and the other's, for every unit that both decided on."""
        assert self.coder is not None
        several = self.book.choose == "any"
        for text_id, theirs in other.codes.items():
            ours = self.coder.codes.get(text_id)
            if ours is None:
                continue
            for of in dict.fromkeys([o for o, _ in (*ours, *theirs)] or ["{}"]):
                for code in (wanted,) if wanted else self.book.names if several else ():
                    yield text_id, (of, code) in ours, (of, code) in theirs
                if not several and not wanted:
                    yield text_id, _given(ours, of), _given(theirs, of)

    @cached_property
    def kept(self) -> tuple[int, int]:
        """Of the codes that a person looked at, how many were kept, and how many there are."""
        kept = sum(c.data["was"] == c.data["code"] for c in self.corrections)
        return kept, len(self.corrections)

    @property
    def note(self) -> str:
        """Who coded by which codebook, and how far others agree; first, whether it is of use."""
        if self.coder is not None and self.coder.embedded:
            return f"{EMBEDDED_NOTE} {self.who}"
        return self.who

    def describe_withheld(self, content: str) -> str:
        """Return the line that replaces a finding for which embedded codes may not be used.

        `content` is what codes of a model or a human would show there, as the start of a sentence.
        """
        return f"{content} would stand here. {EMBEDDED_NOTE}"

    @property
    def who(self) -> str:
        """Who coded, and how far others agree, in a sentence or two."""
        if self.coder is None:
            return f"Nobody coded by the codebook {self.book.name}."
        said = f"Coded by {self.coder.name} ({plural(len(self.coder.codes), 'text')})"
        others = [
            f"{_called(c)} α = {_alpha(e)}, {plural(e.clusters, 'text')}"
            for c in self.coders
            if c is not self.coder and c.by != RULE and (e := self.agreement(c)).n
        ]
        said += (
            f"; agreement with {'; '.join(others)}."
            if others
            else (
                "; nobody else has coded any of them, so how reliable the codes are is not known."
            )
        )
        kept, seen = self.kept
        if seen:
            said += f" A person looked at {plural(seen, 'code')} and kept {percent(kept / seen)}."
        return said


def codings(run: RunFolder) -> dict[str, Codings]:
    """What was coded in a run, and afterwards, by name of the codebook; empty if nothing was."""
    if not run.has_table("texts"):
        return {}
    texts = run.table("texts")
    amended = amendments(run.path)
    tables = [run.table("codes")]
    tables += [
        afterwards.table("codes")
        for a in amended
        if a.kind == AFTERWARDS
        and (afterwards := RunFolder(run.path / a.data["folder"])).has_table("codes")
    ]
    found = {}
    for name in texts["codebook"].unique(maintain_order=True):
        listed = {r["text_id"]: r for r in texts.filter(codebook=name).iter_rows(named=True)}
        coders = [c for t in tables for c in _coders(t.filter(codebook=name))]
        # What a person said of other words than those that stand there now counts for nothing.
        words = {text_id: words_of(row) for text_id, row in listed.items()}
        own = [
            a
            for a in amended
            if a.data.get("codebook") == name
            and words.get(a.data.get("text_id", "")) == a.data.get("words")
        ]
        corrections = {
            (a.data["text_id"], a.data["of"], a.data["was"]): a for a in own if a.kind == CORRECTION
        }
        coders += _people([a for a in own if a.kind == BY_HAND])
        found[name] = Codings(
            codebook_in(run, name), listed, tuple(coders), tuple(corrections.values())
        )
    return found


def words_of(row: Mapping[str, Any]) -> str:
    """What tells the words of a text from others: those that a person was shown."""
    return digest(row["text"] or "", row["about"] or "", size=8).hex()


def codebook_in(run: RunFolder, name: str) -> Codebook:
    """The codebook as the plan of the run holds it."""
    return Codebook.model_validate(run.plan["sealed"][f"codebook {name}"]["data"])


TITLE = "How free text was coded"


def finding(run: RunFolder) -> Finding | None:
    """How free text was coded, and how far coders agree; None where there were none."""
    rows: list[Row] = []
    said: list[str] = []
    by_code: list[str] = []
    found = codings(run)
    if any(read.coder is not None and read.coder.embedded for read in found.values()):
        said.append(EMBEDDED_NOTE)
    for name, read in found.items():
        said.append(f"{name}: {read.who}")
        for coder in read.coders or (None,):
            rows.append(_row(read, coder))
            by_code += _by_code(read, coder)
    if not rows and run.partial and run.has_table("texts"):
        what = "Nothing is coded yet: texts are coded when all parts of the run have ended."
        return Finding("coding", TITLE, what, Grid((), ()), section="Coding")
    if not rows:
        return None
    return Finding(
        "coding",
        TITLE,
        " ".join(said),
        Grid.of(rows, "One row a coder; α is its agreement with the coder of the codebook."),
        section="Coding",
        notes=(
            f"Krippendorff's α with a bootstrap over texts; {number(GOOD)} is customary for "
            f"conclusions, {number(TENTATIVE)} for tentative ones. Coders see the text and the "
            "codebook, never the condition. A code counts only if its quote is in the text. Phrase "
            "rules are a cross-check; no finding rests on them.",
            *by_code,
        ),
        unit="text",
        units=sum(len(read.texts) for read in found.values()),
    )


def _row(read: Codings, coder: Coder | None) -> Row:
    if coder is None:
        return {
            "codebook": read.book.name,
            "by": "nobody yet",
            "coder": "",
            "texts": 0,
            "codes": 0,
            "refused": 0,
            **cells(None, "alpha"),
        }
    same = coder is read.coder
    agreement = None if same or read.coder is None else read.agreement(coder)
    return {
        "codebook": read.book.name,
        "by": f"embedded {coder.by}" if coder.embedded else coder.by,
        "coder": coder.name,
        "texts": len(coder.codes),
        "codes": sum(map(len, coder.codes.values())),
        "refused": coder.refused,
        **cells(agreement, "alpha"),
    }


def _by_code(read: Codings, coder: Coder | None) -> list[str]:
    """α of each code, for a coder who is compared, in one line."""
    if coder is None or read.coder in (None, coder):
        return []
    by_code = read.by_code(coder).items()
    alphas = [f"{heading(code)} {number(a)}" for code, a in by_code if math.isfinite(a)]
    return [f"{read.book.name}, α of {coder.by} by code: {', '.join(alphas)}."] if alphas else []


def _coders(table: pl.DataFrame) -> list[Coder]:
    """Everyone who coded by one codebook in one run."""
    found = []
    for (by, name, kind), own in table.group_by("by", "coder", "coder_kind", maintain_order=True):
        codes: dict[str, dict[Key, str]] = {}
        refused = 0
        for row in own.iter_rows(named=True):
            if row["refused"] is not None:
                refused += 1
                continue
            of_text = codes.setdefault(row["text_id"], {})
            if row["code"] != NO_CODE:
                of_text[row["of"] or "{}", row["code"]] = row["quote"] or ""
        found.append(Coder(str(by), str(name), str(kind), codes, refused))
    return found


def _people(hand: Sequence[Amendment]) -> list[Coder]:
    """People who coded the sample by hand, one coder each; who did so twice, by the last time."""
    found: dict[str, dict[str, dict[Key, str]]] = {}
    for a in hand:
        codes = {(a.data["of"], code): "" for code in a.data["codes"]}
        mine = found.setdefault(a.by, {}).setdefault(a.data["text_id"], {})
        for key in [k for k in mine if k[0] == a.data["of"]]:
            del mine[key]
        mine.update(codes)
    return [Coder(PERSON, name, PERSON, codes) for name, codes in found.items()]


def _given(codes: Mapping[Key, str], of: str) -> str:
    return next((code for said_of, code in codes if said_of == of), NO_CODE)


def _called(coder: Coder) -> str:
    titles = {SECOND: "the second coder", PERSON: "a person,", CODER: "another coder,"}
    return f"{titles[coder.by]} {coder.name}:"


def _alpha(e: Estimate) -> str:
    if not math.isfinite(e.value):
        return "unknown (all codes are the same)"
    span = f" ({number(e.low)} to {number(e.high)})" if e.has_interval else ""
    return f"{number(e.value)}{span}"
