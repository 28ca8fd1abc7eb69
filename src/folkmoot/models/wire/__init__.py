"""Wire formats of the vendors: encode requests, decode replies, and raise typed errors.

Start with `chat_provider`, the common base of the three formats. Then read one of the formats.
`http_client` derives errors from responses. `capabilities` records in which form an endpoint
accepts structured answers. `batches` holds the vendors' batch APIs.
"""
