import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import com.rabbitmq.client.MessageProperties;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

/**
 * Fills a queue of RabbitMQ, or works one off: of RabbitMQ, or a share group of a Kafka broker. Each worker has a
 * connection of its own and acknowledges each message by itself. Prints a line of JSON: how many messages there were,
 * and the seconds from the first delivery until the broker has confirmed the last acknowledgement.
 *
 * <p>QueueWorkers fill PORT QUEUE COUNT SIZE | rabbitmq PORT QUEUE COUNT WORKERS PREFETCH | share PORT TOPIC COUNT
 * WORKERS PREFETCH GROUP
 */
public class QueueWorkers {
    private static final String HOST = "127.0.0.1";

    private final int count;
    private final AtomicInteger left;
    private final AtomicLong first = new AtomicLong();
    private final CountDownLatch done = new CountDownLatch(1);

    private QueueWorkers(int count) {
        this.count = count;
        this.left = new AtomicInteger(count);
    }

    /** A worker has a message, and acknowledges it. */
    private void note() {
        if (first.get() == 0) first.compareAndSet(0, System.nanoTime());
        if (left.decrementAndGet() == 0) done.countDown();
    }

    private void report() {
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        System.out.println("{\"messages\": " + count + ", \"seconds\": " + seconds + "}");
    }

    private static Connection connect(int port) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(HOST);
        factory.setPort(port);
        return factory.newConnection();
    }

    private static void fill(int port, String queue, int count, int size) throws Exception {
        try (Connection connection = connect(port);
                Channel channel = connection.createChannel()) {
            channel.queueDeclare(queue, true, false, false, null);
            channel.confirmSelect();
            byte[] body = new byte[size];
            for (int number = 0; number < count; number++) {
                channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, body);
                if (number % 1000 == 999) channel.waitForConfirmsOrDie();
            }
            channel.waitForConfirmsOrDie();
        }
        System.out.println("{\"messages\": " + count + "}");
    }

    private void rabbitmq(int port, String queue, int workers, int prefetch) throws Exception {
        List<Channel> channels = new ArrayList<>();
        for (int number = 0; number < workers; number++) {
            Channel channel = connect(port).createChannel();
            channels.add(channel);
            channel.basicQos(prefetch);
            DeliverCallback deliver = (tag, delivery) -> {
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
                note();
            };
            channel.basicConsume(queue, false, deliver, tag -> {});
        }
        done.await();
        for (Channel channel : channels) channel.close(); // the server has handled the acknowledgements before it
        report();
        for (Channel channel : channels) channel.getConnection().close();
    }

    private void share(int port, String topic, int workers, int prefetch, String group) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < workers; number++) {
            Thread thread = new Thread(() -> work(port, topic, prefetch, group));
            threads.add(thread);
            thread.start();
        }
        done.await();
        for (Thread thread : threads) thread.join();
        report();
    }

    private void work(int port, String topic, int prefetch, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", HOST + ":" + port);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", prefetch);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        while (done.getCount() > 0) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                note();
            } // the next poll sends the acknowledgements
        }
        consumer.commitSync();
        // Leaving the group is no part of the work.
        Thread closing = new Thread(consumer::close);
        closing.setDaemon(true);
        closing.start();
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        int count = Integer.parseInt(arguments[3]);
        if (arguments[0].equals("fill")) {
            fill(port, arguments[2], count, Integer.parseInt(arguments[4]));
        } else {
            QueueWorkers queue = new QueueWorkers(count);
            int workers = Integer.parseInt(arguments[4]);
            int prefetch = Integer.parseInt(arguments[5]);
            if (arguments[0].equals("rabbitmq")) queue.rabbitmq(port, arguments[2], workers, prefetch);
            else queue.share(port, arguments[2], workers, prefetch, arguments[6]);
        }
        System.exit(0);
    }
}
