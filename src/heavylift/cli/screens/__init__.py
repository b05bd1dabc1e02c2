"""How each kind of record looks on an 80-column terminal: `lines(record)` per module."""
