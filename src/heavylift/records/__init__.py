"""Records the stages share: frozen, versioned, each with a JSON Schema under `docs/schemas`.

A record holds facts, codes and parameters, never prose: the terminal, the web pages and `--json`
render the same one.
"""
