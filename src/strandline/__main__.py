"""`python -m strandline`: the command line, for an environment whose scripts are not on the path."""

from strandline.cli.entry import main

if __name__ == "__main__":
    main()
