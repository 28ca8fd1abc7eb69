"""The lines that `folkmoot show RUN ID` adds for a participant of a focus group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape

from folkmoot.storage.run_folder import RunFolder


def render_positions(run: RunFolder, key: Sequence[str]) -> Iterator[str]:
    """Yield a participant's positions on each concept over the discussion, as lines of text.

    Yields nothing if the key names no participant.
    """
    # Only a key (group, participant) names a participant. A key (group, concept) has two parts as
    # well, but no row of `opinions` matches it.
    if len(key) != 2:
        return
    rows = run.read_table("opinions").filter(group=key[0], persona_id=key[1])
    for (stimulus,), steps in rows.group_by("stimulus", maintain_order=True):
        changes = [True, *steps["changed"][1:]]
        positions = (
            f"{value:+.2f}"
            for value, is_change in zip(steps["valence"], changes, strict=True)
            if is_change
        )
        # The position after the discussion is asked in private and is not on this path.
        yield (
            f"\n[underline]{escape(str(stimulus))}[/underline]  position "
            f"{' → '.join(positions)} [dim]"
            "(from −1 to 1; the first was stated before the discussion, the others are a coder's "
            "reading of the answers)[/]"
        )
