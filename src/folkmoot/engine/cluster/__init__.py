"""A run on several machines, by Ray.

Workers run chunks of the items of `map`. Each worker makes its own calls. It keeps them in a file,
called a shard, until the journal of the run has them (docs/decisions/0057). The main process of the
run is called the head. Start with `head`, then `worker`.

Imports the other folders of the engine except `run`. Only `run` may import this folder.
"""
