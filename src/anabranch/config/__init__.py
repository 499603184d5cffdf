"""Settings: every directive once, where its value comes from, and how it changes at run time.

``settings`` holds the table, ``load`` reads file, environment and command line (the only module
here that touches the outside), ``runtime`` is CONFIG GET and SET, ``rewrite`` is CONFIG REWRITE.
"""
