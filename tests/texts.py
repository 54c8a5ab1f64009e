"""Texts that tokenizers stumble over."""

from hypothesis import strategies as st

ODD = [
    *"aZ09.,?!#['",
    *("\t", "\n", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\x85", "\xad"),  # control
    *(" ", "  ", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000"),  # spaces
    *("é", "É", "e\u0301", "\u0301", "\u0323\u0307", "ǖ", "İ", "ẞ", "ß", "ﬁ", "ς", "Σ"),
    *("العربية", "ا\u064e", "שָׁלוֹם", "\u200f", "\u202e", "ไทย", "कि", "한국", "\u1112\u1161\u11ab"),
    *("中文", "㐀", "\U00020000", "\U0002a6d6", "\U0002b740", "\U0002b820", "豈", "\U0002f800"),
    *("々", "〇", "ｶﾞ", "Ａ", "、", "。"),
    *("😀", "👩\u200d🚀", "👨\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "🇩🇪", "👍🏽", "1\ufe0f\u20e3"),
    *("\u200b", "\u2060", "\ufeff", "\ufffd", "\ue000", "\ufdd0", "\U000e0041", "\U0010ffff"),
    *("playing", "unaffable", "Don't", "http://x.y/z?q=1", "[MASK]", "##ing", "x" * 99, "y" * 101),
]

# Any characters at all, and the ones above in any order.
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(ODD), max_size=30).map("".join),
)
