"""The rules: small functions from a case to findings, by what they look at."""
