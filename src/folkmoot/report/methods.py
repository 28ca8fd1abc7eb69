"""A methods paragraph that an author can paste, written from the run folder."""

from __future__ import annotations

from folkmoot.records.run_folder import RunFolder


def methods(run: RunFolder, title: str) -> str:
    """One paragraph in the past tense; blanks are named where a program cannot know."""
    manifest = run.manifest
    served = [m for m in manifest.get("models", []) if m.get("calls") and m.get("roles", True)]
    names = "; ".join(
        f"{m['asked']}" + (f" (served as {', '.join(m['served'])})" if m["served"] else "")
        for m in served
    )
    answers = manifest.get("answers", {})
    rungs = answers.get("rungs", {})
    exact = 100 * float(rungs.get("exact", 0.0))
    missing = 100 * float(rungs.get("missing", 0.0))
    cost = manifest.get("cost_usd")
    money = "at an unknown price" if cost is None else f"at a cost of {cost:.2f} US dollars"
    unknown = manifest.get("cost_unknown_for") or []
    if unknown and cost is not None:
        money += f" without that of {', '.join(unknown)}, which is unknown"
    tokens_in, tokens_out = (
        "an unknown number of" if manifest.get(k) is None else f"{manifest[k]:,}"
        for k in ("input_tokens", "output_tokens")
    )
    sealed = run.plan.get("sealed", {}).get("design", {}).get("hash", "")
    text = (
        f"We ran a study of the type “{title}” with Folkmoot "
        f"{manifest.get('software', {}).get('folkmoot', '')} "
        f"({str(manifest.get('started_at', ''))[:10]}). Participants were simulated by {names}. "
        f"Design, assignment, prompts and seeds (random seed {manifest.get('seed')}) were sealed "
        f"before the first call they govern (design hash {sealed[:12]}). The run took "
        f"{manifest.get('calls', 0):,} calls ({tokens_in} tokens in, {tokens_out} out) "
        f"{money}. Of {answers.get('count', 0):,} "
        f"answers {exact:.1f} % were in the form asked for, {answers.get('reasks', 0):,} requests "
        f"were repeated because of form, and {missing:.1f} % of answers stayed missing. "
    )
    if run.partial:
        text += "The run did not come to its end: these figures are of a part of it. "
    if run.synthetic:
        text += (
            "Folkmoot's embedded opinion-dynamics model with planted effects answered"
            + (f" as {', '.join(roles)}" if (roles := manifest.get("synthetic_roles")) else "")
            + ": the figures test the pipeline and are no evidence about people. "
        )
    return text + "All requests and replies are in the run's journal."
