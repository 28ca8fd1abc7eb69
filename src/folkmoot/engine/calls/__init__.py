"""Calls to models: journal, budget, limiter, provider, retry, journal.

Start with `gateway`, the one way to a model. `retries` has the policy for each kind of error,
`batch_queue` the calls that can wait for a vendor's batch interface, `model_routing` which model
answers whom. `progress` has the events that callers receive.

Imports limits, journal, seats and settings; session, study, cluster and run may import it.
"""
