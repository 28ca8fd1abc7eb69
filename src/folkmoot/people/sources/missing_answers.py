"""Tell the cells of a survey that hold no answer: refusals in words, and numeric codes."""
# All tables about people use these rules, so that a missing answer is the same in each.

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from folkmoot.errors import Problem
from folkmoot.hints import number_text
from folkmoot.people.sources.table_files import first_line, has_decimal_comma

# R writes NA for a missing value, pandas NaN.
MISSING = ("", "NA", "NaN")
# Columns with ids or free text. In them, a word such as "unknown" is no refusal.
IN_OWN_WORDS = ("id", "name", "opinion", "background", "described")
MISSING_HINT = "write NA for a missing answer"

_PREFER_NOT_TO = (
    r"(?:i )?(?:would |d )?(?:prefer|rather|choose|chose|wish|want|like)(?:s|d|red)? not (?:to )?"
)
_TO_SAY = r"(?:say|answer|disclose|respond|reply|specify|state)\b"
# Phrases that are never an option of a question, after `fold_answer`.
_NO_ANSWER = (
    rf"(?:{_PREFER_NOT_TO}|(?:decline|refuse)[sd]? to ){_TO_SAY}.*"
    r"|no (?:answer|response|reply|information|data)|not (?:given|stated|specified"
    r"|answered|available|applicable|reported|disclosed|provided|asked)"
    r"|dk na|na|n a|nan|null|none given|undisclosed"
    r"|unspecified|missing|skipped|no comment|withheld|\?+"
)
# Phrases that say nothing about a person. A question may offer them as options, such as "I would
# rather not give" beside "I give 10".
_SAYS_NOTHING = (
    rf"{_PREFER_NOT_TO}(?:share|tell|declare|give)\b.*|declined to .*"
    r"|(?:decline|refuse)[sd]?|no opinion|not (?:known|sure)|unsure"
    r"|(?:do ?n t|do not|dont) know.*|dk|unknown"
)
# Other cells without a letter, such as "+" and "👎", may be answers.
_DASHES_AND_DOTS = re.compile(r"[\s./…‐-―−-]+")
_REFUSED_CHOICE = re.compile(_NO_ANSWER)
_REFUSED_ANSWER = re.compile(f"{_SAYS_NOTHING}|{_NO_ANSWER}")
# Numbers that survey programs write for a missing answer. Smaller ones, such as 9, are too often
# answers.
_NEGATIVE_CODES = frozenset(
    {-7, -8, -9, -66, -77, -88, *range(-99, -95), -777, -888, *range(-999, -995), -9999}
)
_POSITIVE_CODES = frozenset({77, 88, *range(96, 100), 777, 888, *range(996, 1000), 9999})
# A number such as 88 among words may be an answer.
_LEAST_AMONG_WORDS = 777
# A code is so many times the range of all other numbers away from them. An age of 99 is not.
_FEWEST_RANGES_AWAY = 3
# It is also this share of the largest of them away. A score of 99 beside 94 and 95 is not.
_LEAST_SHARE_AWAY = 0.4


def fold_answer(value: str) -> str:
    """Return the text in a form for comparisons: in lower case, without punctuation."""
    # The question mark is kept.
    text = value.casefold().replace(".", "").replace("’", "'")
    return re.sub(r"[^\w?]+", " ", text).strip()


def is_refused_answer(value: object) -> bool:
    """Return True if an answer says nothing, such as "prefer not to say" or "don't know"."""
    return isinstance(value, str) and _is_refusal(value, _REFUSED_ANSWER)


def is_answer(cell: object) -> bool:
    """Return whether a cell about a person is neither empty nor a refusal."""
    return cell is not None and bool(str(cell).strip()) and not is_refused_answer(cell)


def is_refused_choice(value: str) -> bool:
    """Return True if an answer is a refusal that no question offers as an option.

    "Prefer not to say" is one. "Don't know" may be an option, and so may "refuse".
    """
    return _is_refusal(value, _REFUSED_CHOICE)


def _is_refusal(text: str, phrases: re.Pattern[str]) -> bool:
    return bool(phrases.fullmatch(fold_answer(text)) or _DASHES_AND_DOTS.fullmatch(text))


def list_missing_codes(
    column: pl.Series,
    path: Path,
    *,
    answers: Iterable[float] | None = None,
    known: Iterable[float] = (),
    hint: str = MISSING_HINT,
) -> list[Problem]:
    """Return a problem for each number of a column that looks like a code for a missing answer.

    - `answers`: all answers to the question, if the column holds only a part.
    - `known`: answers to the same question that hold no code.
    """
    has_words = False
    if column.dtype == pl.String:
        texts = column.to_list()
        points = [text.replace(",", ".") if has_decimal_comma(text) else text for text in texts]
        column = pl.Series(column.name, points, pl.String)
        is_word = column.cast(pl.Float64, strict=False).is_null()
        has_words = any(map(is_answer, column.filter(is_word)))
    elif not column.dtype.is_numeric():
        # Dates and lists of a Parquet or JSON file are no numbers.
        return []
    numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
    codes = find_missing_codes(
        numbers.drop_nulls() if answers is None else answers, known, among_words=has_words
    )
    problems = []
    for code in sorted(codes):
        rows = (numbers == code).arg_true()
        if len(rows):
            count = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
            problem = f"{number_text(code)} looks like a code for a missing answer ({count})"
            where = str(rows[0] + first_line(path))
            problems.append(Problem(problem, str(path), where, column.name, hint))
    return problems


def find_missing_codes(
    numbers: Iterable[float], known: Iterable[float] = (), *, among_words: bool = False
) -> set[float]:
    """Return the numbers that look like codes for missing answers, such as -99.

    - `known`: answers to the same question that hold no code.
    - `among_words`: True if other answers to the question are words.

    A code is far from all other numbers, or it is the only kind of negative number. Among words
    alone, it is negative or has at least three digits.
    """
    codes, others = set[float](), [*known]
    for number in numbers:
        if number in _NEGATIVE_CODES or number in _POSITIVE_CODES:
            codes.add(number)
        else:
            others.append(number)
    if not codes or not others:
        return {code for code in codes if code < 0 or (among_words and code >= _LEAST_AMONG_WORDS)}
    low, high = min(others), max(others)
    distance = max(_FEWEST_RANGES_AWAY * (high - low), _LEAST_SHARE_AWAY * max(abs(low), abs(high)))
    # A single other answer has no range. Equal answers have one of 0.
    has_range = len(others) > 1
    is_far = {
        code for code in codes if has_range and (code < low - distance or code > high + distance)
    }
    return is_far | {code for code in codes if code < 0 <= low}
