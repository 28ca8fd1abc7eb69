"""Models on the researcher's machine: a small language model, and embeddings without a download.

Start with `local_model` (`--model local`), which runs `local_server` in a child process.
`word_vectors` is the default for embeddings if the vendor offers none.

Providers are found by entry points. Only the embedded respondent imports this folder.
"""
