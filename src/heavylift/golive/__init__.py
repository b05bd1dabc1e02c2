"""Whether a deployment may take traffic: points that are facts, judged over evidence."""
