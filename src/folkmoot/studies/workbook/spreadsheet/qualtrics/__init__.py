"""Make a workbook from a questionnaire in Qualtrics' export format (a .qsf file).

Start reading with `importing`, which writes the files of a study.
"""
