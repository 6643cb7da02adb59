import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** A member of a group; talking.py says what it is told, and what it tells. */
public class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS =
            Map.of("range", "RangeAssignor", "cooperative", "CooperativeStickyAssignor");

    private final KafkaConsumer<String, String> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
    private final BlockingQueue<String> words = new LinkedBlockingQueue<>();

    private Member(Map<String, String> given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("group.id", given.get("group"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("allow.auto.create.topics", "false"); // or a topic that a test deletes may be made again
        if ("consumer".equals(given.get("protocol"))) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put(
                    "partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer." + ASSIGNORS.get(given.getOrDefault("assignor", "range")));
            settings.put("session.timeout.ms", given.get("session_ms"));
            settings.put("heartbeat.interval.ms", given.get("heartbeat_ms"));
        }
        settings.put("max.poll.interval.ms", given.get("poll_ms"));
        settings.put("metadata.max.age.ms", given.get("metadata_ms"));
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (given.containsKey("instance")) settings.put("group.instance.id", given.get("instance"));
        consumer = new KafkaConsumer<>(settings);
        if (given.containsKey("pattern") && "consumer".equals(given.get("protocol")))
            consumer.subscribe(new SubscriptionPattern(given.get("pattern")), this);
        else if (given.containsKey("pattern")) consumer.subscribe(Pattern.compile(given.get("pattern")), this);
        else consumer.subscribe(List.of(given.get("topics").split(",")), this);
    }

    private static synchronized void tell(String event, String more) {
        System.out.println("{\"at\": " + System.nanoTime() + ", \"event\": \"" + event + "\"" + more + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
    }

    private static String listed(Collection<TopicPartition> partitions) {
        return partitions.stream()
                .map(each -> "[" + quoted(each.topic()) + ", " + each.partition() + "]")
                .collect(Collectors.joining(", ", ", \"partitions\": [", "]"));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", listed(partitions) + ", \"generation\": " + consumer.groupMetadata().generationId());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        next.keySet().removeAll(partitions);
        tell("revoked", listed(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        next.keySet().removeAll(partitions);
        tell("lost", listed(partitions));
    }

    private void commit() {
        try {
            if (!next.isEmpty()) consumer.commitSync(next);
        } catch (KafkaException error) {
            tell("refused", ", \"text\": " + quoted(error.toString()));
            return;
        }
        tell("committed", next.entrySet().stream()
                .map(each -> "[" + quoted(each.getKey().topic()) + ", " + each.getKey().partition() + ", "
                        + each.getValue().offset() + "]")
                .collect(Collectors.joining(", ", ", \"offsets\": [", "]")));
    }

    private void run() throws InterruptedException {
        while (true) {
            String word = words.poll();
            if ("hold".equals(word)) {
                tell("held", "");
                word = words.take();
            }
            if ("commit".equals(word)) commit();
            if ("leave".equals(word)) break;
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                next.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                tell("message", ", \"topic\": " + quoted(record.topic()) + ", \"partition\": " + record.partition()
                        + ", \"offset\": " + record.offset() + ", \"value\": " + quoted(record.value()));
            }
        }
        tell("leaving", "");
        consumer.close();
        tell("left", "");
    }

    private void listen() {
        Thread reader = new Thread(() -> {
            java.util.Scanner lines = new java.util.Scanner(System.in);
            while (lines.hasNextLine()) words.add(lines.nextLine().strip());
            Runtime.getRuntime().halt(1);
        });
        reader.setDaemon(true);
        reader.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> given = new TreeMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            given.put(parts[0], parts[1]);
        }
        Member member = new Member(given);
        member.listen();
        member.run();
        System.exit(0);
    }
}
