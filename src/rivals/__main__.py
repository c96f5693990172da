"""`python -m rivals`: the command line, also where its program is not on the path."""

from rivals.cli.main import main

if __name__ == "__main__":
    main()
