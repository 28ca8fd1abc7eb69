"""Limits that admit a call: the budget, the record on disk, and the rate limit of a model.

Start with `budget`, which holds for all processes of a run. `lender` records calls on disk before
they are sent, so that the process after a kill knows which calls may be billed. `rate_limiter`
follows the rate limits that a provider reports.

Imports nothing of the engine. Every other folder may import this folder.
"""
