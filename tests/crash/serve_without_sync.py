"""`tailrace`, on which every flush does nothing: what a test of power cuts must find out.

serve_without_sync.py serve …
"""

import os
import sys

os.fsync = os.fdatasync = lambda descriptor: None  # type: ignore[assignment]

from tailrace.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.argv[0] = "tailrace"
    main()
