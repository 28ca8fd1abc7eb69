"""`folkmoot studio`: pages on which studies are made, edited and started on this machine.

Start reading at `pages.py`. `projects.py` finds and creates study files. `fields.py` makes a form
from a configuration class and reads it. `study_text.py` writes the values into the text of a file.
`processes.py` starts the command line. Everything that a page does is a command or a file. Only the
command line imports this package.
"""
