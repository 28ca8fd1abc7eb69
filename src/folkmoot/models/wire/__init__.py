"""Wire formats of the vendors: requests out, replies in, errors typed.

Start with `chat_provider`, what the three formats share, then one of them. `http_client` types
errors by what a server said, `capabilities` learns how an endpoint takes structured answers,
`batches` are the vendors' interfaces for calls that can wait.
"""
