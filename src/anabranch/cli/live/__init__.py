"""What is alive in a server, for a terminal: ``top``, ``tail``, ``groups``, ``pending``, ``load``.

On a terminal these commands use colours and tables; elsewhere plain lines, and JSON with --json.
"""
