"""Session and scope: what a protocol may do, and the state that all scopes of a run share.

Start with `session`. `effects` does the journaled work behind it: questions with their re-asks,
embeddings and computations (large ones in a child process, by `child_process`). `map_execution`
runs the items of `Scope.map`. `run_context` holds seed, journal, gateway, folder and rows. `plan`
seals the design. `folder_access` creates the run folder and locks it for one process.

Imports calls and the folders above it. Study, cluster and run may import it.
"""
