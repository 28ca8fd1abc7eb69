"""A strategy for JSON values, for tests of readers and writers of JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def json_values(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Return a strategy for nested JSON values with these integers."""
    return st.recursive(
        st.none()
        | st.booleans()
        | integers
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda children: (
            st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4)
        ),
        max_leaves=20,
    )
