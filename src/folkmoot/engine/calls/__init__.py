"""Calls to models: from the journal or from a provider, under budget and rate limits.

Start with `gateway`, through which every call goes.
"""

# Imports limits, journal, seats and settings. Session, study, cluster and run may import this
# folder.
