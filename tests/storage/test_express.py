"""Express messages in memory, against a model that is only a dictionary."""

import random

from qmnode.storage.express_messages import ExpressMemory


def test_it_is_a_sorted_dictionary_of_limited_size():
    dice = random.Random(7)
    memory, model = ExpressMemory(3000), {}
    refused = 0
    for step in range(20_000):
        lookup = dice.choice((step, dice.randrange(step + 1)))
        match dice.randrange(8):
            case 0 | 1 | 2 | 3:
                value = bytes(dice.randrange(1, 40))
                if memory.put(1, lookup, value):
                    model[lookup] = value
                else:
                    refused += 1
                    model.pop(lookup, None)
            case 4 | 5 if model:
                lookup = dice.choice((min(model), dice.choice(list(model))))
                assert memory.delete(1, lookup)
                del model[lookup]
            case 6:
                assert memory.delete(1, lookup) is (model.pop(lookup, None) is not None)
            case 7 if step % 50 == 0:
                stop = lookup + dice.randrange(100)
                memory.delete_range(1, lookup, stop)
                model = {one: value for one, value in model.items() if not lookup <= one < stop}
        first, last = sorted((dice.randrange(20_000), dice.randrange(20_000)))
        expected = sorted((one, value) for one, value in model.items() if first <= one <= last)
        assert memory.read(1, first, last, 50, 1 << 20) == expected[:50]
        assert memory.read_backwards(1, last, first, 50) == expected[::-1][:50]
        assert memory.get(1, lookup) == model.get(lookup)
        assert memory.used == sum(map(len, model.values())) <= 3000
    assert refused > 100


def test_reading_stops_at_a_size():
    memory = ExpressMemory(1000)
    for lookup in range(10):
        memory.put(1, lookup, bytes(10))
    assert [lookup for lookup, _ in memory.read(1, 2, 9, 100, 25)] == [2, 3, 4]


def test_what_is_gone_takes_no_memory():
    memory = ExpressMemory(1000)
    for lookup in range(100_000):
        memory.put(lookup % 7, lookup, b"value")
        memory.delete(lookup % 7, lookup)
    assert sum(len(queue.order) for queue in memory._queues.values()) < 7 * 80
