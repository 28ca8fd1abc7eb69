"""Wire formats of the vendors: encode requests, decode replies, and raise typed errors.

Start with `chat_provider`, the common base of the three formats. Then read one of the formats.
`batches` holds the vendors' batch APIs.

Only `engine.calls`, `engine.run`, `models.local` and the report of a study check import this
package.
"""
