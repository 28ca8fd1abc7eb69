"""A run on several machines, by Ray.

- `head`: the main process of the run. Start here.
- `worker`: a process that runs items of `Scope.map` calls and sends the requests to models.
- `leases`: divides the limits of the run among the workers.
- `pickling`: turns functions, items and results into bytes.
- `preconditions`: checks whether a study can run on a cluster.

This folder imports the rest of the engine except `run`. Only `run` may import this folder.
"""

# Each worker keeps its calls in a file, called a shard, until the journal of the run has them
# (docs/decisions/0057).
