"""`python -m spine`, and the console script (floor 15)."""

from spine.cli import cli


def main() -> None:
    """Run the command line and exit with its status."""
    cli()


if __name__ == "__main__":
    main()
