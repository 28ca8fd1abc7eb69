"""Count the texts in prompts that have no recorded source."""

from __future__ import annotations

from folkmoot.measures.inference.estimates import format_count
from folkmoot.provenance import UNATTRIBUTED
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import RunFolder


def count_unattributed_characters(run: RunFolder) -> dict[str, int]:
    """Count the characters without a recorded source in each request.

    The keys are the addresses of the requests.
    """
    if not run.has_table(PROVENANCE):
        return {}
    unknown = run.read_table(PROVENANCE).filter(kind=UNATTRIBUTED)
    counted: dict[str, int] = {}
    for address, start, end in unknown.select("address", "start", "end").iter_rows():
        counted[address] = counted.get(address, 0) + end - start
    return counted


def report_unattributed(run: RunFolder) -> Finding | None:
    """Return the finding on texts without a known source, or None if all sources are known."""
    counted = count_unattributed_characters(run)
    if not counted:
        return None
    by_stage: dict[str, list[int]] = {}
    for address, characters in counted.items():
        # An address begins with the name of the stage.
        by_stage.setdefault(address.partition("/")[0], []).append(characters)
    total = sum(counted.values())
    return Finding(
        "unattributed",
        "Texts of unknown source",
        f"{format_count(len(counted), 'prompt')} contained {total:,} characters without a recorded "
        "source.",
        ResultTable.from_records(
            [
                {"stage": stage, "prompts": len(sizes), "characters": sum(sizes)}
                for stage, sizes in by_stage.items()
            ],
            "Exposure, withdrawal and the embedded respondent cannot attribute these texts.",
        ),
        notes=(
            "For study authors: put texts of others into prompt files as variables, as `ask` and "
            "`say` return them, or join them with `+` and not in an f-string.",
        ),
        section="Exposure",
    )
