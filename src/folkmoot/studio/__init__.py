"""`folkmoot studio`: pages on which studies are created, edited and started on this machine.

Start reading with `pages`. Only the command line imports this package.

- `projects`: finds and creates study files.
- `fields`: makes a form from a configuration class and reads the submitted form.
- `study_text`: writes values into the text of a file.
- `processes`: starts the command line.
"""
# A page only runs commands and writes files.
