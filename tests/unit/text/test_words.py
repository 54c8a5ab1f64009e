import re
import sys

from tokenizers.normalizers import BertNormalizer

from cloze.text.words import IDEOGRAPHS


def test_ideographs_are_those_of_the_bert_normalizer():
    cleaning = BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    characters = [
        chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF
    ]  # all but surrogates, which are none
    parted = {one for one in characters if cleaning.normalize_str(one) != one}
    assert parted == {one for one in characters if re.match(f"[{IDEOGRAPHS}]", one)}
