import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;

/** Workers on a queue; talking.py says what they are told, and what they tell. */
public class Worker implements Runnable {
    private static final Map<String, String> given = new HashMap<>();
    private static volatile boolean ending = false;

    private final int number;
    private final KafkaShareConsumer<String, String> consumer;
    private final Map<String, Long> ends = new HashMap<>();

    private Worker(int number) {
        this.number = number;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("group.id", given.get("group"));
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", "5");
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        consumer = new KafkaShareConsumer<>(settings);
    }

    private static synchronized void tell(String event, String more) {
        System.out.println("{\"event\": \"" + event + "\"" + more + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
    }

    @Override
    public void run() {
        consumer.subscribe(List.of(given.get("topic")));
        tell("joined", ", \"worker\": " + number);
        while (!ending) {
            try {
                boolean any = false;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    handle(record);
                    any = true;
                }
                if (any) commit();
            } catch (KafkaException | IllegalStateException error) {
                tell("refused", ", \"text\": " + quoted(error.toString()));
                pause(100);
            }
        }
        consumer.close();
    }

    private void handle(ConsumerRecord<String, String> record) {
        int attempt = record.deliveryCount().map(Short::intValue).orElse(0);
        String[] words = (record.value() == null ? "" : record.value()).split(",")[0].split(" ");
        if (words[0].equals("hold") && attempt == 1 && isHeld(record, words[1])) {
            consumer.acknowledge(record, AcknowledgeType.RENEW); // the next poll returns it again
            return;
        }
        AcknowledgeType outcome = AcknowledgeType.ACCEPT;
        if (words[0].equals("reject")) outcome = AcknowledgeType.REJECT;
        if (words[0].equals("release")) outcome = AcknowledgeType.RELEASE;
        if (words[0].equals("release-to") && attempt < Integer.parseInt(words[1])) outcome = AcknowledgeType.RELEASE;
        tell("handled", ", \"worker\": " + number + ", \"partition\": " + record.partition() + ", \"offset\": "
                + record.offset() + ", \"attempt\": " + attempt + ", \"outcome\": \""
                + outcome.toString().toLowerCase() + "\"");
        consumer.acknowledge(record, outcome);
    }

    /** Waits for a part of the lock, unless the time of the record is over. */
    private boolean isHeld(ConsumerRecord<String, String> record, String seconds) {
        String place = record.partition() + ":" + record.offset();
        if (!ends.containsKey(place)) {
            ends.put(place, System.nanoTime() + (long) (1e9 * Double.parseDouble(seconds)));
            tell("holds", ", \"partition\": " + record.partition() + ", \"offset\": " + record.offset());
        }
        long left = (ends.get(place) - System.nanoTime()) / 1_000_000;
        if (left <= 0) return false;
        pause(Math.min(Long.parseLong(given.get("locks_ms")) / 3, left));
        return true;
    }

    private void commit() {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet())
            each.getValue().ifPresent(error -> tell("refused", ", \"text\": " + quoted(error.toString())));
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            given.put(parts[0], parts[1]);
        }
        List<Thread> workers = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(given.get("workers")); number++)
            workers.add(new Thread(new Worker(number)));
        workers.forEach(Thread::start);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine() && !lines.nextLine().strip().equals("leave")) {}
        ending = true;
        for (Thread worker : workers) worker.join();
        tell("left", "");
        System.exit(0);
    }
}
