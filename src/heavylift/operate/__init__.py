"""Operating deployments: the stages put together, from a recipe to a watched and proven service."""
