"""The command line: one file a command in `commands/`, options and errors in `main`."""
