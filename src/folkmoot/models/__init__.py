"""Model requests, providers, the catalogue of models and their prices.

Start with `request`, the types that all providers share. Then read `catalog`. `wire` holds the wire
formats of the vendors, and `local` the models that run on the researcher's machine.

Higher layers, such as `engine` and `kit`, may import this package. From outside, the package
imports only single modules such as `errors` and `transport`.
"""
