"""``python -m tokenreel``: the command line."""

from tokenreel.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
