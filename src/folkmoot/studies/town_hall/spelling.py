"""What a model meant: ids, options and numbers in the many ways in which they get written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_SYNONYMS = {
    "partially_agree": "partial_agree",
    "partial_agreement": "partial_agree",
    "agreement": "agree",
    "support": "agree",
    "disagreement": "disagree",
    "oppose": "disagree",
    "refute": "disagree",
    "citation": "cite",
    "reference": "cite",
    "ask": "question",
    "strongly_support": "strong_support",
    "strongly_oppose": "strong_oppose",
    "maintained": "maintain",
    "softened": "soften",
    "hardened": "harden",
    "flipped": "flip",
}


def resolve(raw: Any, ids: Sequence[str]) -> str:
    """The one id that a text names (`a3`, `Resident A03`, `A03 (teacher)` are A03), or ''."""
    if not isinstance(raw, (str, int)) or isinstance(raw, bool):
        return ""
    if raw in ids:
        return str(raw)
    found = ids_in(str(raw), ids)
    return found[0] if len(found) == 1 and found[0] in ids else ""


def ids_in(raw: str, ids: Sequence[str]) -> list[str]:
    """Ids named in a text, each once; then what looks like one and is none (`A99`).

    A bare number counts only when it stands alone.
    """
    by_key = {_key(i): i for i in ids}
    alone = re.fullmatch(r"\s*(?:resident|agent)?[\s#_-]*(\d{1,4})\s*", raw, re.IGNORECASE)
    if alone:
        numbered = [i for i in ids if re.sub(r"\D", "", i).lstrip("0") == alone[1].lstrip("0")]
        return numbered[:1]
    words = re.findall(r"[A-Za-z]+[\s_-]?\d+", raw)
    found = [by_key[_key(w)] for w in words if _key(w) in by_key]
    unknown = [w for w in words if _key(w) not in by_key and re.match(r"[Aa][\s_-]?\d", w)]
    return list(dict.fromkeys(found)) + unknown


def _key(name: str) -> str:
    letters, digits = re.sub(r"[\d\s_-]", "", name).casefold(), re.sub(r"\D", "", name)
    return f"{letters}{digits.lstrip('0') or '0'}"


def spelled(raw: Any, options: Sequence[str]) -> str | None:
    """The option that is meant but for case, spaces, hyphens and a few plain synonyms."""
    if raw in options:
        return str(raw)
    if not isinstance(raw, str):
        return None
    folded = re.sub(r"[\s-]+", "_", raw.strip().strip(".'\"").casefold())
    folded = folded if folded in options else _SYNONYMS.get(folded, folded)
    return folded if folded in options else None


def whole(raw: Any, top: int) -> int | None:
    """A whole number, also when written as `"4"`, `4.0`, or `4/5` on a scale up to `top` = 5."""
    if isinstance(raw, bool):
        return None
    if isinstance(raw, int):
        return raw
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() else None
    match = (
        re.fullmatch(rf"\s*(-?[0-9]{{1,9}})(?:\.0+)?(?:\s*/\s*{top})?\s*", raw)
        if isinstance(raw, str)
        else None
    )
    return int(match[1]) if match else None


def text(raw: Any) -> str:
    """Anything as one text: lists are joined, nothing is empty."""
    if raw is None:
        return ""
    if isinstance(raw, str):
        return raw.strip()
    if isinstance(raw, (list, tuple)):
        return "; ".join(t for t in map(text, raw) if t)
    return str(raw)
