"""`cloze info`: describe a model folder."""

from cloze.cli.common import Json, ModelFolder
from cloze.cli.format import print_info, print_json


def info(model: ModelFolder, *, as_json: Json = False) -> None:
    """Show the configuration, parameters, vocabulary, heads and labels of a model."""
    from cloze.tasks.info import info

    found = info(model)
    if as_json:
        print_json(found.to_dict())
    else:
        print_info(found)
