"""Who takes part: personas, where they come from, their pool, and who is in which arm.

Pure functions over plain values. Studies and the command line compose them; nothing here knows of
the engine, the network is touched only by `sources.persona_hub.fetch`, and the disk only where a
path is given.
"""

from folkmoot.people.assignment import assign_conditions
from folkmoot.people.enrichment import Demographics, enrich_persona
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, draw_personas, migrate_personas, target_pool_size

__all__ = [
    "Demographics",
    "Persona",
    "Pool",
    "assign_conditions",
    "draw_personas",
    "enrich_persona",
    "migrate_personas",
    "target_pool_size",
]
