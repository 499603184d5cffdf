"""Commands that show a running server on a terminal: top, tail, groups, pending, load.

On a terminal these commands use colours and tables; elsewhere plain lines, and JSON with --json.
"""
