"""Former path of `handoff.worker`, kept for one release: a broker of the old release starts its helper by this name."""

from tailrace.server.handoff.worker import main

if __name__ == "__main__":
    main()
