"""A run on several machines, by Ray.

Start with `head`, the main process, then `worker`.
"""

# Workers run chunks of the items of `map`. Each worker makes its own calls. It keeps them in a
# file, called a shard, until the journal of the run has them (docs/decisions/0057). Imports the
# other folders of the engine except `run`. Only `run` may import this folder.
