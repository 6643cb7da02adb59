"""Started by the broker (`server/children`)."""

from tailrace.gateway.process import main

main()
