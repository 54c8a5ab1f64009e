"""The settings of the server, importable without torch and without the libraries of the extra."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Config, Help, Range
from cloze.errors import ConfigError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
WORKERS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # read by its library: a folder for all workers
MAX_TEXTS = 2048  # inputs of a request, as in OpenAI's API


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """Address, limits and keys of a server."""

    host: Annotated[str, Help("Address to listen on")] = "127.0.0.1"
    port: Annotated[int, Range(0, 65_535), Help("Port; 0 selects a free one")] = 8000
    api_keys: tuple[str, ...] = ()  # requests need one of these; none: no key is needed
    allow_no_key: Annotated[bool, Help("Allow a public address without a key")] = False
    allowed_hosts: tuple[str, ...] = ()  # values of the header Host, besides those of loopback
    max_body_bytes: Annotated[int, Range(1, 1 << 40)] = 8 << 20
    max_request_tokens: Annotated[int, Range(1, 1 << 40)] = 1 << 18
    max_queue_tokens: Annotated[int, Range(1, 1 << 40)] = 1 << 18
    batch_tokens: Annotated[int | None, Range(1, 1 << 30)] = None  # None: by the device
    deadline: Annotated[float, Range(1e-3, 86_400)] = 60.0  # seconds
    drain_seconds: Annotated[float, Range(0, 86_400)] = 30.0
    preload: bool = False
    workers: Annotated[int, Range(1, 256), Help("Number of worker processes")] = 1
    indexes: tuple[str, ...] = ()  # folders of indexes to search, or NAME=FOLDER
    allow_indexing: Annotated[bool, Help("Allow changes of indexes over HTTP")] = False
    finetuning_folder: str | None = None  # of fine-tuning jobs; None: there are no such routes
    max_finetuning_jobs: Annotated[int, Range(1, 256)] = 1  # that run at a time
    max_upload_bytes: Annotated[int, Range(1, 1 << 40)] = 256 << 20
    device: str | None = None
    dtype: str = "float32"
    log_format: Literal["json", "text", "none"] = "json"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(key) < 8 or not key.isascii() or " " in key for key in self.api_keys):  # noqa: PLR2004
            raise ConfigError(
                "an API key is shorter than 8 characters, or has spaces or characters that are "
                "not ASCII",
                fix="use a random key: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )
        if self.is_public and not self.api_keys and not self.allow_no_key:
            raise ConfigError(
                f"the address {self.host} can be reached from other machines, but there is no key",
                fix="set keys in the environment variable CLOZE_API_KEYS or with --api-key-file, "
                "listen on 127.0.0.1, or pass --allow-no-key",
            )
        for name, is_allowed in (
            ("fine-tuning", self.finetuning_folder is not None),
            ("indexing", self.allow_indexing),
        ):
            if is_allowed and not self.api_keys:
                raise ConfigError(
                    f"{name} over HTTP is allowed, but there is no key",
                    fix="set keys in the environment variable CLOZE_API_KEYS or with "
                    f"--api-key-file, or leave out --allow-{name.replace('-', '')}",
                )

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the address."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted values of the header Host, without ports; * accepts all.

        A server on loopback accepts its own names only, so that a page from elsewhere cannot reach
        it under another name (DNS rebinding). A public server has a key.
        """
        if self.is_public and not self.allowed_hosts:
            return ("*",)
        return (*LOOPBACK_NAMES, *self.allowed_hosts)
