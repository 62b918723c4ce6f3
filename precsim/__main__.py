"""``python -m precsim`` is ``precsim``."""

import sys

from precsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
