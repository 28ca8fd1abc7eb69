"""The table of raw persona lines that study types take from the data set persona-hub."""

from __future__ import annotations

from folkmoot.people.enrichment import BASE_PERSONAS
from folkmoot.storage.rows import Row, column


class BasePersonaRow(Row, table=BASE_PERSONAS, key=("line",)):
    """One raw persona line and the demographics that the recruiter assigned to it."""

    line: str = column("digest of the raw line, as in the addresses of its calls")
    base_persona: str = column("the raw line, before it becomes a persona")
    age: int | None = column(
        "age in years; this column and those after it are empty if no demographics were assigned"
    )
    sex: str | None = column("F or M")
    education: str | None = column("highest education")
    income: str | None = column("income, from low to high")
    location_type: str | None = column("urban, suburban or rural")
    political_leaning: str | None = column("from very liberal to very conservative")
    occupation: str | None = column("job or main activity")
