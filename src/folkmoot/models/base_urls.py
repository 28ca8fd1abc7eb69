"""Base URLs with paths below them; a query that they have (`?api-version=…`) stays at the end.

Used by the catalog and the wire formats.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit


def join_url(base: str, path: str) -> str:
    """A path below a base URL. Raises ValueError for what is no URL."""
    parts = urlsplit(base)
    return urlunsplit((*parts[:2], parts.path.rstrip("/") + path, parts.query, ""))


def with_version(base: str, version: str) -> str:
    """A base URL that ends in a version (`/v1`, `/v1beta`): this one, if it has none."""
    try:
        if re.search(r"/v\d+\w*$", urlsplit(base).path.rstrip("/")):
            return base
        return join_url(base, version)
    except ValueError:
        return base  # what is no address is said when it is used
