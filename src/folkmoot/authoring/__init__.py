"""Help with writing study files, generated from the fields of the configuration classes.

`schema` creates the JSON Schema of a study type's file. `keys` lists the keys with default, bounds
and description. `template` writes a first file with all keys. Each fact about a key is written
once, in its `Field`: `description`, `examples`, and with `field_notes(…)` the unit and whether the
key is essential. The command line and study types import this package, which imports the engine."""
