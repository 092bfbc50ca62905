"""The exercises of 03-keys: what growth moves, where a salted key is read, and a key for a feed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from confluent_kafka import Producer, consistent, murmur2

from kqlib import keys
from kqlib.kafka import reading
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop import games
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic

EVEN = 1000 // 8  # what each of eight partitions has of a day, if all have the same
TEN = ["ARS-CHE", "MCI-LIV", "MUN-TOT", "NEW-AVL", "EVE-WHU", "BHA-CRY", "FUL-BRE", "WOL-BOU", "NFO-LEE", "SUN-BUR"]


def into_old_ones(games: list, before: int, after: int) -> list:
    found = []
    for game in games:
        old, new = murmur2(game.encode(), before), murmur2(game.encode(), after)
        if new != old and new < before:
            found.append(game)
    return sorted(found)


def all_that_move(games: list, before: int, after: int) -> list:
    """You take every game that moves. Leave out those that move to a new partition."""
    return sorted(game for game in games if murmur2(game.encode(), before) != murmur2(game.encode(), after))


def into_new_ones(games: list, before: int, after: int) -> list:
    """You take the games that land in a new partition. The question is about those that move to an old one."""
    return sorted(game for game in games if murmur2(game.encode(), after) >= before)


def stays_or_moves(games: list, before: int, after: int) -> list:
    """Some of these games stay where they are. A game must also change its partition."""
    return sorted(game for game in games if murmur2(game.encode(), after) < before)


def with_the_other_hash(games: list, before: int, after: int) -> list:
    """This is CRC32, the default of librdkafka. The lab's clients use murmur2."""
    places = [(game, consistent(game.encode(), before), consistent(game.encode(), after)) for game in games]
    return sorted(game for game, old, new in places if old != new and new < before)


MOVING = Exercise(
    id="03.1",
    ask="a key that moves may land in an old partition: growth does not only fill the new ones",
    task="return the sorted list of the games that move to a partition which was there before",
    cases=[
        Case((TEN, 4, 6), ["EVE-WHU"], "of the four that move from 4 to 6, one lands in an old partition"),
        Case(
            (TEN, 4, 5),
            ["ARS-CHE", "EVE-WHU", "MUN-TOT", "NFO-LEE", "WOL-BOU"],
            "from 4 to 5 most of those that move land in an old one",
        ),
        Case((TEN, 4, 8), [], "doubling moves a key by exactly the old number, or not at all"),
        Case((TEN, 6, 6), [], "nothing moves when nothing grows"),
        Case(([], 1, 100), []),
    ],
    hints=(
        "Ask for the place of each game twice, once with `before` partitions and once with `after`.",
        "The partitions are numbered from 0, so the old ones are those below `before`. The game must move, and to one of them.",
    ),
    solution=into_old_ones,
    wrong=(all_that_move, into_new_ones, stays_or_moves, with_the_other_hash),
)


def to_read(game: str, salts: int, n: int) -> list:
    return sorted({murmur2(f"{game}#{salt}".encode(), n) for salt in range(salts)})


def one_each(game: str, salts: int, n: int) -> list:
    """A hash does not deal salted keys out in turn. Compute the partition of each."""
    return list(range(min(salts, n)))


def unsalted(game: str, salts: int, n: int) -> list:
    """This is the partition of the key without salt. Nothing is sent with that key."""
    return [murmur2(game.encode(), n)]


def with_doubles(game: str, salts: int, n: int) -> list:
    """Two salted keys may share a partition. List each partition once."""
    return sorted(murmur2(f"{game}#{salt}".encode(), n) for salt in range(salts))


def salted_with_the_other_hash(game: str, salts: int, n: int) -> list:
    """This is CRC32, the default of librdkafka. The lab's clients use murmur2."""
    return sorted({consistent(f"{game}#{salt}".encode(), n) for salt in range(salts)})


SALTED = Exercise(
    id="03.2",
    ask="a salted key is several keys, and each of them is hashed on its own",
    task="return the sorted list of the partitions that hold events of the game",
    cases=[
        Case(
            ("ARS-CHE", 6, 6),
            to_read("ARS-CHE", 6, 6),
            "six salts are six keys, and a hash does not deal them out evenly",
        ),
        Case(
            ("ARS-CHE", 1, 6),
            to_read("ARS-CHE", 1, 6),
            "with one salt the game is in one place, though not where it was unsalted",
        ),
        Case(("MCI-LIV", 3, 12), to_read("MCI-LIV", 3, 12)),
        Case(("LAL-BOS", 50, 4), [0, 1, 2, 3], "with many salts every partition has to be read"),
        Case(("LAL-BOS", 5, 1), [0]),
    ],
    hints=(
        "The keys are 'ARS-CHE#0', 'ARS-CHE#1', … Where is each of them?",
        "Two salts may share a partition: collect the places in a set, and sort it.",
    ),
    solution=to_read,
    wrong=(one_each, unsalted, with_doubles, salted_with_the_other_hash),
)


def game_and_customer(event: games.Event) -> str:
    return f"{event.game}/{event.customer}"


def the_game(event: games.Event) -> str:
    return event.game


def the_customer(event: games.Event) -> str:
    return event.customer


def team_and_customer(event: games.Event) -> str:
    return f"{event.team}/{event.customer}"


def never_the_same(event: games.Event) -> str:
    return f"{event.game}/{event.customer}/{event.minute}"


def probe(answer: Callable[[games.Event], keys.Key]) -> Iterator[Tried]:
    """Send a match day to a topic with 8 partitions: first the order, then how many events have the same key.

    The size of the largest key is judged, and not that of the fullest partition: two large feeds may share one by accident.
    """
    day = games.events(1000)
    chosen = [answer(event) for event in day]
    odd = next((key for key in chosen if not isinstance(key, str | bytes)), "text")
    yield Tried("a key from answer(event)", odd, "text", hint="A key is a text: join the parts with a '/'.")
    held = _sent(day, chosen)
    where: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number, events in held.items():
        for event in events:
            where[event.game, event.customer].add(number)
    split = sum(len(places) > 1 for places in where.values())
    why = "what one customer gets of one game lies in one partition"
    hint = "Your key has something besides the game and the customer. It splits a feed."
    yield Tried("feeds that lie in more than one partition", split, 0, why, hint)
    [(_, largest)] = Counter(chosen).most_common(1)
    most = f"{largest} of 1000" if largest > EVEN else f"at most {EVEN}"
    why = "no key alone has more than a partition's even share"
    hint = f"Your day has {len({*chosen})} different keys, and the largest is too large. Make the key finer."
    yield Tried("events with the same key", most, f"at most {EVEN}", why, hint)


def _sent(day: list[games.Event], chosen: list[keys.Key]) -> dict[int, list[games.Event]]:
    """Send these events with these keys to a real topic, and return what each of its partitions holds."""
    cluster = kafka()
    topic = new_topic(cluster, 8)
    producer = Producer(cluster.client())
    for number, key in enumerate(chosen):
        producer.produce(topic, str(number), key)
    producer.flush(30 * PATIENCE)
    parts = reading.records(cluster, topic)
    return {number: [day[int(record.value())] for record in records] for number, records in parts.items()}


FEED = Exercise(
    id="03.3",
    ask="the key is what has to stay in order, and nothing more",
    task="return the key of an event, as a text",
    seconds=60,
    probe=probe,
    hints=(
        "What has to stay in order? One game, as one customer gets it. Whatever has the same key stays together.",
        "A game alone is too hot, a customer alone too. Write both into the key, with something between them.",
    ),
    solution=game_and_customer,
    wrong=(the_game, the_customer, team_and_customer, never_the_same),
)
