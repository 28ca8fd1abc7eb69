"""Help with writing study files, generated from the fields of the configuration classes.

`schema` creates the JSON Schema of a study type's file. `keys` lists its keys with default, bounds
and description. `template` writes a first file with all keys. Each fact about a key is written
once, in its `Field`: `description`, `examples`, and with `field_notes(…)` its unit and whether it
is essential. The command line and study types import this package, and it imports the engine.
"""
