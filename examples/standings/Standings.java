import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/** League tables by Kafka Streams: {@code java Standings GAMES OUT STATE-DIRECTORY ID=SCHEMA-FILE…}. The last two schemas are the
 *  newest of an event and that of a row. All events of a league go to one partition; there each number counts once. */
public class Standings implements Processor<String, byte[], String, byte[]> {
    static final Map<Integer, Schema> SCHEMAS = new HashMap<>();
    static final String[] COUNTS = "played won drawn lost scored against difference points late".split(" ");
    static Schema event, standing;
    static int id; // of `standing`
    ProcessorContext<String, byte[]> context;
    KeyValueStore<String, String> facts; // league/number -> "late", or "in time"
    KeyValueStore<String, String> sides; // league/team/round/game -> scored, against, over, late
    KeyValueStore<String, byte[]> rows; // league/team -> the row that was written last

    static GenericRecord decode(byte[] value, Schema reader) {
        try {
            var bytes = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null);
            return new GenericDatumReader<GenericRecord>(SCHEMAS.get(ByteBuffer.wrap(value).getInt(1)), reader).read(null, bytes);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static byte[] encode(GenericRecord row) {
        var bytes = new ByteArrayOutputStream();
        bytes.writeBytes(ByteBuffer.allocate(5).putInt(1, id).array());
        try {
            new GenericDatumWriter<>(standing).write(row, EncoderFactory.get().directBinaryEncoder(bytes, null));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    static int[] ints(String text) {
        return Arrays.stream(text.split(" ")).mapToInt(Integer::parseInt).toArray();
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        facts = context.getStateStore("facts");
        sides = context.getStateStore("sides");
        rows = context.getStateStore("rows");
    }

    @Override
    public void process(Record<String, byte[]> record) {
        var fact = decode(record.value(), event);
        var late = record.timestamp() - (long) fact.get("at") > 3_600_000; // then it does not count
        var number = record.key() + "/" + fact.get("number");
        var known = facts.get(number);
        if (known != null && (late || known.equals("in time"))) return;
        facts.put(number, late ? "late" : "in time");
        var teams = fact.get("game").toString().split("-");
        for (var team : teams) {
            var key = "%s/%s/%06d/%s".formatted(record.key(), team, fact.get("round"), fact.get("game"));
            var side = ints(Optional.ofNullable(sides.get(key)).orElse("0 0 0 0"));
            var own = fact.get("team").toString().equals(team);
            side[own ? 0 : 1] += late ? 0 : (int) fact.get("points");
            side[2] |= !late && fact.get("kind").toString().equals("final") ? 1 : 0;
            side[3] += !own ? 0 : late ? 1 : known != null ? -1 : 0;
            sides.put(key, "%d %d %d %d".formatted(side[0], side[1], side[2], side[3]));
        }
        var table = new TreeMap<String, GenericRecord>(); // by league/team
        try (var all = rows.prefixScan(record.key() + "/", new StringSerializer())) {
            all.forEachRemaining(each -> table.put(each.key, decode(each.value, standing)));
        }
        for (var team : teams) {
            table.put(record.key() + "/" + team, row(record.key(), team));
        }
        var ranked = new ArrayList<>(table.values());
        for (var name : List.of("scored", "difference", "points")) { // a sort keeps the order of equals
            ranked.sort(Comparator.comparing(each -> -(int) each.get(name)));
        }
        table.forEach((key, each) -> {
            each.put("place", ranked.indexOf(each) + 1);
            var value = encode(each);
            if (!Arrays.equals(value, rows.get(key))) {
                rows.put(key, value);
                context.forward(record.withKey(each.get("team").toString()).withValue(value));
            }
        });
    }

    GenericRecord row(String league, String team) {
        var counts = new int[COUNTS.length];
        var results = new StringBuilder();
        try (var games = sides.prefixScan(league + "/" + team + "/", new StringSerializer())) {
            while (games.hasNext()) {
                var side = ints(games.next().value);
                counts[8] += side[3];
                if (side[2] == 1) {
                    var result = side[0] > side[1] ? 0 : side[0] == side[1] ? 1 : 2;
                    results.append("WDL".charAt(result));
                    counts[0]++;
                    counts[1 + result]++;
                    counts[4] += side[0];
                    counts[5] += side[1];
                }
            }
        }
        counts[6] = counts[4] - counts[5];
        counts[7] = (league.equals("football") ? 3 : 2) * counts[1] + counts[2];
        var row = new GenericRecordBuilder(standing).set("league", league).set("team", team).set("place", 0);
        for (int i = 0; i < counts.length; i++) {
            row.set(COUNTS[i], counts[i]);
        }
        return row.set("results", results.toString()).build();
    }

    public static void main(String[] arguments) throws IOException {
        for (var each : Arrays.asList(arguments).subList(3, arguments.length)) {
            event = standing;
            id = Integer.parseInt(each.split("=", 2)[0]);
            SCHEMAS.put(id, standing = new Schema.Parser().parse(new File(each.split("=", 2)[1])));
        }
        var settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("KQ_BOOTSTRAP"));
        settings.put("application.id", arguments[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", arguments[2]);
        settings.put("group.instance.id", arguments[1]); // a restart is the same member: no session has to end
        var builder = new StreamsBuilder();
        Serde<byte[]> bytes = Serdes.ByteArray();
        for (var name : List.of("facts", "sides", "rows")) {
            Serde<?> values = name.equals("rows") ? bytes : Serdes.String();
            builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), values));
        }
        builder.stream(arguments[0], Consumed.with(bytes, bytes))
                .selectKey((key, value) -> decode(value, event).get("league").toString())
                .repartition(Repartitioned.with(Serdes.String(), bytes).withName("league").withNumberOfPartitions(2))
                .process(Standings::new, "facts", "sides", "rows")
                .to(arguments[1], Produced.with(Serdes.String(), bytes));
        var streams = new KafkaStreams(builder.build(), settings); // an error that nothing handles ends it
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
