"""A run on several machines, by Ray.

Workers run chunks of the items of `map`. Each worker is the same engine, with an event loop,
connections and a journal shard (docs/decisions/0057). Start with `head`, then `worker`.

Imports the other folders of the engine except `run`. Only `run` may import this folder.
"""
