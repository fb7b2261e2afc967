"""`python -m callboard`."""

from callboard.cli import main

if __name__ == "__main__":
    main()
