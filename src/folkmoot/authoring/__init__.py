"""Help with writing study files, generated from the fields of the configuration classes."""
# Each fact about a key is written once, in its `Field`: `description` and `examples`.
# `field_notes(…)` adds the unit and marks essential keys.
