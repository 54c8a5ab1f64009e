"""`push_to_hub`: upload a model to the Hugging Face Hub."""

import shutil
import tempfile
from pathlib import Path

from cloze.checkpoint.model import Model, not_a_model_error
from cloze.errors import InputError, MissingExtraError
from cloze.files import PathLike, write_text
from cloze.report.model_card import CARD, build_short_card
from cloze.tasks.info import info
from cloze.tasks.inputs import resolve_model


def push_to_hub(
    model: Model | PathLike,
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str = "Upload the model",
    revision: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model to the Hugging Face Hub, and return the address of its page.

    The files are those of `Model.save`. The model card (README.md) is that of the folder that the
    model was loaded from, or else a short one. `cloze.load(repo_id)` loads the model again. Needs
    the extra `hub`.

    Args:
        model: a model, or its folder.
        repo_id: "org/name" or "user/name"; it is created if it does not exist.
        private: whether a new repository is private (default: as the organization's settings say).
        commit_message: of the commit that adds the files.
        revision: the branch to upload to (default: main).
        token: an access token with the right to write (default: the one that `hf auth login` has
            stored, or that of the environment variable HF_TOKEN).
    """
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingExtraError("uploading to the hub", extra="hub") from None
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    with tempfile.TemporaryDirectory(prefix="cloze-") as temporary:
        folder = found.save(Path(temporary) / "model")
        card = None if found.folder is None else found.folder / CARD
        if card is not None and card.is_file():
            shutil.copy(card, folder / CARD)
        else:
            write_text(folder / CARD, build_short_card(repo_id, info(found)))
        api = HfApi(token=token)
        try:
            repository = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repository.repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
            )
        except Exception as error:  # the hub's client raises errors of many types
            raise InputError(
                f"{repo_id} could not be uploaded: {error}",
                fix="check the name and the network, and log in with `hf auth login` or pass a "
                "token that may write",
            ) from error
    return str(repository)
