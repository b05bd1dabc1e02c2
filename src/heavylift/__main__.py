"""`python -m heavylift` is the `heavylift` command."""

from heavylift.cli.main import main

if __name__ == "__main__":
    main()
