"""The names of the files of a bundle, and of the inputs and outputs of its graphs, for those who write and read them.

    models/<name>/<version>/            <version> is a positive integer. Models/<name> means the highest
        manifest.json                   class Manifest, with the SHA-256 of every other file
        <precision>/encoder.onnx        source_ids, source_lengths -> every memory state, first recurrent states
        <precision>/decoder.onnx        one step: token_ids, positions, states -> candidates, logits, states
        <precision>/scorer.onnx         a whole translation at once: log-probabilities, attention
        <precision>/output_rows.onnx    with a shortlist: piece_ids -> rows of the output layer for these pieces
        <precision>/decoder_shortlist.onnx  with a shortlist: one step restricted to those pieces
        <precision>/greedy.onnx         for CUDA: one step of greedy search, which writes what the next one reads
        <precision>/beam.onnx           of native operators: a step of beam search over the candidates of a decoder step
        <precision>/greedy_steps.onnx   of operators for CUDA: several steps of greedy search
        <precision>/beam_steps.onnx     of operators for CUDA: several steps of beam search, with the search itself
        <precision>/place.onnx          for CUDA: writes outputs of the encoder into the memory of a running batch
        <precision>/copy_memory.onnx    for CUDA: copies memory of sentences within a running batch
        <precision>/copy_rows.onnx      for CUDA: copies caches and recurrent states of rows within a running batch
        weights/*.bin                   the weights; fp32 and fp16 share those that 16 bits represent exactly
        shortlist.npz                   optional: likely target pieces for every source piece
        profiles.bin                    with a confidence: trigrams of the source and the target language
        golden.json                     optional: sentences, their translations and alignments by each CPU precision
        tokenizer.model                 sentencepiece; source.model and target.model if the two sides differ
        MODEL_CARD.md                   the model card, for people. Files of --attach are beside it

Dimensions: batch (sentences of one encoder run), tokens (of an encoder run without padding), sentences (of a running
batch), rows (sentences * beam_size), source_length, target_length, capacity (positions that fit into a cache), heads,
head_dim, vocab, candidates, union (pieces on the shortlist of at minimum one sentence of the running batch).
"""

from __future__ import annotations

MANIFEST, CARD = "manifest.json", "MODEL_CARD.md"
ENCODER, DECODER, SCORER = "encoder.onnx", "decoder.onnx", "scorer.onnx"
OUTPUT_ROWS, DECODER_SHORTLIST = "output_rows.onnx", "decoder_shortlist.onnx"
GREEDY, BEAM = "greedy.onnx", "beam.onnx"
GREEDY_STEPS, BEAM_STEPS = "greedy_steps.onnx", "beam_steps.onnx"
PLACE, COPY_MEMORY, COPY_ROWS = "place.onnx", "copy_memory.onnx", "copy_rows.onnx"
WEIGHTS, SHORTLIST, GOLDEN = "weights", "shortlist.npz", "golden.json"
PROFILES = "profiles.bin"  # of source and target language, PROFILE_BYTES each
PROFILE_BYTES = 2**13  # one for each bucket of trigrams: -16 * its log-probability

SOURCE_IDS, SOURCE_LENGTHS = "source_ids", "source_lengths"  # (batch, source_length), (batch)
SOURCE_POSITIONS = "source_positions"  # (tokens): of each token in its sentence; source_ids is then (tokens), unpadded
SOURCE_TILES = "source_tiles"  # (tiles, 4) int32: first query, queries, first token and length of the sentence
MEMORY = "memory"  # (tokens, layers * 2 * heads * head_dim): of each layer keys, then values of the unpadded tokens
MEMORY_TARGETS = "memory_targets"  # (placed, 4) int32: a row of MEMORY, its slot, its position there, 0
TARGET_IDS = "target_ids"  # (batch, target_length), begins with BOS
TOKEN_IDS, POSITIONS = "token_ids", "positions"  # (rows), (rows): number of tokens in the past of each row
MEMORY_LENGTHS = "memory_lengths"  # (sentences): source tokens of each sentence
CANDIDATE_COUNT = "candidate_count"  # (1): candidates returned by a step, at most Manifest.candidates
TOTAL_LENGTH = "total_length"  # (): positions of a cache, int32 in main memory; only in graphs for CUDA, read by fp16
HISTORY = "history"  # (steps, rows, 2) float32: the tokens that greedy search chose, and their log-probabilities
STEP_INDEX = "step_index"  # (1): the entry of HISTORY, or of the logged candidates, that a step writes
LOGGED_IDS, LOGGED_LOG_PROBS = "logged_ids", "logged_log_probs"  # (steps, rows, candidates): candidates of each step
BEAM_TABLE = "beam_table"  # (rows, capacity) int32: position p of row r is in the caches of row r + beam_table[r, p]
BEAM_ROWS, BEAM_TOTALS = "beam_rows", "beam_totals"  # (sentences, beams): the row of each rank, its log-probability
BEAM_TOKENS, BEAM_LOG_PROBS = "beam_tokens", "beam_log_probs"  # (sentences, beams, capacity): the past of each row
ENDED, ENDED_TOTALS = "ended", "ended_totals"  # (sentences, beams): whether a continuation ended, its log-probability
ENDED_TOKENS, ENDED_LOG_PROBS = "ended_tokens", "ended_log_probs"  # (sentences, beams, capacity): of those that ended
ENDED_TABLE = "ended_table"  # (sentences, beams, capacity) int32: the row of its sentence with each position; optional
FAILED = "failed"  # (sentences) bool: those with NaN
SLOTS, INDICES = "slots", "indices"  # (placed): slots of a running batch, and the outputs of the encoder for them
SOURCES, TARGETS = "sources", "targets"  # (copied): entries to copy, and those that they replace
CANDIDATE_IDS, CANDIDATE_LOG_PROBS = "candidate_ids", "candidate_log_probs"  # (rows, candidates), best first
LOGITS = "logits"  # (rows, vocab or more; columns after vocab are padding); only bound when rows sample
STEP_ATTENTION = "step_attention"  # (rows, source_length): mean of the heads for alignments; optional, not on CUDA
PIECE_IDS = "piece_ids"  # (union): the pieces that the running batch may generate
ALLOWED = "allowed"  # (sentences, union) bool: pieces that each sentence may generate
TOKEN_LOG_PROBS = "token_log_probs"  # (batch, target_length): of the token after each of target_ids
LABELS = "labels"  # (batch, target_length): the token after each of target_ids
ENCODER_ATTENTION = "encoder_attention"  # (batch, layers, heads, source_length, source_length); of self-attention
DECODER_ATTENTION = "decoder_attention"  # (batch, layers, heads, target_length, target_length); of self-attention
CROSS_ATTENTION = "cross_attention"  # (batch, layers, heads, target_length, source_length); if the manifest has heads


def past_name(state: str) -> str:
    """Return the name of the decoder's input for a state that it updates."""
    return f"past.{state}"


def present_name(state: str) -> str:
    """Return the name of the decoder's output for a state that it updates."""
    return f"present.{state}"


def encoded_name(state: str) -> str:
    """Return the name of the input of PLACE for the encoder's output."""
    return f"encoded.{state}"


def changed_name(state: str) -> str:
    """Return the name of the output of a state graph for a state."""
    return f"changed.{state}"


def placed_name(state: str) -> str:
    """Return the name of the output of PLACE, in operators for CUDA, that says that a state was written."""
    return f"placed.{state}"


def blocks_name(state: str) -> str:
    """Return the name of the second dimension of a state in a state graph: (sentences or rows, blocks, block)."""
    return f"{state}.blocks"
