"""Started by the broker (`server/children`)."""

from tailrace.monitor.process import main

main()
