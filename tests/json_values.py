"""Any JSON value, for properties of what writes and reads JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def json_values(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """JSON values of some depth with these integers."""
    return st.recursive(
        st.none()
        | st.booleans()
        | integers
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
