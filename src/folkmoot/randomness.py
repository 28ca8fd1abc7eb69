"""Randomness that depends on a seed and a path and on nothing else.

No stream is shared: the generator of a path is made from a hash of (seed, path), so a new stage
or one more draw shifts nobody else's draws, whatever the scheduling. Numeric libraries are limited
to one thread where the same result is wanted on every machine: sums in another order give other
last bits.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import cast

import numpy as np
from threadpoolctl import ThreadpoolController

Seed = int


def digest(*parts: str | int | bytes, size: int = 16) -> bytes:
    """BLAKE2b of the parts, each length-prefixed so that no two lists of parts collide."""
    h = hashlib.blake2b(digest_size=size)
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        h.update(len(raw).to_bytes(8, "big"))
        h.update(raw)
    return h.digest()


def generator(seed: Seed, path: Sequence[str]) -> np.random.Generator:
    """The generator of one path. Same (seed, path), same stream, on every machine."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest(seed, *path), "big")))


def uniform_values(seed: Seed, *parts: str | int) -> float:
    """One counter-based draw in (0, 1), without the cost of building a generator."""
    return (int.from_bytes(digest(seed, *parts, size=8), "big") + 0.5) / 2.0**64


def limit_to_one_thread() -> AbstractContextManager[object]:
    """A context in which the libraries loaded so far compute in one thread; import them before."""
    return cast("AbstractContextManager[object]", _thread_pools(len(sys.modules)).limit(limits=1))


@lru_cache(maxsize=1)
def _thread_pools(_modules: int) -> ThreadpoolController:
    """Looked for again once there are more modules; to look takes as long as to cluster."""
    return ThreadpoolController()
