"""Models on the user's own machine: a small language model and embeddings without a download.

Start with `local_model` (`--model local`), whose process is `local_server`. `word_vectors` is the
default for embeddings where no vendor embeds; `hashed_embeddings` needs no package at all.
"""
