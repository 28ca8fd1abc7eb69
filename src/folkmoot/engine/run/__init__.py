"""Run studies: from a study file to a finished run folder, once or many times.

- `runner`: loads, checks and runs a study. Start here.
- `execution`: one process of a run.
- `event_loop`: runs a coroutine and stops it on Ctrl-C.
- `model_choice`: chooses the models of a run.
- `dry_run`: estimates calls and tokens.
- `counting_provider`: answers and counts the calls of a dry run.
- `question_count`: counts the questions that a human will get.
- `study_language`: checks whether a study is in English.
- `preflight`: makes the test calls before a run.
- `forecast`: predicts the cost of a run while it runs.
- `grid`: runs a study over seeds and settings.
- `fork`: repeats a run with one reply changed.
- `fork_repeats`: repeats a fork several times.
- `verify`: checks finished runs.
- `repair`: removes damaged entries from a journal.

This folder imports everything in the engine. Nothing in the engine imports this folder.
"""
