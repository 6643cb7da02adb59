import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** A transactional producer; talking.py says what it is told, and what it answers. */
public class Transactional {
    private final KafkaProducer<String, String> producer;

    private Transactional(Map<String, String> given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("transactional.id", given.get("id"));
        settings.put("transaction.timeout.ms", given.get("timeout_ms"));
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producer = new KafkaProducer<>(settings);
    }

    private void run(String[] words) {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[3]));
            case "flush" -> producer.flush();
            case "offset" -> producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(words[2], Integer.parseInt(words[3])),
                            new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "leave" -> System.exit(0);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static boolean isFenced(Throwable error) {
        if (error == null) return false;
        return error instanceof ProducerFencedException
                || error instanceof InvalidProducerEpochException
                || isFenced(error.getCause());
    }

    public static void main(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            given.put(parts[0], parts[1]);
        }
        Transactional program = new Transactional(given);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String answer = "done";
            try {
                program.run(lines.nextLine().split("\t"));
            } catch (RuntimeException error) {
                answer = (isFenced(error) ? "fenced " : "failed ") + error.toString().replace("\n", " ");
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }
}
