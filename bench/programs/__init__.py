"""Programs that measures start as processes of their own, so that their CPU time and pauses are not the measure's.

load            a producer or consumer that loads a broker (confluent-kafka)
reader          consumers without a client library, from the start of a topic to its end
members         thousands of group members
spark_worker    a Spark session that is told what to do
crowd_driver    many connections that produce at once
others_client   producers and consumers of NATS, Redis and RabbitMQ
echo            the least server possible, to compare with
watch           the peak memory of a process tree
"""
