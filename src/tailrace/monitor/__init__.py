"""Observes consumer groups of any Kafka: lag, losses, and when messages will be lost. A client: it imports no broker.

Read in this order; a folder imports only those above it in this list:

    figures/    lag, losses, forecasts and rates, from what is known about a cluster; pure
    sources/    what is known about a cluster: of any Kafka, and of a broker of ours
    alerts/     rules, alerts and their delivery
    views       what the command line asks for
    lag_log     the topic in which the monitor publishes lag
    measurer    measures a cluster once in an interval
    exposition  metrics for Prometheus
    service     the loop: measures, publishes and delivers
    process     runs the service as a child process of the broker
    alone       runs it beside any Kafka: what `tailrace monitor` does
"""
