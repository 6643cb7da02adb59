"""Shipped tools for tests: file systems that remember, lose and fail."""
