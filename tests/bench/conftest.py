import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # where the benchmarks are; they are no part of the package
    sys.path.append(ROOT)
