"""From a plan to what is started: launch specs and files. Pure."""
