"""Options, arguments and help texts that more than one command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyArg = Annotated[
    Path, typer.Argument(help="Study file (YAML or workbook).", show_default=False)
]
RunArg = Annotated[
    str, typer.Argument(metavar="RUN", help="Run folder, or its name under outputs/.")
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the study file; repeatable."
    ),
]
ModelOpt = Annotated[
    str | None, typer.Option("--model", help="Use this model, e.g. gpt-4o or synthetic.")
]
TrustOpt = Annotated[
    bool,
    typer.Option("--trust", help="Trust the code and the addresses in the study file."),
]
LimitOpt = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Use at most this many participants or sessions."),
]
BatchOpt = Annotated[
    bool,
    typer.Option(
        "--batch",
        help=(
            "Submit calls through the vendor's batch API: half the price, results within 24 hours."
        ),
    ),
]
SeedOpt = Annotated[
    int | None, typer.Option("--seed", min=0, help="Set the seed of all random draws.")
]
KeyOpt = Annotated[
    str | None,
    typer.Option("--key", help="Use this API key (the environment is safer).", metavar="KEY"),
]
BudgetOpt = Annotated[
    float | None, typer.Option("--budget", min=0, help="Pause after spending this many US dollars.")
]
PortOpt = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Serve the pages at this port.")
]
PoolOpt = Annotated[Path, typer.Option("--pool", help="File of the pool.")]
POOL = Path("data/personas.json")

# The last paragraph of the help of a command that makes calls.
EXIT_CODES = (
    "Exit codes: 0 done, 1 internal error, 2 invalid input, 3 finished without a usable result, "
    "75 paused (can be resumed), 130 interrupted (can be resumed)."
)
