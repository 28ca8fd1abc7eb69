"""Calls to models: from the journal or from a provider, under budget and rate limits.

Start with `gateway`, through which every call goes. `retries` holds the policy for each kind of
error. `batch_queue` sends calls through a vendor's batch API. `model_routing` decides which model
answers which role. `progress` holds the events that callers receive.

Imports limits, journal, seats and settings. Session, study, cluster and run may import this folder.
"""
