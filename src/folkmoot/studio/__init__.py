"""`folkmoot studio`: pages on which studies are created, edited and started on this machine.

Start reading with `pages`.
"""
# A page only runs commands and writes files. Only the command line imports this package.
