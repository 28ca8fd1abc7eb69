"""Limits that a call must pass before it is sent: budget, record on disk and rate limit.

- `budget`: limits the cost of all processes of a run. Start here.
- `lender`: records calls on disk before the calls are sent.
- `rate_limiter`: follows the rate limits that a provider reports.

This folder imports nothing of the engine. Every other folder may import this one.
"""
