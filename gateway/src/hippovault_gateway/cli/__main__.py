"""`python -m hippovault_gateway.cli`."""

from hippovault_gateway.cli import main

if __name__ == "__main__":
    main()
