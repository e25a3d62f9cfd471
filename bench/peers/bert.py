"""BERT for pre-training in plain torch: the layers, names and losses of examples/models/bert.h, Hugging Face's keys.
LAMB as LambOptions have it, several tensors a kernel (torch._foreach_*): torch has none of its own.

    net = Bert(options("table")); loss = net.loss(batch)          # batch: the seven tensors of synthetic_text.h
    lamb = Lamb(decay_groups(net, 0.01), lr=4e-3, max_grad_norm=1.0)
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

LARGE = dict(vocabulary=30522, hidden=1024, layers=24, heads=16, inner=4096, positions=512, types=2, dropout=0.1,
             attention_dropout=0.1, norm_eps=1e-12, attention="fused")


def options(variant="table", **changes):
    """`table`: NVIDIA's; anything else: Hugging Face's."""
    table = variant == "table"
    return {**LARGE, "gelu": "tanh" if table else "none", "padding_idx": not table, **changes}


class Part(nn.Module):
    """There for its name's sake."""

    def __init__(part, **children):  # one child is called self
        super(Part, part).__init__()
        for name, child in children.items():
            part.add_module(name, child)


def norm(o):
    return nn.LayerNorm(o["hidden"], eps=o["norm_eps"])


class Layer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o, hidden = o, o["hidden"]
        self.attention = Part(self=Part(query=nn.Linear(hidden, hidden), key=nn.Linear(hidden, hidden),
                                        value=nn.Linear(hidden, hidden)),
                              output=Part(dense=nn.Linear(hidden, hidden), LayerNorm=norm(o)))
        self.intermediate = Part(dense=nn.Linear(hidden, o["inner"]))
        self.output = Part(dense=nn.Linear(o["inner"], hidden), LayerNorm=norm(o))

    def attend(self, x, penalty):
        part, heads = getattr(self.attention, "self"), self.o["heads"]
        query, key, value = (linear(x).view(*x.shape[:2], heads, -1).transpose(1, 2)
                             for linear in (part.query, part.key, part.value))
        if penalty is not None:
            penalty = penalty.to(query.dtype)
        dropout = self.o["attention_dropout"] if self.training else 0.0
        if self.o["attention"] == "fused":
            mixed = F.scaled_dot_product_attention(query, key, value, penalty, dropout)
        else:
            scores = torch.matmul(query / math.sqrt(query.shape[-1]), key.transpose(-1, -2))
            if penalty is not None:
                scores = scores + penalty
            mixed = torch.matmul(F.dropout(F.softmax(scores, -1), dropout, dropout > 0), value)
        return mixed.transpose(1, 2).reshape(x.shape)

    def forward(self, x, penalty):
        rate = self.o["dropout"]
        mixed = self.attention.output.dense(self.attend(x, penalty))
        mixed = self.attention.output.LayerNorm(F.dropout(mixed, rate, self.training) + x)
        wide = F.gelu(self.intermediate.dense(mixed), approximate=self.o["gelu"])
        return self.output.LayerNorm(F.dropout(self.output.dense(wide), rate, self.training) + mixed)


class Bert(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o, hidden = o, o["hidden"]
        words = nn.Embedding(o["vocabulary"], hidden, padding_idx=0 if o["padding_idx"] else None)
        self.bert = Part(
            embeddings=Part(word_embeddings=words, position_embeddings=nn.Embedding(o["positions"], hidden),
                            token_type_embeddings=nn.Embedding(o["types"], hidden), LayerNorm=norm(o)),
            encoder=Part(layer=nn.ModuleList(Layer(o) for _ in range(o["layers"]))),
            pooler=Part(dense=nn.Linear(hidden, hidden)))
        predictions = Part(transform=Part(dense=nn.Linear(hidden, hidden), LayerNorm=norm(o)))
        predictions.bias = nn.Parameter(torch.zeros(o["vocabulary"]))
        self.cls = Part(predictions=predictions, seq_relationship=nn.Linear(hidden, 2))

    def forward(self, ids, segments, mask, positions):
        embeddings, head = self.bert.embeddings, self.cls.predictions
        x = embeddings.word_embeddings(ids) + embeddings.token_type_embeddings(segments)
        x = x + embeddings.position_embeddings.weight[:ids.shape[1]]
        penalty = None if mask is None else (1 - mask)[:, None, None, :].to(x.dtype) * -10000
        x = F.dropout(embeddings.LayerNorm(x), self.o["dropout"], self.training)
        for layer in self.bert.encoder.layer:
            x = layer(x, penalty)
        starts = torch.arange(0, ids.numel(), ids.shape[1], device=ids.device)[:, None]
        gathered = x.reshape(ids.numel(), -1).index_select(0, (positions + starts).flatten())
        words = head.transform.LayerNorm(F.gelu(head.transform.dense(gathered), approximate=self.o["gelu"]))
        words = F.linear(words, embeddings.word_embeddings.weight, head.bias)
        return words, self.cls.seq_relationship(torch.tanh(self.bert.pooler.dense(x[:, 0])))

    def loss(self, batch):
        """input_ids, segment_ids, input_mask or None, masked_lm_positions, masked_lm_ids, masked_lm_weights or None,
        next_sentence_labels."""
        ids, segments, mask, positions, labels, weights, next_labels = batch
        words, following = self(ids, segments, mask, positions)
        labels = labels.flatten().clamp_min(-1)
        if weights is None:
            masked = F.cross_entropy(words.float() if words.dtype.itemsize < 4 else words, labels, ignore_index=-1)
        else:
            each = F.cross_entropy(words.float() if words.dtype.itemsize < 4 else words, labels, ignore_index=-1,
                                   reduction="none")
            masked = (each * weights.flatten()).sum() / (weights.sum() + 1e-5)
        return masked + F.cross_entropy(following.float() if following.dtype.itemsize < 4 else following, next_labels)


def decay_groups(net, weight_decay):
    """Weights of two dimensions decay, biases and norms do not."""
    decayed = [p for p in net.parameters() if p.dim() > 1]
    return [{"params": decayed, "weight_decay": weight_decay},
            {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, max_grad_norm=0.0,
                 adapt_all=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, adapt_all=adapt_all))
        self.max_grad_norm = max_grad_norm
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        used = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if self.max_grad_norm > 0:
            gradients = [p.grad for p in used]
            total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            torch._foreach_div_(gradients, (total / self.max_grad_norm).clamp_min(1))
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self.update(group, parameters, [p.grad for p in parameters])

    def update(self, group, parameters, gradients):
        for p in parameters:
            if not self.state[p]:
                self.state[p].update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        means = [self.state[p]["exp_avg"] for p in parameters]
        squares = [self.state[p]["exp_avg_sq"] for p in parameters]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, math.sqrt(1 - beta2 ** self.count))
        torch._foreach_add_(denominators, group["eps"])
        updates = torch._foreach_div(means, denominators)
        torch._foreach_div_(updates, 1 - beta1 ** self.count)
        if group["weight_decay"] != 0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["weight_decay"] != 0 or group["adapt_all"]:
            weights, lengths = (torch.stack(torch._foreach_norm(some)) for some in (parameters, updates))
            ratios = torch.where((weights > 0) & (lengths > 0), weights / lengths, 1.0)
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
