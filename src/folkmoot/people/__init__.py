"""Participants: their personas, where personas come from, and the assignment to conditions.

No module of this folder imports the engine. Only `sources.persona_hub.fetch_file` uses the network.

The engine, `kit`, study types, comparisons and the command line import this folder.
"""
# The functions take plain values, and studies and the command line combine them. Only functions
# with a path argument use the disk.

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
