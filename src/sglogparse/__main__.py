"""`python -m sglogparse`."""

from sglogparse._cli import main

if __name__ == "__main__":
    main()
