"""A two-round Delphi panel: experts estimate, say why, read the panel and estimate again."""

from statistics import median, quantiles

from folkmoot import (
    BaseModel,
    Field,
    Finding,
    Json,
    Missing,
    Number,
    ResultTable,
    Row,
    RunFolder,
    Scope,
    Session,
    Speaker,
    Study,
    StudyConfig,
    column,
    find_persona_source,
)


class Panel(StudyConfig):
    """The keys of the study file, besides those that all studies share."""

    question: str = Field(description="what the experts estimate")
    low: float = Field(description="lowest estimate that makes sense")
    high: float = Field(description="highest estimate that makes sense")
    experts: int = Field(12, ge=2, description="number of experts")


class Grounds(BaseModel):
    """What an expert says for an estimate."""

    main_reason: str
    main_doubt: str


class Estimate(Row, table="estimates"):
    """One estimate. Round 2 asks for no new reasons."""

    round: int
    participant_id: str
    estimate: float | None = column("the number given; empty when none could be read")
    main_reason: str | None = column("the strongest reason for it", default=None)
    main_doubt: str | None = column("the strongest reason against it", default=None)


async def protocol(session: Session[Panel]) -> None:
    config = session.config
    drawn = find_persona_source("quota")(config.experts, session.child("panel").rng)
    experts = [Speaker(p.id, p.name, system=f"You are {p.text}") for p in drawn]
    ask = f"{config.question} Reply with a number from {config.low:g} to {config.high:g} only."

    async def estimate(scope: Scope, who: Speaker, prompt: str) -> float | None:
        wanted = Number(config.low, config.high)
        number = await scope.ask(who, prompt, answer_type=wanted, about=config.question)
        return None if isinstance(number, Missing) else number

    async def first(scope: Scope, who: Speaker) -> Estimate:
        number = await estimate(scope, who, ask)
        why = f"{config.question} What speaks for your estimate ({number}), and what against it? "
        why += "Reply as JSON with main_reason and main_doubt, one sentence each."
        grounds = await scope.ask(who, why, answer_type=Json(Grounds), about=config.question)
        said = {} if isinstance(grounds, Missing) else grounds.model_dump()
        scope.record(row := Estimate(round=1, participant_id=who.id, estimate=number, **said))
        return row

    told = await session.child("round1").map(experts, first)
    numbers = [row.estimate for row in told.values() if row.estimate is not None]
    panel = f"The panel's median is {median(numbers):g}. Reasons given:" if numbers else ""
    panel += "".join(f"\n- {row.main_reason}" for row in told.values() if row.main_reason)

    async def second(scope: Scope, who: Speaker) -> None:
        own = told[who.id].estimate
        heard = f"You estimated {own}. {panel}" if own is not None else panel
        number = await estimate(scope, who, f"{heard}\n\n{ask}")
        scope.record(Estimate(round=2, participant_id=who.id, estimate=number))

    await session.child("round2").map(experts, second)


def findings(run: RunFolder) -> list[Finding]:
    rounds = (
        run.read_table("estimates").drop_nulls("estimate").group_by("round", maintain_order=True)
    )
    cuts = [(n, *quantiles(rows["estimate"], method="inclusive")) for (n,), rows in rounds]
    says = " ".join(f"Round {n}: median {m:g}, quartiles {a:g} to {b:g}." for n, a, m, b in cuts)
    grid = ResultTable(("round", "q1", "median", "q3"), tuple(cuts))
    return [Finding("estimates", "Estimates of the panel", says, grid, headline=True)]


STUDY = Study("delphi", "Delphi panel", Panel, protocol, findings=findings, tables=(Estimate,))
