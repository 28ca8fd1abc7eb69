"""Model requests, providers, the catalogue of models and their prices.

Start with `request`, the types that all providers share. Then read `catalog`. `wire` holds the wire
formats of the vendors. `local` holds models that run on the researcher's machine. All higher
packages may import this package.
"""
