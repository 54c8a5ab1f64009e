"""The clients that people have: openai, cohere, and calls of text-embeddings-inference."""

import base64

import cohere
import httpx
import numpy as np
import openai
import pytest

import cloze
from cloze.data.images.decode import encode_png
from images import drawings, make_bomb


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def cohere_client(server):
    with httpx.Client(timeout=60) as http:
        yield cohere.ClientV2(base_url=server.url, api_key="none", httpx_client=http)


TEXTS = ["the cat sat", "a b c", "j"]


def test_openai_embeddings_are_those_of_python(client, models):
    expected = cloze.embed(models["mlm"], TEXTS)
    by_default = client.embeddings.create(model="mlm", input=TEXTS)  # it asks for base64
    as_numbers = client.embeddings.create(model="mlm", input=TEXTS, encoding_format="float")
    for found in (by_default, as_numbers):
        vectors = np.array([one.embedding for one in found.data], dtype=np.float32)
        assert vectors == pytest.approx(expected, abs=1e-5)
        assert [one.index for one in found.data] == [0, 1, 2]
        tokens = sum(len(one.ids) for one in cloze.tokenize(models["mlm"], TEXTS))
        assert found.usage.prompt_tokens == found.usage.total_tokens == tokens
    assert [one.embedding for one in by_default.data] == [one.embedding for one in as_numbers.data]
    single = client.embeddings.create(model="mlm", input=TEXTS[0])
    assert np.array(single.data[0].embedding) == pytest.approx(expected[0], abs=1e-5)


def test_openai_embeddings_of_token_ids_and_with_fewer_dimensions(client, models):
    tokenizer = models["mlm"].tokenizer
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    expected = cloze.embed(models["mlm"], TEXTS)
    found = client.embeddings.create(model="mlm", input=ids)
    assert np.array([one.embedding for one in found.data]) == pytest.approx(expected, abs=1e-5)
    one = client.embeddings.create(model="mlm", input=ids[0], dimensions=4).data[0].embedding
    short = expected[0][:4] / np.linalg.norm(expected[0][:4])
    assert np.array(one) == pytest.approx(short, abs=1e-5)
    for wrong in ({"input": [10**6]}, {"input": "a", "dimensions": 9999}, {"input": []}):
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="mlm", **wrong)


def test_openai_models_and_errors(client, server, models):
    assert {one.id for one in client.models.list()} == set(models)
    assert client.models.retrieve("mlm").id == "mlm"
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="text-embedding-3-small", input="a")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="generate"):
        client.completions.create(model="mlm", prompt="a")


def test_openai_completions_are_those_of_generate(client, models):
    model = models["gpt"]
    for options in ({"temperature": 0.0}, {"seed": 5}, {"seed": 7, "top_p": 0.8}):
        alone = cloze.generate(model, "the cat", max_new_tokens=8, **options)[0]
        found = client.completions.create(
            model="gpt", prompt="the cat", max_tokens=8, logprobs=2, **options
        )
        choice = found.choices[0]
        assert choice.text == alone.continuation
        assert choice.finish_reason == ("length" if not alone.finished else "stop")
        assert (
            sum(choice.logprobs.token_logprobs) == pytest.approx(alone.log_probability, abs=1e-3)
            or alone.finished
        )
        assert "".join(choice.logprobs.tokens) == choice.text
        assert [len(one) for one in choice.logprobs.top_logprobs] == [2] * len(alone.tokens)
        assert found.usage.completion_tokens == len(alone.tokens)
        chunks = client.completions.create(
            model="gpt", prompt="the cat", max_tokens=8, stream=True,
            stream_options={"include_usage": True}, **options,
        )  # fmt: skip
        *parts, last = list(chunks)
        assert "".join(one.choices[0].text for one in parts) == alone.continuation
        assert parts[-1].choices[0].finish_reason == choice.finish_reason
        assert last.usage == found.usage


def test_openai_completions_of_several_prompts_and_samples(client, models):
    found = client.completions.create(
        model="gpt", prompt=["the cat", "a b"], n=2, seed=1, max_tokens=6, echo=True, logprobs=0
    )
    texts = [
        one.full_text
        for text in ("the cat", "a b")
        for one in cloze.generate(models["gpt"], text, samples=2, seed=1, max_new_tokens=6)
    ]
    assert [one.index for one in found.choices] == [0, 1, 2, 3]
    assert [one.text for one in found.choices] == texts
    logs = found.choices[0].logprobs
    assert logs.token_logprobs[0] is None
    assert len(logs.tokens) == len(logs.token_logprobs) == len(logs.text_offset)
    unseeded = [
        client.completions.create(model="gpt", prompt="a", max_tokens=12).choices[0].text
        for _ in range(4)
    ]
    assert len(set(unseeded)) > 1


def test_openai_completions_stop_at_a_string(client, models):
    whole = cloze.generate(models["ngram"], "the", seed=4, max_new_tokens=20)[0]
    stop = whole.tokens[1]
    found = client.completions.create(
        model="ngram", prompt="the", seed=4, max_tokens=20, stop=[stop]
    ).choices[0]
    assert found.finish_reason == "stop"
    assert stop not in found.text
    assert whole.continuation.startswith(found.text)
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        client.completions.create(model="ngram", prompt="the", presence_penalty=1.0)


