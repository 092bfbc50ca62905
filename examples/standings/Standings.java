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
public class Standings extends ContextualProcessor<String, byte[], String, byte[]> {
    static final Map<Integer, Schema> SCHEMAS = new HashMap<>();
    static final String[] COUNTS = "played won drawn lost scored against difference points late".split(" ");
    static Schema event, standing;
    static int id; // of `standing`

    static GenericRecord decode(byte[] value) {
        try {
            var bytes = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null);
            return new GenericDatumReader<GenericRecord>(SCHEMAS.get(ByteBuffer.wrap(value).getInt(1)), event).read(null, bytes);
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
    public void process(Record<String, byte[]> record) {
        KeyValueStore<String, String> facts = context().getStateStore("facts"); // league/number -> "late", or "in time"
        KeyValueStore<String, String> sides = context().getStateStore("sides"); // league/round/game/team -> its score
        var fact = decode(record.value());
        var late = record.timestamp() - (long) fact.get("at") > 3_600_000; // then it does not count
        var number = record.key() + "/" + fact.get("number");
        var known = facts.get(number);
        if (known != null && (late || known.equals("in time"))) return;
        facts.put(number, late ? "late" : "in time");
        var before = table(record.key(), sides);
        for (var team : fact.get("game").toString().split("-")) {
            var key = "%s/%06d/%s/%s".formatted(record.key(), fact.get("round"), fact.get("game"), team);
            var side = ints(Optional.ofNullable(sides.get(key)).orElse("0 0 0 0"));
            var own = fact.get("team").toString().equals(team);
            side[own ? 0 : 1] += late ? 0 : (int) fact.get("points");
            side[2] |= !late && fact.get("kind").toString().equals("final") ? 1 : 0;
            side[3] += !own ? 0 : late ? 1 : known != null ? -1 : 0;
            sides.put(key, "%d %d %d %d".formatted(side[0], side[1], side[2], side[3]));
        }
        for (var row : table(record.key(), sides)) {
            if (!before.contains(row)) context().forward(record.withKey(row.get("team").toString()).withValue(encode(row)));
        }
    }

    static List<GenericRecord> table(String league, KeyValueStore<String, String> sides) {
        var counts = new TreeMap<String, int[]>();
        var results = new HashMap<String, String>();
        try (var all = sides.prefixScan(league + "/", new StringSerializer())) {
            all.forEachRemaining(each -> {
                var side = ints(each.value);
                var team = each.key.split("/")[3];
                var count = counts.computeIfAbsent(team, any -> new int[COUNTS.length]);
                var result = side[0] > side[1] ? 0 : side[0] == side[1] ? 1 : 2;
                var points = result == 2 ? 0 : result == 1 ? 1 : league.equals("football") ? 3 : 2;
                var more = new int[] {1, 0, 0, 0, side[0], side[1], side[0] - side[1], points, 0};
                more[1 + result] = 1;
                Arrays.setAll(count, n -> count[n] + side[2] * more[n]); // nothing until the game is over
                count[8] += side[3];
                results.merge(team, side[2] == 1 ? "WDL".substring(result, result + 1) : "", String::concat);
            });
        }
        var ranked = new ArrayList<>(counts.keySet());
        for (var by : List.of(4, 6, 7)) { // scored, difference, points: a sort keeps the order of equals
            ranked.sort(Comparator.comparing(team -> -counts.get(team)[by]));
        }
        return ranked.stream().map(team -> {
            var row = new GenericData.Record(standing);
            row.put("league", league);
            row.put("team", team);
            row.put("place", ranked.indexOf(team) + 1);
            for (int n = 0; n < COUNTS.length; n++) row.put(COUNTS[n], counts.get(team)[n]);
            row.put("results", results.get(team));
            return (GenericRecord) row;
        }).toList();
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
        for (var name : List.of("facts", "sides")) {
            builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), Serdes.String()));
        }
        builder.stream(arguments[0], Consumed.with(bytes, bytes))
                .selectKey((key, value) -> decode(value).get("league").toString())
                .repartition(Repartitioned.with(Serdes.String(), bytes).withName("league").withNumberOfPartitions(2))
                .process(Standings::new, "facts", "sides")
                .to(arguments[1], Produced.with(Serdes.String(), bytes));
        var streams = new KafkaStreams(builder.build(), settings); // an error that nothing handles ends it
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
