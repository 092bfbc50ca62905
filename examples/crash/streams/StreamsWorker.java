import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Reads a topic, works for 1 ms on each value, writes a result: `java StreamsWorker at_least_once`, or `exactly_once_v2`. */
public class StreamsWorker {
    static String work(String value) {
        try {
            Thread.sleep(1);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        return "done " + value;
    }

    public static void main(String[] arguments) throws InterruptedException {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("KQ_BOOTSTRAP"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("KQ_GROUP"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);

        var builder = new StreamsBuilder();
        builder.<byte[], String>stream(System.getenv("KQ_TOPIC"))
                .mapValues(StreamsWorker::work)
                .to(System.getenv("KQ_RESULTS"));

        var streams = new KafkaStreams(builder.build(), settings);
        var ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        ended.await();
        System.exit(1);
    }
}
