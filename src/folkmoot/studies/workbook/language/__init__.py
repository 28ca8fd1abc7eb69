"""The language of the cells of a workbook: expressions, and placeholders in texts.

Start with `expressions`. Only listed kinds of syntax are allowed, and no code is executed.

- `expressions`: parses, checks and calculates expressions, and orders computed values.
- `placeholders`: fills `{{ name }}` and `{% if name %}` in texts.
- `value_types`: finds comparisons and calculations that mix texts and numbers.

This folder imports only `config` and `answers` of the study type.
"""
