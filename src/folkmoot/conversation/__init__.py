"""Transcripts, prompts and answer types.

- `answer_types`: answer types for text and JSON. Start here.
- `choices`: answer types for choices and numbers.
- `json_schemas`: builds the schemas that requests contain.
- `schema_alternatives`: reads what a field of a schema allows, without its ways out.
- `prompts`: renders templates in the sandbox of `template_sandbox`.
- `transcript`: builds the messages of a request from a history and a prompt.

This package imports `models`. The folders `measures` and `people`, the engine and all folders above
the engine import this package.
"""
