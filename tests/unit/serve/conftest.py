"""A server with a small model for every function."""

import pytest

from served_models import make_models, save_models
from servers import run_server


@pytest.fixture(scope="package")
def models():
    return make_models()


@pytest.fixture(scope="package")
def folders(models, tmp_path_factory):
    return save_models(models, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="package")
def server(folders):
    with run_server(folders) as running:
        yield running
