"""From logs to causes: evidence is read flat and fast, matched purely, and answered honestly."""
