import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Copies a topic to another in transactions, some of which it aborts and does again; values become upper case. */
public class JavaCopier {
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";
    private static final int ABORTED_OF = 8;

    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private final Random lot = new Random();

    private JavaCopier(String bootstrap, String input) {
        producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", "java-copier",
                "reconnect.backoff.max.ms", "500",
                "key.serializer", STRINGS + "Serializer",
                "value.serializer", STRINGS + "Serializer"));
        consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", "java-copier",
                "group.instance.id", "1",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "isolation.level", "read_committed",
                "reconnect.backoff.max.ms", "500",
                "key.deserializer", STRINGS + "Deserializer",
                "value.deserializer", STRINGS + "Deserializer"));
        producer.initTransactions();
        consumer.subscribe(List.of(input));
    }

    private void copy(ConsumerRecords<String, String> records, String output) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(output, record.key(), record.value().toUpperCase(Locale.ROOT)));
            offsets.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (lot.nextInt(ABORTED_OF) == 0) {
            producer.flush();
            throw new KafkaException("aborted at random");
        }
        producer.commitTransaction();
    }

    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) consumer.seekToBeginning(List.of(partition));
            else consumer.seek(partition, offset.offset());
        }
    }

    public static void main(String[] arguments) {
        JavaCopier copier = new JavaCopier(arguments[0], arguments[1]);
        while (true) {
            ConsumerRecords<String, String> records = copier.consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) continue;
            try {
                copier.copy(records, arguments[2]);
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
                throw error;
            } catch (KafkaException error) {
                copier.producer.abortTransaction();
                copier.rewind();
            }
        }
    }
}
