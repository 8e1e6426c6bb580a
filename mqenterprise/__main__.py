"""``python -m mqenterprise``: the command, where it is not installed on the path."""

from mqenterprise.cli import main

if __name__ == "__main__":
    main()
