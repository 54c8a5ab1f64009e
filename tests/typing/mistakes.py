"""Mistakes in user code that mypy finds. An ignored error that disappears is reported: `make lint`.

Nothing here is run.
"""

import cloze

model = cloze.load("cloze-en")
cloze.load(None)  # type: ignore[arg-type]
cloze.fil(model, "a")  # type: ignore[attr-defined]
model.fil("a")  # type: ignore[attr-defined]
model.fill("A [MASK].", tpo=3)  # type: ignore[call-overload]
model.fill(["A [MASK]."]).best  # type: ignore[attr-defined]
model.fill(5)  # type: ignore[call-overload]
cloze.finetune("classify", "cloze-en", "a.tsv", "out", epoch=2)  # type: ignore[call-arg]
cloze.finetune("classify", "cloze-en", "a.tsv", "out", epochs="2")  # type: ignore[arg-type]
cloze.finetune("classify", "cloze-en", "a.tsv", "out", truncation="end")  # type: ignore[arg-type]
cloze.pretrain("a.txt", "out", minuts=3)  # type: ignore[call-arg]
cloze.pretrain("a.txt", "out", lr="high")  # type: ignore[arg-type]
cloze.distill("cloze-en", "a.txt", "out", pairs="nsp")  # type: ignore[call-arg]
cloze.glue("cloze-en", "glue", tag_scheme="IOB2")  # type: ignore[call-arg]
cloze.vocabulary("a.txt", kind="wordpeace")  # type: ignore[arg-type]
model.to("cpu", 16)  # type: ignore[arg-type]
cloze.explain.attention(model, "a", layers="x")  # type: ignore[arg-type]
