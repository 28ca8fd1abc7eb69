"""Calls to models: from the journal or from a provider, under budget and rate limits.

- `gateway`: answers every call. Start here.
- `retries`: repeats a call until it is answered.
- `batch_queue`: sends calls through a vendor's batch API.
- `model_routing`: decides which model answers in which role.
- `progress`: holds the events that callers receive.

This folder imports `limits`, `journal`, `seats` and `settings`. The folders `session`, `study`,
`cluster` and `run` may import it.
"""
