"""A workbook made from a questionnaire in Qualtrics' export format (a .qsf file).

Start reading with `importing`, which makes the files of a study. `survey` reads the export. `flow`
goes through the survey in the order in which it is shown, and asks `questions` for the tasks of
each question and `logic` for its conditions. `conditions` are the terms of which both build
placeholders. `treatments` turns the randomizers of the survey into treatments. `texts` makes plain
text of HTML. Only the workbook study imports this package.
"""
