from cloze.tasks.snippets import MAX_CHARS, make_snippets

TEXT = "The fox sleeps. It hunts mice at night. Cubs are born in spring."


def highlighted(snippet):
    start, end = snippet.highlight
    return snippet.text[start:end]


def test_the_sentence_with_the_rarest_shared_terms_is_highlighted():
    (found,) = make_snippets([TEXT], ["what", "does", "it", "do", "in", "spring"])
    assert highlighted(found) == "Cubs are born in spring."
    (found,) = make_snippets([TEXT], ["the", "a"])  # only function words
    assert highlighted(found) == "The fox sleeps."


def test_without_a_shared_term_sentences_are_scored_or_the_first_is_taken():
    asked = []

    def score(sentences):
        asked.append(sentences)
        return [float("Cubs" in one) for one in sentences]

    found = make_snippets([TEXT] * 5, ["young"], score)
    assert [highlighted(one)[:4] for one in found] == ["Cubs"] * 3 + ["The "] * 2
    assert len(asked) == 1
    assert highlighted(make_snippets([TEXT], ["young"])[0]) == "The fox sleeps."
    assert make_snippets([""], ["x"], score)[0] == ("", (0, 0))


def test_a_long_text_is_cut_between_words():
    text = "Alpha beta. " * 60 + "The needle is here. " + "Gamma delta. " * 60
    (found,) = make_snippets([text], ["needle"])
    assert highlighted(found) == "The needle is here."
    assert len(found.text) <= MAX_CHARS + 4
    assert found.text.startswith("… ")
    assert found.text.endswith(" …")
    assert found.text.strip("… ").split()[0] in ("Alpha", "beta.")
