"""Everything a person reads, by key, in three languages."""
