"""The commands of ``python -m mmaemu_jax``: a module each, with ``add(commands)`` and its run."""
