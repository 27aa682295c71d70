"""Attacks on the library, and what held. docs/trust.md says how to read the result."""
