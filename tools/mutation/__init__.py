"""Mutation tests: each operator and constant of the arithmetic changed, one at a time."""
