"""The command line: `main` has the verbs, one module each; what they share is in `output`."""
