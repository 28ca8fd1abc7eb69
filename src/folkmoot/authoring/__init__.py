"""What helps people to write study files, made from the fields of the configuration classes.

`schema` makes the JSON Schema of a study type's file, `keys` lists its keys with default, bounds
and description, and `template` writes a first file with all of them. Each fact about a key is
written once, in its `Field`: `description`, `examples`, and with `about(…)` a unit and whether the
key is essential. The command line and study types import this; it imports the engine.
"""
