"""`make demo`: tailrace at work, in two acts. Each act is a module; each prints what it does and why it matters."""
