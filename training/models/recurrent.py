"""The recurrent systems (RNNenc, RNNsearch, Luong et al.), their layers, and the scores of their attention."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.training.model_settings import LuongSettings, RecurrentSettings, RnnencSettings, RnnsearchSettings
from lingon.training.models.interface import AttentionModel, TranslationModel
from lingon.training.models.layers import Dropout

# Recurrent layers: GRU and LSTM, one step at a time or a whole sequence at once, and stacks of them.
# Rows of a batch have different lengths. A sequence is not packed: a mask keeps the state of a row from its last token
# on, and a backward direction reads each row from its own last token.

RecurrentState: TypeAlias = tuple[Tensor, ...]
"""The state of a layer: the hidden state (rows, dim), and for an LSTM also its cell (rows, dim)."""


class Recurrence(nn.Module, ABC):
    """One layer in one direction. `step` is its definition; `forward` computes the same with a kernel of torch."""

    tensors: int  # of a state

    def __init__(self, kernel: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.kernel = kernel
        self.dim = kernel.hidden_size

    def start(self, rows: int) -> RecurrentState:
        """Return the state before the first input: zeros."""
        zeros = self._weight("weight_hh_l0").new_zeros(rows, self.dim)
        return (zeros,) * self.tensors

    def project(self, inputs: Tensor) -> Tensor:
        """Return what the inputs (..., input_dim) add to the gates: (..., gates * dim)."""
        return functional.linear(inputs, self._weight("weight_ih_l0"), self._weight("bias_ih_l0"))

    def step(self, inputs: Tensor, state: RecurrentState) -> RecurrentState:
        """Return the state after one more input (rows, input_dim)."""
        return self._step(self.project(inputs), state)

    def _step(self, projected: Tensor, state: RecurrentState) -> RecurrentState:
        recurrent = functional.linear(state[0], self._weight("weight_hh_l0"), self._weight("bias_hh_l0"))
        return self.update(projected, recurrent, state)

    def _weight(self, name: str) -> Tensor:
        """Return a weight of the kernel by the name that torch gives it."""
        return cast("Tensor", getattr(self.kernel, name))

    @abstractmethod
    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        """Return the new state.

        projected: W x + b, from `project`
        recurrent: U h + b, of the same shape (rows, gates * dim)
        """

    @abstractmethod
    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        """Return the hidden state after every input (rows, length, dim); inputs (rows, length, input_dim)."""

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        """Return the hidden state after every input (batch, length, dim), and the state after each row's last token.

        inputs: (batch, length, input_dim)
        lengths: (batch)

        The hidden states beyond a row's length are finite and mean nothing.
        """
        return self.read_by_steps(inputs, lengths)

    def read_by_steps(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        """Return what `read` returns. The hidden states beyond a row's length are that of its last token."""
        state, outputs = self.start(inputs.size(0)), []
        within = torch.arange(inputs.size(1), device=lengths.device)[:, None, None] < lengths[None, :, None]
        for projected, real in zip(self.project(inputs).unbind(1), within, strict=True):
            after = self._step(projected, state)
            state = tuple(torch.where(real, new, old) for new, old in zip(after, state, strict=True))
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state


class GatedUnit(Recurrence):
    """The GRU of Cho et al. (2014), equations 5 to 8, with the reset gate after the product, as kernels have it.

    r = sigmoid(W_r x + U_r h), z = sigmoid(W_z x + U_z h), n = tanh(W_n x + r * (U_n h)), h' = (1 - z) * n + z * h

    Every product has a bias. The paper has tanh(W_n x + U_n (r * h)), and z instead of 1 - z.
    """

    tensors = 1

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__(nn.GRU(input_dim, dim, batch_first=True))

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        reset_input, keep_input, new_input = projected.chunk(3, dim=-1)
        reset_state, keep_state, new_state = recurrent.chunk(3, dim=-1)
        reset, keep = torch.sigmoid(reset_input + reset_state), torch.sigmoid(keep_input + keep_state)
        new = torch.tanh(new_input + reset * new_state)
        return ((1 - keep) * new + keep * state[0],)

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        return cast("Tensor", self.kernel(inputs, start[0][None])[0])

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        outputs = self(inputs, self.start(inputs.size(0)))
        return outputs, (outputs[torch.arange(inputs.size(0), device=lengths.device), lengths - 1],)


