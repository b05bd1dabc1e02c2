"""One module per engine: from a plan to that engine's own words."""
