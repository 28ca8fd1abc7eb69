"""Model requests, providers, the catalogue of models and their prices.

Start with `request`, the types that all providers share, then `catalog`. `wire` holds the wire
formats of the vendors, `local` the models on this machine. Any package above may import it. It
imports the ground floor only.
"""
