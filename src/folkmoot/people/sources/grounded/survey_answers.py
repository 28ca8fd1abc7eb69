"""Parse survey answers into the values of a profile."""
# Surveys contain bands ("35-44"), rounded sums ("40k"), other words ("BA") and refusals ("prefer
# not to say"). The parsed values decide the draw of other attributes.

from __future__ import annotations

import re
from functools import lru_cache

from folkmoot.files import packaged_yaml
from folkmoot.hints import collapse_spaces
from folkmoot.people.sources.missing_answers import fold_answer

LOWEST_AGE, HIGHEST_AGE = 16, 110


@lru_cache(maxsize=1)
def _value_meanings() -> dict[str, dict[str, str]]:
    # {key of a profile: {word of a survey: value}}. The words are normalised by `fold_answer`.
    data: dict[str, dict[str, list[str]]] = packaged_yaml(__file__, "survey_answers.yaml")
    return {
        key: {fold_answer(word): value for value, words in of.items() for word in words}
        for key, of in data.items()
    }


def read_sex(value: object) -> object:
    """Return F, M or X for common words such as "nonbinary", and any other value unchanged."""
    if not isinstance(value, str):
        return value
    text = re.sub(r"^(?:cis|trans)(?:gender)?\s+|\s+(?:cis|trans\w*)$", "", fold_answer(value))
    return _value_meanings()["sex"].get(text, value)


def read_listed(key: str, value: object) -> object:
    """Translate a survey answer into a value of a profile.

    - `key`: the attribute of the profile.

    An unknown answer is returned unchanged.
    """
    known = _value_meanings().get(key, {})
    return known.get(fold_answer(value), value) if isinstance(value, str) else value


_AGE = r"(\d{1,3})(?:\s*(?:years?(?: old)?|yrs?|y/?o))?"
_YEARS = r"(?:\s*(?:years?(?: old)?|yrs?|y/?o))?"
_UPWARDS = r"(?:\s*\+|\s*(?:and|or|&)\s*(?:over|older|above|more|up|greater|higher)|\s*plus)"
_DOWN_TO = r"(?:under|below|less than|younger than|up to|<)\s*"
_UP_FROM = r"(?:over|above|more than|older than|>)\s*"
_TO = r"\s*(?:-|–|—|to|through|until)\s*"


def read_age_band(value: object) -> tuple[int, int] | None:
    """Return the lowest and highest age in a text such as "65 and over" or "30s".

    Returns None for other text.
    """
    if not isinstance(value, str):
        return None
    text = collapse_spaces(value.casefold())
    low, high = LOWEST_AGE, HIGHEST_AGE
    if match := re.fullmatch(
        rf"(?:between )?(\d{{1,3}}){_YEARS}(?:{_TO}| and )(\d{{1,3}}){_YEARS}", text
    ):
        low, high = int(match[1]), int(match[2])
    elif match := re.fullmatch(rf"(\d{{1,3}}){_YEARS}{_UPWARDS}{_YEARS}", text):
        low = int(match[1])
    elif match := re.fullmatch(rf"{_UP_FROM}(\d{{1,3}}){_YEARS}", text):
        low = int(match[1]) + 1
    elif match := re.fullmatch(rf"{_DOWN_TO}(\d{{1,3}}){_YEARS}", text):
        # "Under 30" excludes the age 30, and "up to 30" includes it.
        high = int(match[1]) - (not text.startswith("up to"))
    elif match := re.fullmatch(r"(\d{1,3})\s*(?:or|and) (?:younger|under|less|below)", text):
        high = int(match[1])
    elif match := re.fullmatch(r"(?:in (?:my|his|her|their) |the )?([1-9]0)['’]?s", text):
        low, high = int(match[1]), int(match[1]) + 9
    else:
        return None
    # Profiles have no ages outside these bounds.
    low, high = max(low, LOWEST_AGE), min(high, HIGHEST_AGE)
    return (low, high) if low <= high else None


# A dot before three digits may separate thousands ("1.500"), so the sum is read only with a unit.
_SUM = (
    r"\$?\s*(\d{1,3}(?:[, ]\d{3})+|\d+)(\.(?!\d{3}(?!\d|\s*[kmt]))\d+)?"
    r"\s*(k|m|thousand|million)?"
)
_PER_YEAR = re.compile(
    r"(?:\s*(?:us ?d|usd|us dollars|dollars?))?"
    r"(?:\s*(?:/|per|a|an|each|p)?\s*(?:years?|yr|annum|annually|yearly|pa))?$"
)
_PER_MONTH = re.compile(r"\s*(?:/|per|a|each|p)?\s*(?:months?|mo|monthly|pm)$")
_TIMES = {None: 1, "k": 1_000, "thousand": 1_000, "m": 1_000_000, "million": 1_000_000}
# The assumed value of an open band ("under 20k", "150k and more"), as a multiple of its limit.
_BELOW, _ABOVE = 2 / 3, 4 / 3


def read_dollars(value: object) -> int | None:
    """Return the dollars per year in a text such as "40k" or "3,000 a month".

    Returns None if the text is no sum of money.
    """
    # For a band, the result is its middle.
    if not isinstance(value, str):
        return None
    text = collapse_spaces(value.casefold())
    months = 1
    if _PER_MONTH.search(text):
        text, months = _PER_MONTH.sub("", text), 12
    text = _PER_YEAR.sub("", text).strip()
    if match := re.fullmatch(_SUM, text):
        amount = _parse_amount(match.groups())
    elif match := re.fullmatch(rf"(?:between )?{_SUM}(?:{_TO}| and )(?:{_DOWN_TO})?{_SUM}", text):
        low, high = match.groups()[:3], match.groups()[3:]
        # "40-50k" gives the unit only once, for both ends.
        unit = low[2] or (high[2] if _parse_amount((*low[:2], None)) < 1000 else None)
        amount = (_parse_amount((*low[:2], unit)) + _parse_amount(high)) / 2
    elif match := re.fullmatch(rf"{_DOWN_TO}{_SUM}", text) or re.fullmatch(
        rf"{_SUM}\s*(?:or|and) (?:less|under|below)", text
    ):
        amount = _BELOW * _parse_amount(match.groups())
    elif match := re.fullmatch(rf"{_UP_FROM}{_SUM}", text) or re.fullmatch(
        rf"{_SUM}{_UPWARDS}", text
    ):
        amount = _ABOVE * _parse_amount(match.groups())
    else:
        return None
    return round(amount * months)


def _parse_amount(parts: tuple[str | None, ...]) -> float:
    whole, fraction, unit = parts
    number = float(re.sub("[, ]", "", str(whole)) + (fraction or ""))
    return number * _TIMES[unit]
