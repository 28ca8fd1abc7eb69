"""Embeddings by averaged word vectors, 256 numbers: the default if the vendor has no embeddings.

The vectors and their tokenizer are two files of the package wordllama (MIT).
"""

# The files are read directly, because the package's own loader may download them. The digests of
# the files are checked, so another version of the package never changes a result.
# docs/decisions/0047 compares the embeddings.

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from folkmoot.errors import FatalModelError, InputError, Problem
from folkmoot.models.request import (
    Completion,
    FloatArray,
    ModelRequest,
    Provider,
    ProviderSettings,
    Usage,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSIONS = 256
# The number of rows in the file of vectors, and the length of its header.
VOCABULARY_SIZE, HEADER_BYTES = 32_000, 96
PACKAGE = "wordllama==0.2.2.post0"
VECTOR_FILE = (
    "wordllama/weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
# There are two digests, because versions 0.2.2 and 0.4.0 differ by a final line break.
TOKEN_FILE = (
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    "bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83",
)


def find_package_file(name: str) -> Path:
    """Return the path of a file in the installed package wordllama.

    Raises InputError if the file is missing.
    """
    try:
        path = Path(str(distribution("wordllama").locate_file(name)))
    except PackageNotFoundError:
        path = Path(name)
    if not path.is_file():
        raise InputError(_missing_file_error("the word vectors that embed texts are not installed"))
    return path


class WordVectors(Provider):
    """A provider that embeds a text as the mean vector of its words, scaled to norm 1."""

    # The vectors are loaded when the first text is embedded. There is nothing to close, because all
    # runs in this process share them.

    def __init__(self) -> None:
        self._paths = find_package_file(VECTOR_FILE[0]), find_package_file(TOKEN_FILE[0])

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        raise FatalModelError(
            f"{request.model} is an embedding model and cannot answer questions: set model"
        )

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Return the embeddings of texts, shape (n, 256), float32, rows of Euclidean norm 1.

        A text without words gives a row of zeros. Raises InputError if the installed files do not
        belong to this model.
        """
        # The vector of a text depends on the text alone and not on its batch.
        vectors, tokenizer = load_vectors(*self._paths)
        rows = np.zeros((len(texts), DIMENSIONS))
        token_count = 0
        # One text at a time: in a batch the tokenizer pads short texts, which changes their mean.
        for row, text in zip(rows, texts, strict=True):
            if tokens := tokenizer.encode(text, add_special_tokens=False).ids:
                token_count += len(tokens)
                mean = vectors[tokens].mean(axis=0, dtype=np.float64)
                row[:] = mean / (np.sqrt((mean**2).sum()) or 1)
        return rows.astype(np.float32), Usage(token_count, 0, 0)


def provider(settings: ProviderSettings) -> WordVectors:
    """Return the provider for embeddings by word vectors."""
    return WordVectors()


# All runs of a process share one copy. 50 copies would hold 1.4 GB, and checking the digest of the
# files takes about 70 ms.
@lru_cache(maxsize=1)
def load_vectors(vector_path: Path, token_path: Path) -> tuple[FloatArray, Tokenizer]:
    """Return the word vectors, shape (32,000, 256), float16, and their tokenizer.

    Raises InputError if a file is not the expected one.
    """
    from tokenizers import Tokenizer

    _verify_digest(token_path, TOKEN_FILE[1:])
    _verify_digest(vector_path, VECTOR_FILE[1:])
    tokenizer = Tokenizer.from_file(str(token_path))
    tokenizer.no_truncation()
    # Map the file into memory, so that only the vectors of occurring words are loaded.
    mapped = np.memmap(vector_path, np.float16, "r", HEADER_BYTES, (VOCABULARY_SIZE, DIMENSIONS))
    return np.asarray(mapped), tokenizer


def _verify_digest(path: Path, digests: Sequence[str]) -> None:
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() not in digests:
            raise InputError(
                _missing_file_error(f"{path} does not contain the word vectors of {PACKAGE}")
            )


def _missing_file_error(problem: str) -> Problem:
    return Problem(
        problem,
        key="embedding_model",
        hint=f"pip install {PACKAGE}, or name another embedding_model (`synthetic`: a word hash)",
    )
