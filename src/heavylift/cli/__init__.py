"""The command line: one file per command. The only package, with the pages, that holds text."""
