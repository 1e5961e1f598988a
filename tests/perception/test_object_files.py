"""How slots read a frame: against slot attention, and against a plain loop."""

import pytest
import torch

from nps.perception.object_files import SchemaReader, SlotReader

READERS = pytest.mark.parametrize("reader", [SlotReader, SchemaReader])


def test_slot_attention_rounds_go_on_from_the_slots():
    torch.manual_seed(0)
    reader = SlotReader(4, 6, 5, first_iterations=3, iterations=2)
    features, noise = torch.randn(2, 9, 5), torch.randn(2, 4, 6)
    (inputs,) = reader.look_at(features[None])
    start = reader.begin(inputs, 4, noise)
    first = reader.read(inputs, start, first=True).slots
    two = reader.read(inputs, start, first=False).slots
    torch.testing.assert_close(two, reader(features, noise=noise))  # two rounds from the start
    torch.testing.assert_close(two, reader(features, slots=start))
    one_more, _ = reader.iterate(inputs, two, 1)
    torch.testing.assert_close(first, one_more)


def test_schemata_written_out():
    torch.manual_seed(1)
    reader = SchemaReader(4, 6, 5, schemata=3, key_dim=7).eval()
    with torch.no_grad():
        for p in reader.parameters():
            p.normal_()
    features, slots = torch.randn(2, 9, 5), torch.randn(2, 4, 6)
    ours = reader.read(reader.look_at(features[None])[0], slots, first=True).slots
    x = reader.norm_features(features)
    used = set()
    for b in range(2):
        scores = torch.stack([reader.key(x[b]) @ reader.query(h) * 7**-0.5 for h in slots[b]])
        share = scores.softmax(0) + 1e-8
        for m, h in enumerate(slots[b]):
            update = (share[m] / share[m].sum()) @ reader.value(x[b])
            states = [
                torch.nn.GRUCell.forward(schema, update[None], h[None])[0]
                for schema in reader.schemata
            ]
            wanted = [reader.read_key(h) @ reader.write_key(state) for state in states]
            chosen = max(range(3), key=lambda s: wanted[s])
            used.add(chosen)
            torch.testing.assert_close(ours[b, m], states[chosen], rtol=1e-4, atol=1e-5)
    assert len(used) > 1


@READERS
def test_slots_are_a_set_of_any_number(reader):
    torch.manual_seed(2)
    reader = reader(4, 6, 5).eval()
    (inputs,), noise = reader.look_at(torch.randn(1, 2, 9, 5)), torch.randn(2, 7, 6)
    order = torch.randperm(7)
    read = reader.read(inputs, reader.begin(inputs, 7, noise), first=True).slots
    again = reader.read(inputs, reader.begin(inputs, 7, noise[:, order]), first=True).slots
    torch.testing.assert_close(read[:, order], again)


def test_schemata_are_explored_in_training():
    torch.manual_seed(3)
    reader = SchemaReader(4, 6, 5, schemata=3)
    (inputs,), slots = reader.look_at(torch.randn(1, 2, 9, 5)), torch.randn(2, 4, 6)
    assert not torch.equal(*(reader.read(inputs, slots, first=False).slots for _ in range(2)))
    reader.eval()
    assert torch.equal(*(reader.read(inputs, slots, first=False).slots for _ in range(2)))


@READERS
def test_every_parameter_learns(reader):
    torch.manual_seed(4)
    reader = reader(4, 6, 5)
    frames = reader.look_at(torch.randn(2, 8, 9, 5))
    slots = reader.begin(frames[0], 4)
    for t, inputs in enumerate(frames):
        slots = reader.read(inputs, slots, first=t == 0).slots
    (slots * torch.randn_like(slots)).sum().backward()
    for name, parameter in reader.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
