"""Quality: whether two deployments of a model answer alike, with statistics that can tell."""
