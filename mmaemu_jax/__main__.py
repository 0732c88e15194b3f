"""``python -m mmaemu_jax``."""

import sys

from mmaemu_jax.cli import main

sys.exit(main())
