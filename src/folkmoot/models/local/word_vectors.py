"""Embeddings by word vectors: 256 numbers a token, averaged. The default where no vendor embeds.

The vectors and their tokenizer are two files of the package wordllama (MIT). They are read as
files: that package's own code looks for them in another folder and then on the network. A name in a
plan means one pair of files, known by their digests, so that what is installed never changes a
result. How they compare: docs/decisions/0047. An entry point of the gateway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from folkmoot.errors import FatalModelError, InputError, Problem
from folkmoot.models.request import Completion, FloatArray, ModelRequest, ProviderSettings, Usage

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSIONS = 256
VOCABULARY_SIZE, HEADER_BYTES = 32_000, 96  # rows of the file of vectors, and the bytes before them
PACKAGE = "wordllama==0.2.2.post0"
VECTOR_FILE = (
    "wordllama/weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
TOKEN_FILE = (  # versions 0.2.2 and 0.4.0 of the package differ by a final line break
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    "bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83",
)


def find_package_file(name: str) -> Path:
    """A file of the installed package. Raises InputError where it is missing."""
    try:
        path = Path(str(distribution("wordllama").locate_file(name)))
    except PackageNotFoundError:
        path = Path(name)
    if not path.is_file():
        raise InputError(_missing_file_error("the word vectors that embed texts are not installed"))
    return path


class WordVectors:
    """The mean vector of a text's tokens, of length 1. Loaded by the first text."""

    def __init__(self) -> None:
        for name, *_ in (VECTOR_FILE, TOKEN_FILE):
            find_package_file(name)
        self._loaded: tuple[FloatArray, Tokenizer] | None = None

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        raise FatalModelError(f"{request.model} embeds texts and answers nothing: set model")

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Vectors of texts, shape (n, 256), float32, rows of length 1 (zero for an empty text).

        A text's vector depends on that text alone. Raises InputError where the installed files are
        not those of this model.
        """
        if self._loaded is None:
            self._loaded = _load_vectors()
        vectors, tokenizer = self._loaded
        rows = np.zeros((len(texts), DIMENSIONS))
        count = 0
        for row, text in zip(rows, texts, strict=True):  # one by one: a batch is padded
            if tokens := tokenizer.encode(text, add_special_tokens=False).ids:
                count += len(tokens)
                mean = vectors[tokens].mean(axis=0, dtype=np.float64)
                row[:] = mean / (np.sqrt((mean**2).sum()) or 1)
        return rows.astype(np.float32), Usage(count, 0, 0)

    async def close(self) -> None:
        """Let the vectors go at once: a run that is over may wait long to be collected, and 50
        runs in one process would hold 1.4 GB."""
        self._loaded = None


def provider(settings: ProviderSettings) -> WordVectors:
    """Entry point `wordllama`."""
    return WordVectors()


def _load_vectors() -> tuple[FloatArray, Tokenizer]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(_verified_path(*TOKEN_FILE))
    tokenizer.no_truncation()
    # Mapped, so that only the vectors of words that occur take memory.
    mapped = np.memmap(
        _verified_path(*VECTOR_FILE), np.float16, "r", HEADER_BYTES, (VOCABULARY_SIZE, DIMENSIONS)
    )
    return np.asarray(mapped), tokenizer


def _verified_path(name: str, *digests: str) -> str:
    """The path of a file that has one of these digests."""
    path = find_package_file(name)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() not in digests:
            raise InputError(
                _missing_file_error(f"{path} holds other word vectors than those of {PACKAGE}")
            )
    return str(path)


def _missing_file_error(what: str) -> Problem:
    return Problem(
        what,
        key="embedding_model",
        hint=f"pip install {PACKAGE}, or name another embedding_model (`synthetic`: a word hash)",
    )
