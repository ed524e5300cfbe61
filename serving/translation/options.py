"""Resolves the decoding options of a request: fills in defaults and checks every value against the model's limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lingon.bundle import Manifest
from lingon.errors import InvalidRequest, Unsupported
from lingon.serving.decoding.job import Options, Sampling
from lingon.translation.v1 import translation_pb2 as pb

MAX_LENGTH_PENALTY = 10.0
MAX_TEMPERATURE = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedOptions:
    """The options of one request: how its texts are translated, and what the reply holds.

    job: the options of every job; if the request samples, each hypothesis is a job
    message: the options that were used, for the reply
    """

    job: Options
    num_hypotheses: int
    max_output_tokens: int  # including the end token; the bound of each text holds as well
    return_tokens: bool
    return_alignment: bool
    splits: bool  # whether a text that is longer than the model reads is split
    message: pb.DecodingOptions

    @property
    def streams(self) -> bool:
        """Whether translations can be streamed: with one row, later tokens never replace earlier ones."""
        return self.job.beam_size == 1 and self.num_hypotheses == 1

    @property
    def samples(self) -> int:
        """The number of jobs for each part of a text."""
        return self.num_hypotheses if self.job.sampling is not None else 1

    def job_options(self, max_output_tokens: int, stream: int) -> Options:
        """Return the options of one job.

        stream: number of the random stream, if the job samples
        """
        job = self.job
        sampling = job.sampling and replace(job.sampling, stream=stream)
        return Options(
            beam_size=job.beam_size,
            num_hypotheses=job.num_hypotheses,
            length_penalty=job.length_penalty,
            max_output_tokens=max_output_tokens,
            sampling=sampling,
            shortlist=job.shortlist,
        )


def resolve(requested: pb.DecodingOptions, manifest: Manifest, shortlist: bool | None = None) -> ResolvedOptions:
    """Return the options to use; raises InvalidRequest or Unsupported.

    shortlist: the default for requests that do not set it; None if the model has no shortlist
    """
    limits, defaults = manifest.limits, manifest.defaults
    sampling = _sampling(requested.sampling) if requested.HasField("sampling") else None
    default_beam_size = 1 if sampling else defaults.beam_size
    beam_size = requested.beam_size if requested.HasField("beam_size") else default_beam_size
    _within("beam_size", beam_size, 1, 1 if sampling else limits.max_beam_size, "with sampling" if sampling else "")
    most = limits.max_beam_size if sampling else beam_size
    num_hypotheses = min(defaults.num_hypotheses, most)
    if requested.HasField("num_hypotheses"):
        num_hypotheses = requested.num_hypotheses
    _within("num_hypotheses", num_hypotheses, 1, most, "" if sampling else "which is options.beam_size")
    penalty = requested.length_penalty if requested.HasField("length_penalty") else defaults.length_penalty
    _within("length_penalty", penalty, 0.0, MAX_LENGTH_PENALTY)
    max_output_tokens = limits.max_target_tokens
    if requested.HasField("max_output_tokens"):
        max_output_tokens = requested.max_output_tokens
    _at_least("max_output_tokens", max_output_tokens, 1)
    if requested.return_alignment:
        check_alignment(manifest, "options.return_alignment")
    message = pb.DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=penalty,
        max_output_tokens=min(max_output_tokens, limits.max_target_tokens),
        sampling=_sampling_message(sampling),
        return_tokens=requested.return_tokens,
        return_alignment=requested.return_alignment,
        long_text=_long_text(requested.long_text),
        shortlist=_shortlist(requested, manifest, shortlist),
    )
    return ResolvedOptions(
        job=Options(
            beam_size=beam_size,
            num_hypotheses=1 if sampling else num_hypotheses,
            length_penalty=penalty,
            sampling=sampling,
            shortlist=message.shortlist,
        ),
        num_hypotheses=num_hypotheses,
        max_output_tokens=message.max_output_tokens,
        return_tokens=requested.return_tokens,
        return_alignment=requested.return_alignment,
        splits=message.long_text == pb.LONG_TEXT_POLICY_SPLIT,
        message=message,
    )


def check_alignment(manifest: Manifest, field: str) -> None:
    """Raise Unsupported if the model declares no attention heads for alignments."""
    if not manifest.alignment.heads:
        raise Unsupported(
            f"{field}: the model {manifest.name}/{manifest.version} declares no attention heads for alignments"
        )


def _shortlist(requested: pb.DecodingOptions, manifest: Manifest, default: bool | None) -> bool:
    samples = requested.HasField("sampling")
    if not requested.HasField("shortlist"):
        return bool(default) and not samples
    if requested.shortlist and samples:
        raise _refusal("shortlist", "must be unset or false with sampling, got true")
    if requested.shortlist and default is None:
        raise Unsupported(
            f"options.shortlist: the model {manifest.name}/{manifest.version} is served without a shortlist"
        )
    return requested.shortlist


def _sampling(requested: pb.SamplingOptions) -> Sampling:
    temperature = requested.temperature if requested.HasField("temperature") else 1.0
    top_p = requested.top_p if requested.HasField("top_p") else 1.0
    _above_zero("sampling.temperature", temperature, MAX_TEMPERATURE)
    _above_zero("sampling.top_p", top_p, 1.0)
    return Sampling(temperature=temperature, top_k=requested.top_k, top_p=top_p, seed=requested.seed)


def _sampling_message(sampling: Sampling | None) -> pb.SamplingOptions | None:
    if sampling is None:
        return None
    return pb.SamplingOptions(
        temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p, seed=sampling.seed
    )


def _long_text(policy: pb.LongTextPolicy.ValueType) -> pb.LongTextPolicy.ValueType:
    if policy not in pb.LongTextPolicy.values():
        raise InvalidRequest("options.long_text", f"options.long_text has no value {policy}")
    split = policy == pb.LONG_TEXT_POLICY_SPLIT
    return pb.LONG_TEXT_POLICY_SPLIT if split else pb.LONG_TEXT_POLICY_REFUSE


def _within(name: str, value: float, least: float, most: float, why: str = "") -> None:
    if not (math.isfinite(value) and least <= value <= most):
        note = f" ({why})" if why else ""
        raise _refusal(name, f"must be {least:g} to {most:g}{note}, got {value:g}")


def _above_zero(name: str, value: float, most: float) -> None:
    if not (math.isfinite(value) and 0.0 < value <= most):
        raise _refusal(name, f"must be above 0 and at most {most:g}, got {value:g}")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise _refusal(name, f"must be at least {least}, got {value}")


def _refusal(name: str, rest: str) -> InvalidRequest:
    return InvalidRequest(f"options.{name}", f"options.{name} {rest}")
