"""The exercises of 03-keys: what growth moves, where a salted key is read, and a key for a feed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from confluent_kafka import Producer, consistent, murmur2

from kqlib import keys
from kqlib.kafka import reading
from kqlib.workshop import games
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic

TEN = ["ARS-CHE", "MCI-LIV", "MUN-TOT", "NEW-AVL", "EVE-WHU", "BHA-CRY", "FUL-BRE", "WOL-BOU", "NFO-LEE", "SUN-BUR"]


def moving(games: list, before: int, after: int) -> list:
    return sorted(game for game in games if murmur2(game.encode(), before) != murmur2(game.encode(), after))


def only_into_new_ones(games: list, before: int, after: int) -> list:
    """You take the games that land in a new partition. A game may also move to an old one: EVE-WHU goes from p3 to p1."""
    return sorted(game for game in games if murmur2(game.encode(), after) >= before)


def with_the_other_hash(games: list, before: int, after: int) -> list:
    """This is CRC32, the default of librdkafka. The lab's clients use murmur2."""
    return sorted(game for game in games if consistent(game.encode(), before) != consistent(game.encode(), after))


def everything(games: list, before: int, after: int) -> list:
    """Not every game moves: for some the remainder stays the same."""
    return sorted(games) if before != after else []


MOVING = Exercise(
    id="03.1",
    ask="a key moves when its partition among `after` is not its partition among `before`",
    task="return the sorted list of the games that get another partition",
    cases=[
        Case((TEN, 4, 6), ["BHA-CRY", "EVE-WHU", "MUN-TOT", "WOL-BOU"], "four of ten move from 4 to 6"),
        Case(
            (TEN, 4, 8),
            ["ARS-CHE", "FUL-BRE", "NEW-AVL"],
            "doubling moves a key by exactly the old number, or not at all",
        ),
        Case((["EVE-WHU"], 4, 6), ["EVE-WHU"], "from p3 to p1: a key may move into a partition that was there before"),
        Case((TEN, 6, 6), [], "nothing moves when nothing grows"),
        Case(([], 1, 100), []),
    ],
    hints=(
        "Ask for the place of each game twice, once with `before` partitions and once with `after`.",
        "murmur2(game.encode(), before) != murmur2(game.encode(), after). Not every key that moves lands in a new partition.",
    ),
    solution=moving,
    wrong=(only_into_new_ones, with_the_other_hash, everything),
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
    wrong=(one_each, unsalted, with_doubles),
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
    """Send a match day to a topic with 8 partitions: first the order, then how full the fullest is."""
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
    fullest = max(map(len, held.values()))
    most = f"{fullest} of 1000" if fullest > 250 else "at most 250"
    why = "no partition has more than twice its even share"
    hint = f"Your day has {len({*chosen})} different keys, and the largest is too large. Make the key finer."
    yield Tried("events in the fullest of 8 partitions", most, "at most 250", why, hint)


def _sent(day: list[games.Event], chosen: list[keys.Key]) -> dict[int, list[games.Event]]:
    """Send these events with these keys to a real topic, and return what each of its partitions holds."""
    cluster = kafka()
    topic = new_topic(cluster, 8)
    producer = Producer(cluster.client())
    for number, key in enumerate(chosen):
        producer.produce(topic, str(number), key)
    producer.flush(30)
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
