"""A two-round Delphi panel: experts estimate, say why, read the panel and estimate again."""

from statistics import median

import folkmoot as fm


class Panel(fm.StudyConfig):
    """The keys of the study file, besides those that all studies share."""

    question: str = fm.Field(description="what the experts estimate")
    low: float = fm.Field(description="lowest estimate that makes sense")
    high: float = fm.Field(description="highest estimate that makes sense")
    experts: int = fm.Field(12, ge=2, description="number of experts")


class Grounds(fm.BaseModel):
    """What an expert says for an estimate."""

    main_reason: str
    main_doubt: str


class Estimate(fm.Row, table="estimates"):
    """One estimate. Round 2 asks for no new reasons."""

    round: int
    participant_id: str
    estimate: float | None = fm.column("the number given; empty when none could be read")
    main_reason: str | None = fm.column("the strongest reason for it", default=None)
    main_doubt: str | None = fm.column("the strongest reason against it", default=None)


async def protocol(session: fm.Session[Panel]) -> None:
    config = session.config
    drawn = fm.find_persona_source("quota")(config.experts, session.child("panel").rng)
    experts = [fm.Speaker(p.id, p.name, system=f"You are {p.text}") for p in drawn]
    ask = f"{config.question} Reply with a number from {config.low:g} to {config.high:g} only."

    async def estimate(scope: fm.Scope, who: fm.Speaker, prompt: str) -> float | None:
        wanted = fm.Number(config.low, config.high)
        number = await scope.ask(who, prompt, answer_type=wanted, about=config.question)
        return None if isinstance(number, fm.Missing) else number

    async def first(scope: fm.Scope, who: fm.Speaker) -> Estimate:
        number = await estimate(scope, who, ask)
        given = "" if number is None else f" ({number})"
        why = f"{config.question} What speaks for your estimate{given}, and what against it? "
        why += "Reply as JSON with main_reason and main_doubt, one sentence each."
        grounds = await scope.ask(who, why, answer_type=fm.Json(Grounds), about=config.question)
        said = {} if isinstance(grounds, fm.Missing) else grounds.model_dump()
        scope.record(row := Estimate(round=1, participant_id=who.id, estimate=number, **said))
        return row

    told = await session.child("round1").map(experts, first)
    numbers = [row.estimate for row in told.values() if row.estimate is not None]
    panel = f"The panel's median is {median(numbers):g}. Reasons given:" if numbers else ""
    panel += "".join(f"\n- {row.main_reason}" for row in told.values() if row.main_reason)

    async def second(scope: fm.Scope, who: fm.Speaker) -> None:
        own = told[who.id].estimate
        heard = f"You estimated {own}. {panel}" if own is not None else panel
        number = await estimate(scope, who, f"{heard}\n\n{ask}")
        scope.record(Estimate(round=2, participant_id=who.id, estimate=number))

    await session.child("round2").map(experts, second)


def findings(run: fm.RunFolder) -> list[fm.Finding]:
    rows = run.read_table("estimates").drop_nulls("estimate")
    rounds = [(n, own["estimate"]) for (n,), own in rows.group_by("round", maintain_order=True)]
    cuts = [(n, len(own), *(own.quantile(q / 4, "linear") for q in (1, 2, 3))) for n, own in rounds]
    told = "Round {0}: median {3:.4g} of {1} estimates, quartiles {2:.4g} to {4:.4g}."
    says = " ".join([f"“{run.config['question']}”", *(told.format(*cut) for cut in cuts)])
    grid = fm.ResultTable(("round", "estimates", "q1", "median", "q3"), tuple(cuts))
    return [fm.Finding("estimates", "Estimates of the panel", says, grid, headline=True)]


STUDY = fm.Study("delphi", "Delphi panel", Panel, protocol, findings=findings, tables=(Estimate,))