def test_cohere_embeddings_and_rankings_are_those_of_python(cohere_client, models):
    expected = cloze.embed(models["mlm"], TEXTS)
    found = cohere_client.embed(
        model="mlm",
        texts=TEXTS,
        input_type="search_document",
        embedding_types=["float", "ubinary", "binary"],
    )
    assert np.array(found.embeddings.float_) == pytest.approx(expected, abs=1e-5)
    bits = np.packbits(expected > 0, axis=1)
    assert np.array_equal(found.embeddings.ubinary, bits)
    assert np.array_equal(found.embeddings.binary, bits.astype(int) - 128)
    assert found.texts == TEXTS
    ranking = cloze.rerank(models["labels"], "a b", TEXTS, top=2)
    found = cohere_client.rerank(model="labels", query="a b", documents=TEXTS, top_n=2)
    assert [one.index for one in found.results] == [one.index for one in ranking.documents]
    assert [one.relevance_score for one in found.results] == pytest.approx(
        [one.score for one in ranking.documents], abs=1e-5
    )
    with pytest.raises(cohere.NotFoundError, match="there is no model"):
        cohere_client.rerank(model="other", query="a", documents=["b"])
    with pytest.raises(cohere.BadRequestError, match="int8"):
        cohere_client.embed(
            model="mlm", texts=["a"], input_type="classification", embedding_types=["int8"]
        )


def test_cohere_embeds_images(cohere_client, models):
    files = [encode_png(one.content) for one in drawings(3, size=20)]
    urls = [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in files]
    found = cohere_client.embed(
        model="clip", images=urls, input_type="image", embedding_types=["float", "ubinary"]
    )
    expected = cloze.embed(models["clip"], images=files)
    assert np.array(found.embeddings.float_) == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(found.embeddings.ubinary, np.packbits(expected > 0, axis=1))
    assert found.meta.billed_units.images == 3
    assert found.texts == []
    text = cohere_client.embed(model="clip", texts=["the cat"], input_type="search_query")
    assert np.array(text.embeddings.float_[0]) == pytest.approx(
        cloze.embed(models["clip"], "the cat"), abs=1e-5
    )
    for model, given, kind in (
        ("clip", {"images": urls}, "search_document"),
        ("clip", {"texts": ["a"]}, "image"),
        ("clip", {"images": urls, "texts": ["a"]}, "image"),
        ("clip", {}, "image"),
        ("clip", {"images": [*urls[:1] * 65]}, "image"),
        ("clip", {"images": ["https://example.org/a.png"]}, "image"),
        ("clip", {"images": [urls[0], make_bomb()]}, "image"),
        ("mlm", {"images": urls}, "image"),
    ):
        with pytest.raises(cohere.BadRequestError):
            cohere_client.embed(model=model, input_type=kind, **given)


def test_the_routes_of_text_embeddings_inference(server, models):
    model = models["mlm"]

    def post(path, **body):
        answer = server.post(path, {"model": "mlm", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    normalized = cloze.embed(model, TEXTS, normalize=True)
    assert np.array(post("/embed", inputs=TEXTS)) == pytest.approx(normalized, abs=1e-5)
    raw = post("/embed", inputs=TEXTS[0], normalize=False)
    assert np.array(raw) == pytest.approx(cloze.embed(model, TEXTS[:1]), abs=1e-5)
    tokens = cloze.embed(model, TEXTS, pooling="none")
    for found, one in zip(post("/embed_all", inputs=TEXTS), tokens, strict=True):
        assert np.array(found) == pytest.approx(one.vectors, abs=1e-5)
    found = post("/similarity", inputs={"source_sentence": TEXTS[0], "sentences": TEXTS})
    assert found == pytest.approx(cloze.similarity(model, TEXTS[0], TEXTS).scores[0], abs=1e-5)
    (first, *_) = post("/tokenize", inputs=TEXTS)
    aligned = cloze.tokenize(model, TEXTS[0])
    assert [one["id"] for one in first] == list(aligned.ids)
    assert [one["special"] for one in first] == [True, *[False] * (len(first) - 2), True]
    assert server.client.get("/info").json()["model_id"] == "mlm"


def test_predict_and_rerank_of_text_embeddings_inference(server, models):
    model = models["labels"]

    def post(path, **body):
        answer = server.post(path, {"model": "labels", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = post("/predict", inputs=["a b", "c"])  # one pair
    assert {one["label"]: one["score"] for one in found} == pytest.approx(
        dict(cloze.classify(model, "a b", "c").scores), abs=1e-5
    )
    found = post("/predict", inputs=[["a b"], ["c", "d"]])
    assert len(found) == 2
    assert found[0][0]["score"] == pytest.approx(cloze.classify(model, "a b").score, abs=1e-5)
    assert found[1][0]["score"] == pytest.approx(cloze.classify(model, "c", "d").score, abs=1e-5)
    ranking = cloze.rerank(model, "a b", TEXTS)
    found = post("/rerank", query="a b", texts=TEXTS, return_text=True)
    assert [one["text"] for one in found] == [one.text for one in ranking.documents]
    raw = post("/rerank", query="a b", texts=TEXTS, raw_scores=True)
    odds = np.array([one.score / (1 - one.score) for one in ranking.documents])
    assert [one["score"] for one in raw] == pytest.approx(np.log(odds), abs=1e-4)
    refused = server.post("/embed_sparse", {"inputs": "a"})
    assert refused.status_code == 400
    assert "sparse" in refused.json()["error"]
