"""`python -m nps`, also under torchrun."""

from nps.cli import main

if __name__ == "__main__":
    main()
