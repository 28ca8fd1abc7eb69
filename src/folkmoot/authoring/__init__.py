"""Generate help for writing study files from the fields of the configuration classes.

The command line and the studio import this package, which imports the engine.

- `schema`: creates the JSON Schema of a study type's file.
- `keys`: lists the keys with default, bounds and description.
- `template`: writes a first file with all keys.
"""
# Each fact about a key is written once, in its `Field`: `description` and `examples`.
# `field_notes(…)` adds the unit and marks essential keys.