class LongShortTermMemory(Recurrence):
    """The LSTM of Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al. (2000).

    i, f, o = sigmoid(W x + U h) of their own, g = tanh(W_g x + U_g h), c' = f * c + i * g, h' = o * tanh(c')

    Every product has a bias. `read` goes step by step, because the kernel returns the cell only at the padded end. On a
    CPU that takes as long as the kernel.
    """

    tensors = 2

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__(nn.LSTM(input_dim, dim, batch_first=True))
        with torch.no_grad():  # Jozefowicz et al. (2015), section 2.2: the forget gate begins open
            self._weight("bias_ih_l0")[dim : 2 * dim] += 1.0

    def update(self, projected: Tensor, recurrent: Tensor, state: RecurrentState) -> RecurrentState:
        enter, forget, new, leave = (projected + recurrent).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell

    def forward(self, inputs: Tensor, start: RecurrentState) -> Tensor:
        hidden, cell = (each[None].float() for each in start)
        with torch.autocast("cpu", enabled=False):  # on a CPU this kernel has no half precision
            return cast("Tensor", self.kernel(inputs.float(), (hidden, cell))[0])


def recurrence(settings: RecurrentSettings, input_dim: int, dim: int) -> Recurrence:
    """Return a layer of settings.cell."""
    return LongShortTermMemory(input_dim, dim) if settings.cell == "lstm" else GatedUnit(input_dim, dim)


def reverse_rows(values: Tensor, lengths: Tensor, kept: int = 0) -> Tensor:
    """Return values (batch, length, ...) with the first `length - kept` positions of each row in reverse order.

    lengths: (batch). The other positions stay where they are
    """
    positions = torch.arange(values.size(1), device=lengths.device)[None]
    turned = (lengths - kept)[:, None]
    order = torch.where(positions < turned, turned - 1 - positions, positions)
    return values[torch.arange(values.size(0), device=lengths.device)[:, None], order]


class Stack(nn.Module):
    """Layers in one direction. Each reads the hidden states of the one below, with dropout (Zaremba et al., 2014)."""

    def __init__(self, settings: RecurrentSettings, layers: int, input_dim: int) -> None:
        super().__init__()
        sizes = [input_dim] + [settings.dim] * (layers - 1)
        stacked = nn.ModuleList(recurrence(settings, size, settings.dim) for size in sizes)
        self.layers = cast("Sequence[Recurrence]", stacked)
        self.dropout = Dropout(settings.dropout)

    def read(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, list[RecurrentState]]:
        """Return the hidden states of the last layer (batch, length, dim), and the last state of every layer."""
        last: list[RecurrentState] = []
        for index, layer in enumerate(self.layers):
            inputs, state = layer.read(self.dropout(inputs) if index else inputs, lengths)
            last.append(state)
        return inputs, last

    def forward(self, inputs: Tensor, start: Sequence[RecurrentState]) -> Tensor:
        """Return the hidden states of the last layer (rows, length, dim), for inputs (rows, length, input_dim)."""
        for index, (layer, state) in enumerate(zip(self.layers, start, strict=True)):
            inputs = layer(self.dropout(inputs) if index else inputs, state)
        return inputs

    def step(self, inputs: Tensor, past: Sequence[RecurrentState]) -> list[RecurrentState]:
        """Return the state of every layer after one more input (rows, input_dim)."""
        present: list[RecurrentState] = []
        for index, (layer, state) in enumerate(zip(self.layers, past, strict=True)):
            present.append(layer.step(self.dropout(inputs) if index else inputs, state))
            inputs = present[-1][0]
        return present


