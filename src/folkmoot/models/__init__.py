"""Model requests, providers, the catalogue of models and their prices.

Start with `request`, the types that all providers share. Then read `catalog`. `wire` holds the wire
formats of the vendors, and `local` the models that run on the researcher's machine.

Every folder above may import this one. It imports single modules such as `errors` and `transport`.
"""
