"""Occupations that fit an age group and an income level, for the sampled residents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

OCCUPATIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "30s": {
        "low": ("parcel courier", "kitchen hand", "call-centre clerk", "home carer"),
        "middle": ("primary-school teacher", "nurse", "office clerk", "electrician"),
        "high": ("software engineer", "pharmacist", "dentist", "product manager"),
    },
    "40s": {
        "low": ("cleaner", "market stallholder", "warehouse worker", "school-canteen cook"),
        "middle": ("café owner", "bus driver", "civil servant", "physiotherapist"),
        "high": ("lawyer", "sales director", "surgeon", "architect"),
    },
    "50s": {
        "low": ("taxi driver", "night guard", "seamstress", "cook in a small restaurant"),
        "middle": ("shopkeeper", "factory foreman", "secondary-school teacher", "bank clerk"),
        "high": ("company owner", "accountant", "hospital consultant", "estate agent"),
    },
    "60s": {
        "low": ("janitor", "retired bus conductor", "street-food seller", "part-time caretaker"),
        "middle": ("retired teacher", "hardware-shop owner", "retired postal worker", "barber"),
        "high": ("retired executive", "landlord", "notary", "retired airline pilot"),
    },
    "70s+": {
        "low": ("retired factory worker", "retired farm worker", "retired cleaner"),
        "middle": ("retired civil servant", "retired nurse", "retired tailor"),
        "high": ("retired doctor", "retired company owner", "retired professor"),
    },
}
