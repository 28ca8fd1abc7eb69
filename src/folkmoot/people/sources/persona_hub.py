"""Draw raw persona lines from a file of JSON lines `{"persona": "…"}`, local or by URL."""
# The file is never loaded into memory. One pass draws a random number (ticket) for each line and
# keeps the lines with the lowest tickets as candidates. Only candidates go through language
# identification. `enrich_persona` then makes full personas of the lines.

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from folkmoot.errors import InputError, Problem
from folkmoot.files import user_cache_dir, whole_file
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import collapse_spaces
from folkmoot.people.persona import persona_key

URL = (
    "https://raw.githubusercontent.com/tencent-ailab/persona-hub/refs/heads/main/data/persona.jsonl"
)

# Restrict the identifier to languages with many writers. Otherwise it assigns a short English line
# with a foreign name to a language with a few thousand speakers.
_SPOKEN = """
en zh es pt ru fr de it nl pl tr ar fa hi bn ur ja ko vi id th uk cs ro hu el sv da no fi
he ta te ms
"""
LANGUAGES = tuple(_SPOKEN.split())

# A line is dropped if it is almost certainly not English. On 2,000 real lines a limit of .9 drops
# four English lines ("Compiler Designer", "a passionate Italian poet") and .95 drops none. Neither
# keeps a foreign line.
NOT_ENGLISH = 0.95
# A download that receives no data for longer is given up.
MAX_SILENCE_SECONDS = 60.0

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of lines in a file: all, broken, examined, not English and repeated lines."""

    lines: int
    broken: int
    # Lines that went through language identification.
    examined: int
    not_english: int
    repeated: int
    # The line numbers of the first few broken lines.
    first_broken: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.lines:,} lines"]
        if self.broken:
            line_numbers = ", ".join(map(str, self.first_broken))
            more = ", …" if self.broken > len(self.first_broken) else ""
            parts.append(f"{self.broken:,} broken and skipped (line {line_numbers}{more})")
        parts.append(f"{self.not_english:,} of {self.examined:,} examined dropped as not English")
        if self.repeated:
            parts.append(f"{self.repeated:,} repeated")
        return ", ".join(parts)


def sample_lines(
    path: Path,
    count: int,
    rng: np.random.Generator,
    *,
    exclude: Collection[str] = (),
    english_only: bool = True,
) -> tuple[list[str], Reading]:
    """Return `count` different random lines, and the numbers of lines in the whole file.

    - `exclude`: the `Persona.key` of each persona to skip.
    - `english_only`: if True, lines in other languages are skipped.

    Raises InputError if the file is missing or has too few usable lines.
    """
    # The same generator state and file give the same lines.
    seed = int(rng.integers(2**63))
    # Keep some spare candidates, because a few lines are repeated or not English.
    wanted = count + count // 8 + 32
    while True:
        candidates, lines, broken, first = _lowest_tickets(path, wanted, seed)
        kept, examined, foreign, repeated = _select_usable_lines(
            candidates, count, exclude, english_only
        )
        if len(kept) == count or len(candidates) < wanted:
            break
        # Too few candidates were usable. The seed is the same, so a larger pass keeps the earlier
        # candidates.
        wanted *= 4
    reading = Reading(lines, broken, examined, foreign, repeated, first)
    if len(kept) < count:
        raise InputError(
            Problem(
                f"{count} personas are needed, {len(kept)} are usable ({reading})",
                file=str(path),
                hint="ask for fewer participants or give a larger file",
            )
        )
    return kept, reading


def is_english(text: str) -> bool:
    """Return True if a line is in English, or if its language is doubtful."""
    ranked = dict(_language_identifier().rank(text))
    return 1.0 - float(ranked["en"]) <= NOT_ENGLISH


def _select_usable_lines(
    candidates: list[str], count: int, exclude: Collection[str], english_only: bool
) -> tuple[list[str], int, int, int]:
    # The counts are: examined lines, lines that are not English, and repeated lines.
    kept: list[str] = []
    seen: set[str] = set()
    examined = foreign = repeated = 0
    for text in candidates:
        if len(kept) == count:
            break
        key = persona_key(text)
        if key in seen or key in exclude:
            repeated += 1
            continue
        seen.add(key)
        examined += 1
        if english_only and not is_english(text):
            foreign += 1
        else:
            kept.append(text)
    return kept, examined, foreign, repeated


def _lowest_tickets(
    path: Path, wanted: int, seed: int
) -> tuple[list[str], int, int, tuple[int, ...]]:
    # Each text has a random number, its ticket. Broken lines get tickets too, so that correcting
    # one line does not change the tickets of other lines. The counts are the number of lines, the
    # number of broken lines, and the line numbers of the first broken lines.
    tickets = _draw_tickets(seed)
    heap: list[tuple[float, int, str]] = []
    lines = broken = 0
    first: list[int] = []
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.strip():
                    continue
                lines += 1
                ticket = next(tickets)
                text = _persona_of(raw)
                if text is None:
                    broken += 1
                    if len(first) < 5:
                        first.append(number)
                elif len(heap) < wanted:
                    heapq.heappush(heap, (-ticket, number, text))
                elif ticket < -heap[0][0]:
                    heapq.heapreplace(heap, (-ticket, number, text))
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", file=str(path))
        ) from error
    return [text for _, _, text in sorted(heap, reverse=True)], lines, broken, tuple(first)


def _draw_tickets(seed: int) -> Iterator[float]:
    rng = np.random.Generator(np.random.PCG64(seed))
    while True:
        yield from rng.random(4096).tolist()


def _persona_of(raw: bytes) -> str | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    text = data.get("persona") if isinstance(data, dict) else None
    return collapse_spaces(without_hidden(text)) or None if isinstance(text, str) else None


@lru_cache(maxsize=1)
def _language_identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(list(LANGUAGES))
    return identifier


def cache_path(url: str = URL, cache_dir: Path | None = None) -> Path:
    """Return the path under which the file from a URL is stored after the download."""
    name = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
    return (cache_dir or user_cache_dir()) / f"personas-{name}.jsonl"


async def fetch_file(
    url: str = URL,
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    refresh: bool = False,
) -> Path:
    """Return the local copy of the file at `url`, which is downloaded if necessary.

    - `refresh`: True to download the file again.
    - `progress`: called with the received and the total bytes. The total may be None.

    Raises InputError if the URL cannot be read.
    """
    target = cache_path(url, cache_dir)
    if target.is_file() and not refresh:
        return target
    # The import takes a tenth of a second, so only a download pays for it.
    from folkmoot.transport import TransferError, download_file

    try:
        with whole_file(target) as out:
            await download_file(url, out.write, silence=MAX_SILENCE_SECONDS, progress=progress)
    except TransferError as error:
        raise InputError(
            Problem(
                f"cannot download personas from {url}: {error}",
                hint="give a local file of that format, or use the `quota` source, "
                "which needs no network",
            )
        ) from error
    return target
