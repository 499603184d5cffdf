"""The command line: one file per sub-command, loaded when it is called."""
