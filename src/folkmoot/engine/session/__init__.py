"""Session and scope: all that a protocol may do, and what all scopes of a run share.

Start with `session`. `effects` are the calls behind it: a question that is asked again while its
answer is unreadable, embeddings, computations (large ones by `child_process`). `run_context` holds
seed, journal, gateway, folder and rows; `plan` seals the design; `folder_access` creates the run
folder and holds it for one process.

Imports calls and the folders above it; study, cluster and run may import it.
"""
