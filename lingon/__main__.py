"""`python -m lingon` is the `lingon` command."""

import sys

from lingon.command import main

sys.exit(main())
