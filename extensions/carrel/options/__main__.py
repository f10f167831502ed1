"""``python -m carrel.options``: docs/options.md on standard output."""

import sys

from carrel.options.page import page

sys.stdout.write(page())
