"""The decoding options of a request: defaults filled in, every value checked against the model's limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lingon.bundle import Manifest
from lingon.errors import InvalidRequest, Unsupported
from lingon.serving.decoding.job import Options, Sampling
from lingon.translation.v1 import translation_pb2 as pb

MAX_LENGTH_PENALTY = 10.0
MAX_TEMPERATURE = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedOptions:
    """How the texts of one request are translated and what is told of it."""

    beam_size: int
    num_hypotheses: int
    length_penalty: float
    max_output_tokens: int  # the end token counted; the bound of each text holds besides
    sampling: Sampling | None
    return_tokens: bool
    return_alignment: bool
    splits: bool  # texts longer than the model reads
    shortlist: bool  # choose among the pieces that the source calls for

    @property
    def streams(self) -> bool:
        """Whether a translation only ever grows: one row, from which nothing is taken back."""
        return self.beam_size == 1 and self.num_hypotheses == 1

    def job_options(self, max_output_tokens: int, place: int) -> Options:
        """What the engine is told: a sampled hypothesis is a job of its own, at its own place."""
        sampled = self.sampling is not None
        return Options(
            beam_size=self.beam_size,
            num_hypotheses=1 if sampled else self.num_hypotheses,
            length_penalty=self.length_penalty,
            max_output_tokens=max_output_tokens,
            sampling=_at(self.sampling, place) if self.sampling else None,
            shortlist=self.shortlist,
        )

    def message(self) -> pb.DecodingOptions:
        """The options as they were used, for the reply."""
        policy = pb.LONG_TEXT_POLICY_SPLIT if self.splits else pb.LONG_TEXT_POLICY_REFUSE
        message = pb.DecodingOptions(
            beam_size=self.beam_size,
            num_hypotheses=self.num_hypotheses,
            length_penalty=self.length_penalty,
            max_output_tokens=self.max_output_tokens,
            return_tokens=self.return_tokens,
            return_alignment=self.return_alignment,
            long_text=policy,
            shortlist=self.shortlist,
        )
        if self.sampling is not None:
            message.sampling.temperature = self.sampling.temperature
            message.sampling.top_k = self.sampling.top_k
            message.sampling.top_p = self.sampling.top_p
            message.sampling.seed = self.sampling.seed
        return message


def choose(asked: pb.DecodingOptions, manifest: Manifest, shortlist: bool | None = None) -> ResolvedOptions:
    """The options to use; InvalidRequest and Unsupported name the field, its bound and the value.

    shortlist: whether one is used where the request does not say; None is where there is none
    """
    limits, defaults = manifest.limits, manifest.defaults
    sampling = _sampling(asked.sampling) if asked.HasField("sampling") else None
    fallback = 1 if sampling else defaults.beam_size
    beam_size = asked.beam_size if asked.HasField("beam_size") else fallback
    _within("beam_size", beam_size, 1, 1 if sampling else limits.max_beam_size, "where sampling" if sampling else "")
    most = limits.max_beam_size if sampling else beam_size
    wanted = asked.num_hypotheses if asked.HasField("num_hypotheses") else min(defaults.num_hypotheses, most)
    _within("num_hypotheses", wanted, 1, most, "" if sampling else "which is options.beam_size")
    penalty = asked.length_penalty if asked.HasField("length_penalty") else defaults.length_penalty
    _within("length_penalty", penalty, 0.0, MAX_LENGTH_PENALTY)
    longest = asked.max_output_tokens if asked.HasField("max_output_tokens") else limits.max_target_tokens
    _at_least("max_output_tokens", longest, 1)
    if asked.return_alignment:
        check_alignment(manifest, "options.return_alignment")
    return ResolvedOptions(
        beam_size=beam_size,
        num_hypotheses=wanted,
        length_penalty=penalty,
        max_output_tokens=min(longest, limits.max_target_tokens),
        sampling=sampling,
        return_tokens=asked.return_tokens,
        return_alignment=asked.return_alignment,
        splits=_splits(asked.long_text),
        shortlist=_shortlist(asked, manifest, shortlist),
    )


def check_alignment(manifest: Manifest, field: str) -> None:
    """Refuse an alignment where the model declares no attention that would tell it."""
    if not manifest.alignment.heads:
        raise Unsupported(f"{field}: the model {manifest.name}/{manifest.version} declares no attention to align by")


def _shortlist(asked: pb.DecodingOptions, manifest: Manifest, default: bool | None) -> bool:
    samples = asked.HasField("sampling")
    if not asked.HasField("shortlist"):
        return bool(default) and not samples
    if asked.shortlist and samples:
        raise _refusal("shortlist", "must be unset or false where sampling, got true")
    if asked.shortlist and default is None:
        raise Unsupported(f"options.shortlist: the model {manifest.name}/{manifest.version} is served without one")
    return asked.shortlist


def _sampling(asked: pb.SamplingOptions) -> Sampling:
    temperature = asked.temperature if asked.HasField("temperature") else 1.0
    top_p = asked.top_p if asked.HasField("top_p") else 1.0
    _above_zero("sampling.temperature", temperature, MAX_TEMPERATURE)
    _above_zero("sampling.top_p", top_p, 1.0)
    return Sampling(temperature=temperature, top_k=asked.top_k, top_p=top_p, seed=asked.seed)


def _at(sampling: Sampling, place: int) -> Sampling:
    return Sampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=sampling.seed,
        place=place,
    )


def _splits(policy: pb.LongTextPolicy.ValueType) -> bool:
    if policy not in pb.LongTextPolicy.values():
        raise InvalidRequest("options.long_text", f"options.long_text has no value {policy}")
    return policy == pb.LONG_TEXT_POLICY_SPLIT


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
