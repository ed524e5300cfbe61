#!/usr/bin/env bash
# Guess, written down first: the decoder of T5Gemma in Transformers gives the same logits token by token with a cache as
# for the whole target without one, because its sliding window is about its own past and not about the source. And its
# attention kernels ("eager", and "sdpa", which is the default) compute the same model.
#
# Seen with transformers 4.57.6 and torch 2.13.0: the cache of cross-attention in a layer with a window keeps the last
# window - 1 states of the source. The first token is right, all later ones are computed from the end of the source alone,
# if the source has as many tokens as the window or more. There is no error and no warning; `generate` uses the cache.
# With "sdpa" the soft cap of attention scores (attn_logit_softcapping) is left out without a word.
#
# Printed: the largest difference of logits at each target token for windows of 64, 20 and 8 with a source of 20, and of
# the kernels without and with a soft cap. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==4.57.6 numpy==2.4.6
cat > "$folder/t5gemma.py" <<'PY'
import torch
from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration

SOURCE, TARGET = torch.arange(3, 23)[None], torch.tensor([[2, 5, 6, 7, 9]])


def model(attention, window=64, cap=None):
    side = dict(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=window,
        layer_types=["sliding_attention", "full_attention"],
        attn_logit_softcapping=cap,
        final_logit_softcapping=None,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
    )
    torch.manual_seed(0)
    config = T5GemmaConfig(encoder=side, decoder=side, vocab_size=60)
    found = T5GemmaForConditionalGeneration._from_config(config, attn_implementation=attention).eval()
    for weight in found.parameters():
        weight.data.mul_(8)  # random weights of the usual size attend evenly
    return found


@torch.no_grad()
def by_token(window):
    """The largest difference of the logits with a cache to those without one, for each target token."""
    found, past, logits = model("eager", window), None, []
    encoded = found.get_encoder()(input_ids=SOURCE)
    for place in range(TARGET.shape[1]):
        step = TARGET[:, place : place + 1]
        out = found(encoder_outputs=encoded, decoder_input_ids=step, past_key_values=past, use_cache=True)
        past = out.past_key_values
        logits.append(out.logits)
    whole = found(input_ids=SOURCE, decoder_input_ids=TARGET, use_cache=False).logits
    return (torch.cat(logits, 1) - whole).abs().amax((0, 2))


@torch.no_grad()
def by_kernel(cap):
    """The largest difference of the logits of both kernels."""
    eager, sdpa = (model(name, cap=cap)(input_ids=SOURCE, decoder_input_ids=TARGET).logits for name in ("eager", "sdpa"))
    return float((eager - sdpa).abs().max())


for window in (64, 20, 8):
    print(f"window {window}, source {SOURCE.shape[1]}: ", [round(float(each), 4) for each in by_token(window)])
for cap in (None, 1.0):
    print(f"soft cap {cap}: kernels differ by {by_kernel(cap):.1e}")
print("the default kernel:", model(None).config._attn_implementation)
assert by_token(64).max() < 1e-4
for window in (20, 8):
    assert by_token(window)[0] < 1e-4 and by_token(window)[1:].min() > 1e-2, window
assert by_kernel(None) < 1e-4 < 1e-2 < by_kernel(1.0)
assert model(None).config._attn_implementation == "sdpa"
PY
"$folder/venv/bin/python" "$folder/t5gemma.py"
