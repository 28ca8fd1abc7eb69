"""`folkmoot studio`: the pages of `view`, and making and starting studies on this machine.

Start reading at `pages.py`. `projects.py` finds and makes study files, `fields.py` makes a form of
a configuration class and reads it, `study_text.py` puts its values into the text of a file, and
`processes.py` starts the command line: all that a page does is a command or a file. The command
line alone imports this.
"""
