"""The special tokens of a folder of CTranslate2: which they are, and whether its users end a source with one.

CTranslate2 adds the end token to a source only if `add_source_eos` is true, as it is for the models of Marian and
fairseq. Otherwise it reads what it is given. Callers of models of Transformers give it the end token, which the
tokenizers there write; callers of models of OpenNMT do not, because these models are trained without one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lingon.errors import SettingsError, SourceModelError
from lingon.importers.files.fields import Fields
from lingon.importers.readers.ctranslate2.container import Variables
from lingon.importers.readers.ctranslate2.revisions import TEXTS

CONFIG_SINCE = 6  # the version of model.bin whose special tokens are in config.json
OPENNMT_UNTIL = 3  # the last version of model.bin that the converters of OpenNMT alone wrote
OPENNMT_PADDING = "<blank>"
PADDING = "<pad>"


def special_tokens(config: Fields, path: Path, variables: Variables) -> Fields:
    """Return the fields of config.json; those about special tokens are variables of an older model.

    path: of the variables, for messages
    """
    if variables.version >= CONFIG_SINCE:
        return config
    values, flags = {**TEXTS, **variables.texts}, variables.flags
    start: str | None = values["bos_token"] if flags.get("with_target_bos", 1) else values["eos_token"]
    if flags.get("user_decoder_start_tokens", 0):
        start = None
    ends = {f"add_source_{name}": bool(flags.get(f"with_source_{name}", 0)) for name in ("bos", "eos")}
    return Fields(path, {**config.values, **values, **ends, "decoder_start_token": start})


def reads_source_end(
    folder: Path,
    config: Fields,
    variables: Variables,
    vocabulary: Collection[str],
    *,
    given: bool | None,
    callers: bool | None,
) -> bool:
    """Whether a source ends with the end token when the users of a folder translate with it.

    vocabulary: of the source
    given: what the user says; None if nothing
    callers: whether the callers of such a folder are known to write the end token, or not to

    Raises SourceModelError if neither the user nor the files say it, SettingsError if the two contradict each other.
    """
    if config.flag("add_source_eos", False):
        if given is False:
            raise SettingsError(f"{config.path}: add_source_eos is true, so that --no-source-end cannot be right")
        return True
    known = given if given is not None else callers
    found = _by_start(config, variables, vocabulary) if known is None else known
    if found is None:
        raise SourceModelError(
            f"{folder}: its files do not say whether a source ends with {config.text('eos_token', '</s>')}: give "
            "--source-end if its users write it, as for models of Transformers, or --no-source-end if nobody does, as "
            "for models of OpenNMT"
        )
    return found


def _by_start(config: Fields, variables: Variables, vocabulary: Collection[str]) -> bool | None:
    """Return whether callers write the end token, by what the decoder starts with; None if that does not say it.

    The converters from Transformers and fairseq take the end token, the padding, zeros, or what the caller gives; those
    from OpenNMT take the begin token. OpenNMT calls its padding <blank>, Transformers <pad>.
    """
    start = config.values.get("decoder_start_token", "<s>")
    if start is None or variables.scalars.get("decoder/start_from_zero_embedding", 0):
        return True
    if start == config.text("bos_token", "<s>"):
        is_of_opennmt = variables.version <= OPENNMT_UNTIL or OPENNMT_PADDING in vocabulary
        return False if is_of_opennmt else None
    if start in (config.text("eos_token", "</s>"), PADDING) and OPENNMT_PADDING not in vocabulary:
        return True
    return None
