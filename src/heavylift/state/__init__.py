"""Who owns which database, where it lies, and how it is migrated."""
