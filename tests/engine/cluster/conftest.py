"""A small cluster of Ray's on this machine, started once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray, started in this process; skipped where it is not installed (`make cluster`)."""
    ray = pytest.importorskip("ray")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=10**8, **quiet)
    yield
    ray.shutdown()
