"""What the programs that measure against goals share: figures, judgements, pages, command lines.

`form` says which form of the server is measured, `figures` is what a measurement returns, `goals`
how it is judged, `report` the forms a result has, and `program` the command line that makes one.
"""
