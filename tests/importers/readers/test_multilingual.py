"""M2M-100, SMaLL-100, NLLB-200 and mBART-50 become the same model, and one bundle serves several of their pairs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle.manifest import Languages, SourceLanguage, TargetLanguage
from lingon.errors import InvalidRequest, SettingsError, SourceModelError, UnknownModel
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.readers.codes import M2M_100, tags_of
from lingon.importers.toolkits import transformers as toolkit
from lingon.serving.in_process import LocalTranslator
from lingon.serving.models.catalog import Catalog, Entry
from lingon.text import normalise
from lingon.training.checkpoint import load_checkpoint, save_checkpoint
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import MULTILINGUAL, lines, save_multilingual, silent

ALL = [normalise(text) for text in lines("en")[:40]]
TEXTS = ALL[:10]
PAIR = ImportSettings(languages=(["en", "de"], ["de", "fr"]))


@pytest.fixture(scope="module", params=MULTILINGUAL)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_multilingual(tmp_path_factory.mktemp("zoo") / request.param, request.param, seed=3, ends=3.0)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, PAIR, silent)


def test_ids_and_tokens_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    found = toolkit.compare(imported.checkpoint, imported.source, folder, ALL)
    assert found[0].endswith("ids of 40 texts are the same")
    assert [line.partition("tokens of ")[2][:8] for line in found[1:3]] == ["40 of 40"] * 2


def test_another_target_language_has_other_translations(imported: Imported, folder: Path) -> None:
    other = pipeline.read_source(folder, ImportSettings(languages=(["en"], ["fr"])), silent)
    german, french = (
        translate(
            each.checkpoint.model,
            [each.checkpoint.tokenizer.encode_source(text) for text in TEXTS],
            SearchSettings(forced=each.checkpoint.tokenizer.languages.forced, length_factor=0),
        )
        for each in (imported, other)
    )
    assert german != french


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "Hugging Face SMaLL-100"),
        ({"tokenizer_class": "SMALL100Tokenizer"}, "Hugging Face SMaLL-100"),
        ({"tokenization_small100.py": None}, "Hugging Face M2M-100"),
    ],
)
def test_small_100_is_known_by_its_tokenizer(tmp_path: Path, change: dict[str, str | None], named: str) -> None:
    """Its published files name the tokenizer of M2M-100, and have their own as code, which is not run."""
    folder = save_multilingual(tmp_path / "small", "small100", seed=3, ends=3.0)
    path = folder / "tokenizer_config.json"
    for name, value in change.items():
        if value is None:
            (folder / name).unlink()
        else:
            path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), name: value}), encoding="utf-8")
    found = pipeline.read_source(folder, PAIR, silent)
    assert found.source.facts.form == named
    tokenizer = found.checkpoint.tokenizer
    ids = tokenizer.encode_source("Tom")
    is_small = named.endswith("SMaLL-100")
    assert tokenizer.source_pieces(ids)[0] == ("__de__" if is_small else "__en__")
    assert bool(tokenizer.languages.forced) != is_small
    assert toolkit.compare(found.checkpoint, found.source, folder, TEXTS)[0].endswith("ids of 10 texts are the same")


@pytest.mark.parametrize("language", ["de", "DE"])
def test_one_language_for_both_sides_is_no_pair(folder: Path, language: str) -> None:
    message = f"--languages must have two different languages, such as en:de, got de:de: {folder} is a model of several"
    with pytest.raises(SettingsError, match=f"^{message} languages$"):
        pipeline.read_source(folder, ImportSettings(languages=([language, "de"], ["de"])), silent)


def test_the_languages_are_in_the_checkpoint(imported: Imported, tmp_path: Path) -> None:
    written = imported.checkpoint
    save_checkpoint(tmp_path / "new", written.config, written.tokenizer, written.model, written.progress)
    read = load_checkpoint(tmp_path / "new")
    assert read.tokenizer.languages == written.tokenizer.languages
    assert read.tokenizer.languages.forced or read.tokenizer.languages.before
    assert read.config.languages == imported.source.languages


def test_a_code_of_a_language_in_a_text_stays_text(imported: Imported) -> None:
    """It must not choose another language than the request does, nor be generated."""
    tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
    languages = imported.checkpoint.config.languages
    assert languages is not None
    codes = {code for each in languages.targets for code in (*each.source, *each.forced)}
    reserved = {number for number, piece in enumerate(numbering.pieces) if piece in codes}
    assert len(reserved) == 2
    for code in codes:
        for text in (code, f"{code} Tom", f"Tom {code} Tom", code * 3, f"{code[:-1]}\u200b{code[-1]}"):
            pieces = tokenizer.unframed(tokenizer.encode_source(normalise(text)))
            assert not reserved.intersection(pieces), text
            assert not reserved.intersection(tokenizer.encode_target(normalise(text))), text
    assert reserved <= set(imported.source.target.never)


def test_a_model_reads_as_many_tokens_as_it_is_told_to(folder: Path) -> None:
    """A table of learned positions has 128 rows, of which one is left for the start token of a translation."""
    learned = "mbart" in folder.name
    for longest in (40, 127) if learned else (40, 127, 128, 200):
        settings = ImportSettings(languages=PAIR.languages, longest=longest)
        assert pipeline.read_source(folder, settings, silent).checkpoint.config.max_source_tokens == longest
    assert pipeline.read_source(folder, PAIR, silent).checkpoint.config.max_source_tokens == 128 - learned
    if learned:
        message = r"config\.json: max_position_embeddings must be above the tokens that are read \(128\), got 128$"
        with pytest.raises(SourceModelError, match=message):
            pipeline.read_source(folder, ImportSettings(languages=PAIR.languages, longest=128), silent)


def test_a_language_that_the_model_lacks_is_named(folder: Path) -> None:
    with pytest.raises(SettingsError, match="has no xx; it has "):
        pipeline.read_source(folder, ImportSettings(languages=(["en"], ["xx"])), silent)
    with pytest.raises(SettingsError, match="a model of several languages; name those to serve"):
        pipeline.read_source(folder, ImportSettings(), silent)


def test_one_bundle_serves_several_pairs(tmp_path: Path) -> None:
    source = save_multilingual(tmp_path / "m2m", "m2m_100", seed=3, ends=3.0)
    imported = pipeline.read_source(source, PAIR, silent)
    texts = ExportTexts([Pair(text, "") for text in TEXTS])
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=5, gate_sentences=5)
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, settings, silent)
    assert (bundle.manifest.source_language, bundle.manifest.target_language) == ("mul", "mul")

    def ask(source: str, target: str) -> pb.TranslateResponse:
        return translator.translate(
            pb.TranslateRequest(texts=TEXTS, source_language_code=source, target_language_code=target)
        )

    with LocalTranslator(bundle.folder, device="cpu") as translator:
        replies = [ask("en", "de"), ask("en-GB", "fr"), ask("de", "fr")]
        shown = [(reply.source_language_code, reply.target_language_code) for reply in replies]
        assert shown == [("en", "de"), ("en", "fr"), ("de", "fr")]
        assert len({tuple(each.hypotheses[0].text for each in reply.results) for reply in replies}) == 3
        with pytest.raises(InvalidRequest, match="target_language_code must name a language of many/1: de, fr"):
            ask("en", "")
        with pytest.raises(UnknownModel, match="no model translates from en to it"):
            ask("en", "it")


def test_codes_become_tags() -> None:
    codes = ["eng_Latn", "zho_Hans", "zho_Hant", "ace_Arab", "ace_Latn", "__de__", ">>fra<<", "pt_XX", "<mask>"]
    tags = {"en": "eng_Latn", "zh": "zho_Hans", "zh-Hant": "zho_Hant", "ace-Arab": "ace_Arab", "ace": "ace_Latn"}
    assert tags_of(codes) == tags | {"de": "__de__", "fr": ">>fra<<", "pt": "pt_XX"}


def changed(folder: Path, to: Path, **files: dict[str, Any]) -> Path:
    """A copy of a model in which these fields of files are others."""
    shutil.copytree(folder, to)
    for name, fields in files.items():
        path = to / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")
    return to


def test_a_language_that_was_added_to_a_model_has_the_id_that_its_files_declare(tmp_path: Path) -> None:
    folder = save_multilingual(tmp_path / "nllb", "nllb", seed=3, ends=3.0)
    given = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    codes, ids = given["additional_special_tokens"], given["added_tokens_decoder"]
    added = max(map(int, ids)) + 1  # after <mask>
    for number, error in ((added, None), (added + 1, "tyv_Cyrl has the id")):
        declared = {**ids, str(number): {"content": "tyv_Cyrl", "special": True}}
        special = {"additional_special_tokens": [*codes, "tyv_Cyrl"]}
        config = {**special, "added_tokens_decoder": declared}
        other = changed(folder, tmp_path / str(number), tokenizer_config=config, special_tokens_map=special)
        settings = ImportSettings(languages=(["en"], ["tyv"]))
        if error:
            with pytest.raises(SourceModelError, match=error):
                pipeline.read_source(other, settings, silent)
            continue
        found = pipeline.read_source(other, settings, silent)
        (forced,) = found.checkpoint.tokenizer.languages.forced
        assert found.source.target.rows[forced] == added
        assert toolkit.compare(found.checkpoint, found.source, other, TEXTS)[0].endswith("ids of 10 texts are the same")


def test_a_model_whose_tables_are_not_tied_is_refused(folder: Path, tmp_path: Path) -> None:
    untied = changed(folder, tmp_path / "untied", config={"tie_word_embeddings": False})
    with pytest.raises(SourceModelError, match=r"config\.json: tie_word_embeddings must be true"):
        pipeline.read_source(untied, PAIR, silent)


_NLLB = (
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab "
    "ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl "
    "bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn "
    "cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn "
    "est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn "
    "gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn "
    "ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab "
    "kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn "
    "kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn "
    "lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn "
    "mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn "
    "nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn "
    "ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn "
    "sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn "
    "szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn "
    "tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn "
    "vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn"
)
NLLB = _NLLB.split()
"""The 202 codes of NLLB-200 (NLLB Team, 2022, table 1) in the order of their ids."""

COLLIDING = [">>ara<<", ">>arb<<", ">>ary<<", ">>zho<<", ">>cmn<<", ">>cmn_Hans<<", ">>cmn_Hant<<", ">>deu<<", ">>de<<"]


def catalog(tags: list[str]) -> Catalog[str]:
    languages = Languages((SourceLanguage("und", (), ()),), tuple(TargetLanguage(tag, (), ()) for tag in tags))
    return Catalog([Entry("many", 1, "und", "mul", "many", languages)])


def test_the_list_of_nllb_is_that_of_transformers() -> None:
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    assert list(FAIRSEQ_LANGUAGE_CODES) == NLLB


@pytest.mark.parametrize("codes", [NLLB, [f"__{code}__" for code in M2M_100], COLLIDING, COLLIDING[::-1]])
def test_every_code_has_a_tag_of_its_own_and_is_found_by_it_and_as_it_writes_it(codes: list[str]) -> None:
    tags = tags_of(codes)
    assert sorted(tags.values()) == sorted(codes)
    assert len({tag.lower() for tag in tags}) == len(codes)
    served = catalog(list(tags))
    for tag, code in tags.items():
        assert served.find("", "und", tag).target == tag
        if code in NLLB:
            assert served.find("", "und", code).target == tag, code


def test_common_languages_of_nllb_have_two_letters() -> None:
    tags = tags_of(NLLB)
    assert sum(len(tag) == 2 for tag in tags) == 134
    expected = {"ar": "arb_Arab", "fa": "pes_Arab", "ku": "kmr_Latn", "sq": "als_Latn", "mn": "khk_Cyrl"}
    expected |= {"ps": "pbt_Arab", "ks": "kas_Arab", "ks-Deva": "kas_Deva", "zh": "zho_Hans", "zh-Hant": "zho_Hant"}
    assert {tag: tags[tag] for tag in expected} == expected
    assert (tags["ak"], tags["tw"], tags["azb"], tags["az"]) == ("aka_Latn", "twi_Latn", "azb_Arab", "azj_Latn")


def test_codes_with_one_canonical_tag_stay_apart() -> None:
    expected = {"ar": ">>ara<<", "arb": ">>arb<<", "ary": ">>ary<<", "zh": ">>zho<<", "cmn": ">>cmn<<"}
    expected |= {"zh-Hans": ">>cmn_Hans<<", "zh-Hant": ">>cmn_Hant<<", "de": ">>de<<", "deu": ">>deu<<"}
    assert tags_of(COLLIDING) == expected
    served = catalog(list(expected))
    for wanted, found in {
        "arb": "arb",
        "ara": "ar",
        "ar-EG": "ar",
        "arb-EG": "arb",
        "deu": "deu",
        "de-AT": "de",
    }.items():
        assert served.find("", "und", wanted).target == found
