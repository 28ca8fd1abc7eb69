"""Transcripts, prompts and answer types.

Start with `answer_types`, then read `choices`. `json_schemas` builds the schemas that requests
contain. `prompts` renders templates in the sandbox of `template_sandbox`. `transcript` builds the
messages of a request from a history and a prompt. The engine, `folkmoot.kit` and the study types
import this package.
"""
