"""Alerts: what raises them, and how they are delivered. Read in this order:

activity    since when groups are idle; pure
rules       what each rule observes in one measurement; pure
alerts      raises and resolves alerts; pure
settings    the monitor's configs
deliveries  log, webhook and command, each in a thread of its own
publisher   writes to the monitor's topics
alert_log   the topic of alerts, silences and tests
alerting    alerts from measurement to delivery
alert_view  what the command line asks for
"""
