"""Makes ``python -m gleanery`` the same command as ``gleanery``."""

from gleanery.cli import main

if __name__ == "__main__":
    main()
