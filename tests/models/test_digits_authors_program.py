"""The whole of the authors' program in plain torch, with our parameters: both train alike."""

import torch
from torch import nn
from torch.nn import functional as F

from nps.models.digits import DigitTransformation
from nps.models.digits_authors import AuthorsNPS, OperationMLP
from tests.perception.test_digits import ChannelsFirst

D, N, B = 100, 4, 12


class Norm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[1:])


class Program(nn.Module):
    """Encoder, rule network and decoder as one would write them down without our modules."""

    def __init__(self, model: DigitTransformation) -> None:
        super().__init__()
        first, second, third = (
            nn.Conv2d(c, d, 4, stride=2) for c, d in ((1, 16), (16, 32), (32, 64))
        )
        parts: list[nn.Module] = []
        for conv in (first, second, third):
            parts += [conv, nn.ELU(), Norm()]
        self.encoder = nn.Sequential(*parts)
        self.to_slot = nn.Linear(2304, D)
        self.operation = nn.Sequential(nn.Linear(N, 64), nn.ReLU(), nn.Linear(64, D))
        self.decoder = nn.Sequential(
            nn.Sigmoid(),
            Norm(),
            nn.Linear(D, 4096),
            nn.ReLU(),
            Norm(),
            nn.Unflatten(1, (8, 8, 64)),
            ChannelsFirst(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.ReplicationPad2d(2),
            nn.Conv2d(64, 32, 4),
            nn.ReLU(),
            Norm(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.ReplicationPad2d(1),
            nn.Conv2d(32, 16, 4),
            nn.ReLU(),
            Norm(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(16, 1, 3),
        )
        rules, select, bind = model.layer.rules, model.layer.select_slots, model.layer.bind_slots
        halves = rules.weight_in[:, :D]  # the other half of a rule's input is empty
        theirs = {
            "embedding": rules.embedding,
            "select_query": select.query.weight,
            "select_query_bias": select.query.bias,
            "select_key": select.key.weight,
            "select_key_bias": select.key.bias,
            "bind_query": bind.query.weight[0],
            "bind_query_bias": bind.query.bias[0],
            "bind_key": bind.key.weight,
            "bind_key_bias": bind.key.bias,
            "first": halves,
            "first_bias": rules.bias_in,
            "last": rules.weight_out,
            "last_bias": rules.bias_out,
        }
        for name, value in theirs.items():
            setattr(self, name, nn.Parameter(value.detach().clone()))
        pairs = [*zip((first, second, third), model.encoder.convolutions, strict=True)]
        pairs += [(self.to_slot, model.encoder.linear), (self.decoder[2], model.decoder.linear)]
        pairs += [(self.operation[i], model.operations.net[i]) for i in (0, 2)]
        ours = (*model.decoder.inner, model.decoder.last)
        pairs += [(self.decoder[i], conv) for i, conv in zip((9, 14, 18), ours, strict=True)]
        for plain, layer in pairs:
            plain.weight.data, plain.bias.data = layer.weight.data.clone(), layer.bias.data.clone()

    def forward(
        self, images: torch.Tensor, operation: torch.Tensor, gumbel: torch.Tensor
    ) -> torch.Tensor:
        maps = self.encoder(images[:, None]).permute(0, 2, 3, 1).flatten(1)
        image = F.layer_norm(F.elu(self.to_slot(maps)), (D,))
        slots = torch.stack([image, self.operation(F.one_hot(operation, N).float())], 1)
        of_pairs, of_slots = gumbel.split([2 * N, 2], -1)
        query = self.embedding @ self.select_query.T + self.select_query_bias
        scores = self.keys(slots, self.select_key, self.select_key_bias) @ query.T / 32**0.5
        rule = hard((scores.flatten(1) + of_pairs), 1.0).view(-1, 2, N).sum(1)
        asks = (rule @ self.embedding) @ self.bind_query + self.bind_query_bias
        fit = self.keys(slots, self.bind_key, self.bind_key_bias) @ asks[:, :, None] / 16**0.5
        slot = (hard(fit[..., 0] + of_slots, 0.5)[..., None] * slots).sum(1)
        hidden = (torch.einsum("bd,ndh->bnh", slot, self.first) + self.first_bias).relu()
        outputs = torch.einsum("bnh,nhd->bnd", hidden, self.last) + self.last_bias
        drawn: torch.Tensor = self.decoder((outputs * rule[..., None]).sum(1))
        return drawn.sigmoid().squeeze(1)

    def keys(self, slots: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.stack([slots[:, j] @ weight[j] + bias[j] for j in (0, 1)], 1)


def hard(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    soft = (scores / temperature).softmax(-1)
    return F.one_hot(scores.argmax(-1), scores.shape[-1]) - soft.detach() + soft


def test_three_steps_of_both_are_the_same():
    """Loss and norm of the gradient: BCE of grey levels there, of logits here; clip, Adam."""
    torch.manual_seed(0)
    layer = AuthorsNPS(D, N, rule_dim=6)
    model = DigitTransformation(layer, D, OperationMLP(N, D)).train()
    program = Program(model).train()
    assert sum(p.numel() for p in program.parameters()) == 846_865
    adams = [torch.optim.Adam(each.parameters(), 1e-4) for each in (model, program)]
    for _ in range(3):
        images, targets = torch.rand(2, B, 64, 64)
        operation, uniform = torch.randint(N, (B,)), torch.rand(B, 1, 2 * N + 2)
        logits = model(images, operation, noise=uniform)
        drawn = program(images, operation, -(-uniform[:, 0].log()).log())
        losses = (
            F.binary_cross_entropy_with_logits(logits, targets),
            nn.BCELoss()(drawn, targets),
        )
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        norms = []
        for each, adam, loss in zip((model, program), adams, losses, strict=True):
            adam.zero_grad()
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(each.parameters(), 1.0))
            adam.step()
        torch.testing.assert_close(*norms, rtol=1e-3, atol=1e-5)
