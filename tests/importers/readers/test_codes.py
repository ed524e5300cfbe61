"""The language codes of published models become tags: each code has its own, and a request finds it."""

from __future__ import annotations

import pytest

from lingon.bundle import Languages, SourceLanguage, TargetLanguage
from lingon.importers.readers.codes import M2M_100, tags_of
from lingon.serving.models.catalog import Catalog, Entry

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
