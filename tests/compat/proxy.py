"""A proxy that loses answers: what a client takes for a failure has been done, and it will try again."""
