"""The command line: one module a command, each parses, makes one call, renders."""
