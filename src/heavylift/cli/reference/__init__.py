"""The reference pages of the documentation, made from the code and the facts.

`HEAVYLIFT_LANG=… python -m heavylift.cli.reference FOLDER` writes them as Markdown. The same code
makes the same bytes. Commands speak the language in which they were loaded: one process each.
"""
