"""Model requests, providers, the catalogue of models and their prices.

Start with `request`, the types that all providers share, then read `catalog`. `wire` holds the wire
formats of the vendors, and `local` the models on this machine. All higher packages may import this
package."""
