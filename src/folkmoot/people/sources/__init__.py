"""Where personas come from: `persona_hub`, `quota`, `table`, `grounded`."""
