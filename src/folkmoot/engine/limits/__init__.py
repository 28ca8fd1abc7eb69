"""What lets a call start: money, loans on the disk, and the pace of a model.

Start with `budget` (what may be spent, over all processes of a run). `lender` gives out loans, each
of them on the disk before a call is sent; `rate_limiter` holds the pace that a provider asks for.

Imports nothing else of the engine; every other folder may import it.
"""
