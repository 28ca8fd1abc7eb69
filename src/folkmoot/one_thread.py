"""Numeric libraries held to one thread: sums in another order give other last bits.

Used by whatever must give the same result on every machine: the engine's computations, clustering.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, cast

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """A context in which the libraries loaded so far compute in one thread; import them before."""
    return cast("AbstractContextManager[Any]", _thread_pools(len(sys.modules)).limit(limits=1))


@lru_cache(maxsize=1)
def _thread_pools(_modules: int) -> ThreadpoolController:
    """Looked for again once there are more modules; to look takes as long as to cluster."""
    return ThreadpoolController()
