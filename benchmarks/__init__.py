"""Measure the speed and the memory of the engine. `python -m benchmarks` prints the table."""
