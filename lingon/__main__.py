"""`python -m lingon` runs the `lingon` command."""

import sys

from lingon.cli.main import main

sys.exit(main())
