"""The files of a run: tables, JSON, codebook, manifest, findings and amendments.

Start with `run_folder`, which reads a run. `table_buffer` holds the rows during a run, `tables`
writes the tables, and `rows` declares the tables.

The engine and every folder above the engine may import this folder. This folder imports `measures`
and `models`.
"""
