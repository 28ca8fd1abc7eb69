"""Session and scope: what a protocol may do, and the state that all scopes of a run share.

- `session`: what study types call. Start here.
- `asking`: asks a question until its answer can be parsed.
- `computations`: embeds texts and runs computations.
- `arrivals`: waits for humans.
- `seat_questions`: asks humans the questions outside the protocol.
- `map_execution`: runs the items of `Scope.map`.
- `run_context`: holds seed, journal, gateway, folder and rows.
- `plan`: fixes the design in `plan.json`.
- `folder_access`: creates the run folder and locks it for one process.
- `arguments`: checks what a protocol passes.
- `confounders`: adds attributes to the descriptions of participants.
- `fork_source` and `repeated_protocol`: open a finished run and run its protocol again.
- `run_totals`: adds up calls and cost.

This folder imports `calls` and the folders that `calls` imports. The folders `study`, `cluster` and
`run` may import it.
"""
