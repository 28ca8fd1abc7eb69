"""How fast the engine is and how much memory it takes. `python -m benchmarks` prints the table."""
