"""What is known, with provenance: TOML files under `data/`, their schema and their loader."""