class PieceEmbedding(nn.Module):
    """Dropout(sqrt(embedding_dim) * piece): the factor gives the inputs of a cell about the variance 1."""

    def __init__(self, settings: RecurrentSettings, vocab: int) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.embedding_dim)
        self.pieces = nn.Embedding(vocab, settings.embedding_dim)
        nn.init.normal_(self.pieces.weight, std=settings.embedding_dim**-0.5)
        self.dropout = Dropout(settings.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return (..., embedding_dim) for ids (...)."""
        return self.dropout(self.pieces(ids) * self.scale)  # type: ignore[no-any-return]


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """Return a product with the initial weights of Glorot and Bengio (2010), and a bias of zeros if any."""
    made = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(made.weight)
    if bias:
        nn.init.zeros_(made.bias)
    return made


# The scores of attention: how well a state s of the decoder matches an annotation h of the source.
# `prepare` computes once what depends on the annotations alone. It is part of the memory of a system.


class Score(nn.Module, ABC):
    """A score of each state with each annotation."""

    def prepare(self, annotations: Tensor) -> Tensor:
        """Return the keys (batch, source_length, key_dim) of annotations (batch, source_length, annotation_dim)."""
        return annotations

    @abstractmethod
    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """Return scores (rows, target_length, source_length).

        states: (rows, target_length, dim)
        keys: (rows, source_length, key_dim), from `prepare`
        """


class Dot(Score):
    """s^T h: Luong et al. (2015), equation 8."""

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2)


class ScaledDot(Score):
    """s^T h / sqrt(dim): Vaswani et al. (2017), equation 1."""

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2) / math.sqrt(states.size(-1))


class Content(Score):
    """b s^T h / (|s| |h|): the cosine, Graves et al. (2014), equations 5 and 6.

    The key strength b is one learned number, which begins at 1. The paper's controller emits one at every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.ones(()))

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.normalize(annotations, dim=-1)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return self.strength * (functional.normalize(states, dim=-1) @ keys.transpose(1, 2))


class Additive(Score):
    """w^T tanh(W1 s + W2 h): Bahdanau et al. (2015), appendix A.1.2."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.of_state = linear(dim, attention_dim)
        self.of_annotation = linear(annotation_dim, attention_dim)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.of_annotation(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.of_state(states)[:, :, None] + keys[:, None])
        return self.weight(hidden)[..., 0]  # type: ignore[no-any-return]


class General(Score):
    """s^T W h: Luong et al. (2015), equation 8."""

    def __init__(self, dim: int, annotation_dim: int) -> None:
        super().__init__()
        self.product = linear(annotation_dim, dim)

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.product(annotations)  # type: ignore[no-any-return]

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        return states @ keys.transpose(1, 2)


class Concat(Score):
    """v^T tanh(W [s; h]): Luong et al. (2015), equation 8. It is Additive with W1 and W2 in one matrix."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.product = linear(dim + annotation_dim, attention_dim)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.linear(annotations, self.product.weight[:, self.dim :])

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(functional.linear(states, self.product.weight[:, : self.dim])[:, :, None] + keys[:, None])
        return self.weight(hidden)[..., 0]  # type: ignore[no-any-return]


class Perceptron(Score):
    """MLP(s, h) = v^T tanh(W2 tanh(W1 [s; h] + b1) + b2): a perceptron with two hidden layers of attention_dim."""

    def __init__(self, dim: int, annotation_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.first = linear(dim + annotation_dim, attention_dim, bias=True)
        self.second = linear(attention_dim, attention_dim, bias=True)
        self.weight = linear(attention_dim, 1)

    def prepare(self, annotations: Tensor) -> Tensor:
        return functional.linear(annotations, self.first.weight[:, self.dim :], self.first.bias)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        first = torch.tanh(functional.linear(states, self.first.weight[:, : self.dim])[:, :, None] + keys[:, None])
        return self.weight(torch.tanh(self.second(first)))[..., 0]  # type: ignore[no-any-return]


def make_score(name: str, dim: int, annotation_dim: int, attention_dim: int) -> Score:
    """Return a score by its name in the settings.

    dim: of a state of the decoder. Dot, scaled-dot and content need annotation_dim = dim
    attention_dim: of the hidden layers of additive, concat and mlp
    """
    match name:
        case "dot":
            return Dot()
        case "scaled-dot":
            return ScaledDot()
        case "content":
            return Content()
        case "additive":
            return Additive(dim, annotation_dim, attention_dim)
        case "general":
            return General(dim, annotation_dim)
        case "concat":
            return Concat(dim, annotation_dim, attention_dim)
    assert name == "mlp", name
    return Perceptron(dim, annotation_dim, attention_dim)


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Return weights (rows, target_length, source_length) that sum to 1. What is not visible has exactly 0.

    visible: (rows, 1 or target_length, source_length), True at one position of each row at least
    """
    return scores.float().masked_fill(~visible, -math.inf).softmax(dim=-1)


def real_tokens(lengths: Tensor, longest: int) -> Tensor:
    """Return a mask (batch, 1, longest), True at the positions before each length; lengths (batch)."""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[:, None]


class RnnencMemory(NamedTuple):
    """What the decoder gets of a batch of sources.

    last: the state of every encoder layer after the last token, (batch, dim) each
    """

    last: list[RecurrentState]


class Rnnenc(TranslationModel[RnnencMemory, list[RecurrentState]]):
    """RNNenc: an encoder and a decoder without attention (Sutskever et al., 2014; Cho et al., 2014).

    The encoder reads the source x_1 .. x_S, the decoder begins with the encoder's last state and reads the target:

        h_i = f(h_{i-1}, x_i),  s_0 = h_S,  s_t = g(s_{t-1}, y_{t-1}),  p(y_t) = softmax(W s_t)

    (Sutskever et al., section 2). Each decoder layer begins with the last state of its encoder layer. The last state is
    all that the decoder has of the source. Cho et al. (equation 3) also show it to the decoder at every step, and
    transform it before (appendix A.1.2). These two are left out. The past is the state of every decoder layer.
    """

    settings: RnnencSettings

    def __init__(self, settings: RnnencSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Stack(settings, settings.layers, settings.embedding_dim)
        self.decoder = Stack(settings, settings.layers, settings.embedding_dim)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> RnnencMemory:
        if self.settings.reverse_source:  # Sutskever et al., section 3.3; EOS stays last
            source_ids = reverse_rows(source_ids, source_lengths, kept=1)
        _, last = self.encoder.read(self.source_embedding(source_ids), source_lengths)
        return RnnencMemory(last)

    def decode(self, target_ids: Tensor, memory: RnnencMemory) -> Tensor:
        states = self.decoder(self.target_embedding(target_ids), memory.last)
        return self.output(self.dropout(states))  # type: ignore[no-any-return]

    def start(self, memory: RnnencMemory) -> list[RecurrentState]:
        return memory.last

    def decode_step(
        self, token_ids: Tensor, past: list[RecurrentState], memory: RnnencMemory
    ) -> tuple[Tensor, list[RecurrentState]]:
        present = self.decoder.step(self.target_embedding(token_ids), past)
        return self.output(self.dropout(present[-1][0])), present


class RnnsearchMemory(NamedTuple):
    """What the decoder reads of a batch of sources.

    annotations: (batch, source_length, 2 * encoder_dim)
    keys: (batch, source_length, key_dim), what the score makes of the annotations
    visible: (batch, 1, source_length), True at source tokens, False at padding
    start: the state before the first target token, (batch, dim) each
    """

    annotations: Tensor
    keys: Tensor
    visible: Tensor
    start: RecurrentState


class Bidirectional(nn.Module):
    """One layer that reads each row from its first token on, and one that reads it from its own last token back."""

    def __init__(self, settings: RnnsearchSettings) -> None:
        super().__init__()
        self.ahead = recurrence(settings, settings.embedding_dim, settings.encoder_dim)
        self.back = recurrence(settings, settings.embedding_dim, settings.encoder_dim)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of both directions (batch, source_length, encoder_dim).

        embedded: (batch, source_length, embedding_dim)
        lengths: (batch)
        """
        rows = embedded.size(0)
        back = self.back(reverse_rows(embedded, lengths), self.back.start(rows))
        return self.ahead(embedded, self.ahead.start(rows)), reverse_rows(back, lengths)


class DeepOutput(nn.Module):
    """Maxout over U s_t + V y_{t-1} + C c_t; appendix A.2.2, and Goodfellow et al. (2013)."""

    def __init__(self, settings: RnnsearchSettings) -> None:
        super().__init__()
        self.of_state = linear(settings.dim, 2 * settings.output_dim, bias=True)
        self.of_token = linear(settings.embedding_dim, 2 * settings.output_dim)
        self.of_context = linear(2 * settings.encoder_dim, 2 * settings.output_dim)

    def forward(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        """Return (..., output_dim).

        state: (..., dim)
        token: (..., embedding_dim)
        context: (..., 2 * encoder_dim)
        """
        summed = self.of_state(state) + self.of_token(token) + self.of_context(context)
        return summed.unflatten(-1, (-1, 2)).amax(dim=-1)  # type: ignore[no-any-return]


class Rnnsearch(AttentionModel[RnnsearchMemory, RecurrentState]):
    """RNNsearch: attention to every state of a bidirectional encoder (Bahdanau et al., 2015).

        h_i = [forward h_i; backward h_i]                      the annotations, section 3.2
        s_0 = tanh(W_s backward h_1)                           appendix A.2.2
        e_ti = score(s_{t-1}, h_i), alpha_t = softmax(e_t)     equation 6
        c_t = sum over i of alpha_ti h_i                       equation 5
        s_t = f(s_{t-1}, y_{t-1}, c_t)                         section 3.1. F reads [y_{t-1}; c_t]
        u_t = U s_t + V y_{t-1} + C c_t                        appendix A.2.2, of width 2 * embedding_dim
        m_t = [max(u_t,2j-1, u_t,2j)] over all j               maxout
        p(y_t) = softmax(W_o m_t)

    u_t has s_t, as equation 4 says. The appendix has s_{t-1}. An LSTM begins with a cell that is computed as s_0 is.
    The past is the decoder's state.
    """

    settings: RnnsearchSettings

    def __init__(self, settings: RnnsearchSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        annotation_dim = 2 * settings.encoder_dim
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Bidirectional(settings)
        self.decoder = recurrence(settings, settings.embedding_dim + annotation_dim, settings.dim)
        self.first_state = linear(settings.encoder_dim, self.decoder.tensors * settings.dim, bias=True)
        self.score = make_score(settings.score, settings.dim, annotation_dim, settings.attention_dim)
        self.deep_output = DeepOutput(settings)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> RnnsearchMemory:
        ahead, back = self.encoder(self.source_embedding(source_ids), source_lengths)
        annotations = torch.cat([ahead, back], dim=-1)
        start = torch.tanh(self.first_state(back[:, 0])).chunk(self.decoder.tensors, dim=-1)
        visible = real_tokens(source_lengths, source_ids.size(1))
        return RnnsearchMemory(annotations, self.score.prepare(annotations), visible, start)

    def decode(self, target_ids: Tensor, memory: RnnsearchMemory) -> Tensor:
        return self.decode_with_attention(target_ids, memory)[0]

    def decode_with_attention(self, target_ids: Tensor, memory: RnnsearchMemory) -> tuple[Tensor, Tensor]:
        tokens, state = self.target_embedding(target_ids), memory.start
        steps: list[tuple[Tensor, Tensor, Tensor]] = []
        for token in tokens.unbind(1):
            weights, context = self.attend(state, memory)
            state = self.decoder.step(torch.cat([token, context], dim=-1), state)
            steps.append((state[0], context, weights))
        states, contexts, weights = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return self._logits(states, tokens, contexts), weights[:, None, None]

    def start(self, memory: RnnsearchMemory) -> RecurrentState:
        return memory.start

    def decode_step(
        self, token_ids: Tensor, past: RecurrentState, memory: RnnsearchMemory
    ) -> tuple[Tensor, RecurrentState]:
        token = self.target_embedding(token_ids)
        _, context = self.attend(past, memory)
        present = self.decoder.step(torch.cat([token, context], dim=-1), past)
        return self._logits(present[0], token, context), present

    def attend(self, state: RecurrentState, memory: RnnsearchMemory) -> tuple[Tensor, Tensor]:
        """Return the weights (rows, source_length) and the context (rows, 2 * encoder_dim); equations 5 and 6."""
        weights = masked_softmax(self.score(state[0][:, None], memory.keys), memory.visible)
        return weights[:, 0], (weights @ memory.annotations)[:, 0]

    def _logits(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        return self.output(self.dropout(self.deep_output(state, token, context)))  # type: ignore[no-any-return]


class LuongMemory(NamedTuple):
    """What the decoder reads of a batch of sources.

    annotations: (batch, source_length, dim)
    keys: (batch, source_length, key_dim), what the score makes of the annotations
    visible: (batch, 1, source_length), True at source tokens, False at padding
    last: the state of every encoder layer after the last token, (batch, dim) each
    """

    annotations: Tensor
    keys: Tensor
    visible: Tensor
    last: list[RecurrentState]


class LuongPast(NamedTuple):
    """What the decoder keeps of each row.

    layers: the state of every layer, (rows, dim) each
    attentional: (rows, dim), the last attentional state
    steps: (rows), the number of tokens so far
    """

    layers: list[RecurrentState]
    attentional: Tensor
    steps: Tensor


class Window(nn.Module):
    """The whole source: global attention."""

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        """Return weights (rows, target_length, source_length).

        scores: (rows, target_length, source_length)
        states: (rows, target_length, dim)
        steps: (rows, target_length), the number of target tokens before each
        visible: (rows, 1, source_length)
        """
        return masked_softmax(scores, visible)


class MonotonicWindow(Window):
    """The positions around p_t = t."""

    def __init__(self, settings: LuongSettings) -> None:
        super().__init__()
        self.reach = settings.window

    def centre(self, states: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        """Return p_t (rows, target_length); lengths (rows, 1) of the sources."""
        return torch.minimum(steps, lengths - 1).float()

    def distance(self, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        """Return j - p_t (rows, target_length, source_length)."""
        positions = torch.arange(visible.size(-1), device=visible.device)
        return positions - self.centre(states, steps, visible.sum(-1))[..., None]

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        distance = self.distance(states, steps, visible)
        return masked_softmax(scores, visible & (distance.abs() <= self.reach))


class PredictiveWindow(MonotonicWindow):
    """The positions around a p_t that the state predicts, weighted by a Gaussian."""

    def __init__(self, settings: LuongSettings) -> None:
        super().__init__(settings)
        self.inner = linear(settings.dim, settings.dim)
        self.outer = linear(settings.dim, 1)

    def centre(self, states: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        share = torch.sigmoid(self.outer(torch.tanh(self.inner(states)))[..., 0].float())
        return lengths * share

    def forward(self, scores: Tensor, states: Tensor, steps: Tensor, visible: Tensor) -> Tensor:
        distance = self.distance(states, steps, visible)
        weights = masked_softmax(scores, visible & (distance.abs() <= self.reach))
        sigma = self.reach / 2
        return weights * torch.exp(-(distance**2) / (2 * sigma**2))


def window(settings: LuongSettings) -> Window:
    """Return the window of settings.alignment."""
    match settings.alignment:
        case "local-monotonic":
            return MonotonicWindow(settings)
        case "local-predictive":
            return PredictiveWindow(settings)
    return Window()


class Luong(AttentionModel[LuongMemory, LuongPast]):
    """The global and the local attention of Luong et al. (2015): attention after the state, and input feeding.

        s_t = f(s_{t-1}, [y_{t-1}; a_{t-1}])       a stack of layers; a_{t-1} only with input feeding, section 3.3
        alpha_t(j) = softmax of score(s_t, h_j)    equation 7; over all source tokens, or over those of the window
        c_t = sum over j of alpha_t(j) h_j
        a_t = tanh(W_c [c_t; s_t])                 equation 5, the attentional state
        p(y_t) = softmax(W_s a_t)                  equation 6

    h and s are the states of the last layers. Every decoder layer begins with the last state of its encoder layer, and
    a_0 = 0. Local attention, section 3.2, sees the source positions j, counted from 0, with |j - p_t| <= D:

        local-monotonic:   p_t = t                                       the last source token, if the target is longer
        local-predictive:  p_t = S sigmoid(v_p^T tanh(W_p s_t))          equation 9. S is the number of source tokens
                           alpha_t(j) exp(-(j - p_t)^2 / (2 sigma^2))    equation 10, sigma = D / 2, not normalised
    """

    settings: LuongSettings

    def __init__(self, settings: LuongSettings, source_vocab: int, target_vocab: int) -> None:
        super().__init__(settings, target_vocab)
        self.source_embedding = PieceEmbedding(settings, source_vocab)
        self.target_embedding = PieceEmbedding(settings, target_vocab)
        self.encoder = Stack(settings, settings.layers, settings.embedding_dim)
        fed = settings.dim if settings.input_feeding else 0
        self.decoder = Stack(settings, settings.layers, settings.embedding_dim + fed)
        self.score = make_score(settings.score, settings.dim, settings.dim, settings.attention_dim)
        self.window = window(settings)
        self.combine = linear(2 * settings.dim, settings.dim)
        self.dropout = Dropout(settings.dropout)
        self.output = linear(settings.output_dim, target_vocab)
        self._tie(self.source_embedding.pieces, self.target_embedding.pieces)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> LuongMemory:
        annotations, last = self.encoder.read(self.source_embedding(source_ids), source_lengths)
        visible = real_tokens(source_lengths, source_ids.size(1))
        return LuongMemory(annotations, self.score.prepare(annotations), visible, last)

    def decode(self, target_ids: Tensor, memory: LuongMemory) -> Tensor:
        return self.decode_with_attention(target_ids, memory)[0]

    def decode_with_attention(self, target_ids: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        tokens = self.target_embedding(target_ids)
        if self.settings.input_feeding:
            attentional, weights = self._decode_by_steps(tokens, memory)
        else:  # no state depends on attention, so that one pass computes the states of all steps
            steps = torch.arange(target_ids.size(1), device=target_ids.device).expand(target_ids.shape)
            attentional, weights = self.attend(self.decoder(tokens, memory.last), steps, memory)
        return self.output(self.dropout(attentional)), weights[:, None, None]

    def start(self, memory: LuongMemory) -> LuongPast:
        rows = memory.annotations.size(0)
        zeros = memory.annotations.new_zeros(rows, self.settings.dim)
        return LuongPast(memory.last, zeros, torch.zeros(rows, dtype=torch.long, device=zeros.device))

    def decode_step(self, token_ids: Tensor, past: LuongPast, memory: LuongMemory) -> tuple[Tensor, LuongPast]:
        present, _ = self._advance(self.target_embedding(token_ids), past, memory)
        return self.output(self.dropout(present.attentional)), present

    def attend(self, states: Tensor, steps: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        """Return attentional states (rows, target_length, dim) and weights (rows, target_length, source_length).

        states: (rows, target_length, dim)
        steps: (rows, target_length), the number of target tokens before each
        """
        weights = self.window(self.score(states, memory.keys), states, steps, memory.visible)
        context = weights @ memory.annotations
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1))), weights

    def _decode_by_steps(self, tokens: Tensor, memory: LuongMemory) -> tuple[Tensor, Tensor]:
        past, found = self.start(memory), []
        for token in tokens.unbind(1):
            past, weights = self._advance(token, past, memory)
            found.append((past.attentional, weights))
        attentional, weights = (torch.stack(each, dim=1) for each in zip(*found, strict=True))
        return attentional, weights

    def _advance(self, token: Tensor, past: LuongPast, memory: LuongMemory) -> tuple[LuongPast, Tensor]:
        """Return the past with one more token, token (rows, embedding_dim), and its weights (rows, source_length)."""
        inputs = torch.cat([token, past.attentional], dim=-1) if self.settings.input_feeding else token
        layers = self.decoder.step(inputs, past.layers)
        attentional, weights = self.attend(layers[-1][0][:, None], past.steps[:, None], memory)
        return LuongPast(layers, attentional[:, 0], past.steps + 1), weights[:, 0]
