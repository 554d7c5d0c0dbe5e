"""`python -m bringup`."""

from bringup.cli.main import main

if __name__ == "__main__":
    main()
