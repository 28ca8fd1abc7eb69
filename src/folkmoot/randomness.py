"""Random numbers that depend only on a seed and on a place in the study."""
# No random stream is shared. The generator of a place is created from a hash of (seed, path), with
# the names that lead to the place. An additional stage or draw therefore does not change other
# draws, and scheduling has no effect. `limit_to_one_thread` limits numeric libraries to one thread,
# because sums in another order differ in their last bits.

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import cast

import numpy as np
from threadpoolctl import ThreadpoolController

Seed = int
_BELOW_ONE = math.nextafter(1.0, 0.0)


def digest(*parts: str | int | bytes, size: int = 16) -> bytes:
    """Return the BLAKE2b hash of the parts, with `size` bytes."""
    # The length of each part is hashed before the part, so that different lists of parts never give
    # the same input.
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return hasher.digest()


def generator(seed: Seed, path: Sequence[str]) -> np.random.Generator:
    """Return a random generator for one place in a study.

    - `path`: the names of this place, such as the name of a stage and the id of a participant.
    """
    # The same seed and path give the same numbers on every machine.
    # PCG64 by name, because numpy may change its default generator.
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest(seed, *path), "big")))


def uniform_values(seed: Seed, *parts: str | int) -> float:
    """Return a number between 0 and 1 that depends only on `seed` and `parts`."""
    # Faster than `generator`, because no generator is created.
    return open_interval_value(digest(seed, *parts, size=8))


def open_interval_value(eight_bytes: bytes) -> float:
    """Return the number between 0 and 1, both excluded, for eight random bytes."""
    # Adding 0.5 excludes 0, so that a logarithm of the draw is finite. The largest integers are
    # rounded up to 2**64, so the minimum excludes 1.
    return min((int.from_bytes(eight_bytes, "big") + 0.5) / 2.0**64, _BELOW_ONE)


def limit_to_one_thread() -> AbstractContextManager[object]:
    """Return a context manager that limits the numeric libraries to one thread."""
    # Only libraries that are already imported are limited.
    return cast("AbstractContextManager[object]", _thread_pools(len(sys.modules)).limit(limits=1))


@lru_cache(maxsize=1)
def _thread_pools(_modules: int) -> ThreadpoolController:
    # The search for thread pools is slow, so it is repeated only when more modules are loaded.
    return ThreadpoolController()
