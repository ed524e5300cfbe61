"""The settings of a training run, which check every key; it imports only `bundle` and the root modules."""

from lingon.training.config.blocks import (
    Corpus,
    DataSettings,
    LanguagePair,
    OriginSettings,
    TokenizerSettings,
    TrainingSettings,
    pair_name,
    pair_names,
)
from lingon.training.config.differences import model_differences, setting_differences
from lingon.training.config.kinds import MODEL_KINDS
from lingon.training.config.languages import LanguageSettings
from lingon.training.config.model import DROPOUT_STEPS, ModelSettings, Settings, default_layer
from lingon.training.config.recurrent import LuongSettings, RecurrentSettings, RnnencSettings, RnnsearchSettings
from lingon.training.config.run import Config, load_config, parse_config
from lingon.training.config.transformer import PRESETS, Activation, Norms, TransformerSettings, paper_learning_rate

__all__ = [
    "DROPOUT_STEPS",
    "MODEL_KINDS",
    "PRESETS",
    "Activation",
    "Config",
    "Corpus",
    "DataSettings",
    "LanguagePair",
    "LanguageSettings",
    "LuongSettings",
    "ModelSettings",
    "Norms",
    "OriginSettings",
    "RecurrentSettings",
    "RnnencSettings",
    "RnnsearchSettings",
    "Settings",
    "TokenizerSettings",
    "TrainingSettings",
    "TransformerSettings",
    "default_layer",
    "load_config",
    "model_differences",
    "pair_name",
    "pair_names",
    "paper_learning_rate",
    "parse_config",
    "setting_differences",
]
