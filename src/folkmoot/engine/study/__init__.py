"""Study types, study files and the Python code that study files name.

- `study`: defines a study type and finds it. Start here.
- `expected_rows`: the rows of a table that the plan of a run expects.
- `return_values`: checks what the functions of a study type return.
- `study_file`: loads a study file and reports all its problems.
- `consent`: asks the researcher before code of a study file is executed.
- `study_code`: executes exactly the bytes that were agreed to.
- `strict_answers`: computes findings without unclear answers.

This folder imports `session` and the folders that `session` imports. The folders `cluster` and
`run` may import it.
"""
