"""Models on the hub: small files through its cache, headers of weight files by ranged reads. Never a weight.

The library is imported by the functions that need it. It looks at HF_HUB_OFFLINE, HF_HOME, HF_ENDPOINT and
the user's token by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bringup.errors import BringupError, HostError, UsageError
from bringup.values.model import Tensor

_MARK = "config.json"
_TIMEOUT = 20.0  # s, of one answer
_SHORT_TIMEOUT = 5.0  # s, of what is nice to have


def cached_folder(repo: str, *, revision: str | None = None, cache: Path | None = None) -> Path | None:
    """The folder of a model in the hub's cache on this machine; None where its config is not there."""
    from huggingface_hub import constants

    folder = (cache or Path(constants.HF_HUB_CACHE)) / f"models--{repo.replace('/', '--')}"
    if not folder.is_dir():
        return None  # known without the rest of the library, whose import takes longer than a plan

    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo, _MARK, revision=revision, cache_dir=cache)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def cached_models(*, cache: Path | None = None) -> tuple[tuple[str, Path], ...]:
    """Name and newest folder of every model in the hub's cache on this machine."""
    from huggingface_hub import constants

    found: list[tuple[str, Path]] = []
    for place in sorted((cache or Path(constants.HF_HUB_CACHE)).glob("models--*")):
        snapshots = sorted(place.glob("snapshots/*"), key=lambda path: path.stat().st_mtime)
        if snapshots:
            found.append((place.name.removeprefix("models--").replace("--", "/"), snapshots[-1]))
    return tuple(found)


def list_quantized(repo: str, *, limit: int, endpoint: str | None = None) -> tuple[str, ...]:
    """Models of the hub that say they are `repo` in another number format, the most fetched first.

    Raises:
        UsageError, HostError: as for the list of files.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint)
    with _told(repo, None):
        api.model_info(repo, timeout=_SHORT_TIMEOUT)  # the list itself knows no time limit
        found = api.list_models(filter=f"base_model:quantized:{repo}", sort="downloads", limit=limit)
        return tuple(model.id for model in found)


def list_files(repo: str, *, revision: str | None = None, endpoint: str | None = None) -> tuple[str, ...]:
    """The names of a model's files on the hub. Fails at once where the hub is not reachable.

    Raises:
        UsageError: no such model or revision.
        HostError: the hub does not answer, or not without a permission.
    """
    from huggingface_hub import HfApi

    with _told(repo, revision):
        found = HfApi(endpoint=endpoint).model_info(repo, revision=revision, timeout=_TIMEOUT)
    return tuple(file.rfilename for file in found.siblings or ())


def fetch_file(
    repo: str,
    name: str,
    *,
    revision: str | None = None,
    cache: Path | None = None,
    endpoint: str | None = None,
) -> Path:
    """A small file of a model, from the cache or fetched into it.

    Raises:
        UsageError, HostError: as for the list of files.
    """
    from huggingface_hub import hf_hub_download

    with _told(repo, revision):
        path = hf_hub_download(
            repo, name, revision=revision, cache_dir=cache, endpoint=endpoint, etag_timeout=_TIMEOUT
        )
    return Path(path)


def fetch_headers(
    repo: str, *, revision: str | None = None, endpoint: str | None = None
) -> tuple[Tensor, ...]:
    """Every tensor of a model's safetensors files by their headers; none where it has no such files.

    Raises:
        UsageError, HostError: as for the list of files.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError

    with _told(repo, revision):
        try:
            found = HfApi(endpoint=endpoint).get_safetensors_metadata(
                repo, revision=revision, timeout=_TIMEOUT
            )
        except NotASafetensorsRepoError:
            return ()
    return tuple(
        Tensor(
            name=name,
            shape=tuple(info.shape),
            dtype=str(info.dtype),
            bytes=info.data_offsets[1] - info.data_offsets[0],
            file=file,
        )
        for file, metadata in found.files_metadata.items()
        for name, info in metadata.tensors.items()
    )


@contextmanager
def _told(repo: str, revision: str | None) -> Iterator[None]:
    """The library's errors in our words."""
    from huggingface_hub import errors

    # Its own error is one of the HTTP library's, which differs by version and raises the rest by itself.
    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except errors.GatedRepoError:
        raise HostError(
            f"the hub gives `{repo}` only to those it has let in",
            hint="ask for access on the model's page, then `hf auth login` or set HF_TOKEN",
        ) from None
    except errors.RevisionNotFoundError:
        raise UsageError(f"`{repo}` has no revision `{revision}` on the hub") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise UsageError(
            f"the hub has no model `{repo}`, or shows it only to others",
            hint="for a private model `hf auth login` or set HF_TOKEN",
        ) from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise _unreachable(repo, error) from None
    except errors.SafetensorsParsingError as error:
        raise UsageError(f"the weight files of `{repo}` cannot be read: {error}") from None
    except (http_error, OSError) as error:
        raise _unreachable(repo, error) from None


def _unreachable(repo: str, error: BaseException) -> BringupError:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return HostError(
            f"`{repo}` is not in the hub's cache, and HF_HUB_OFFLINE forbids to ask",
            hint="give a config.json with `--model-config FILE`, or unset HF_HUB_OFFLINE",
        )
    reason = str(error).strip().splitlines()
    return HostError(
        f"cannot ask the hub for `{repo}`: {reason[0] if reason else type(error).__name__}",
        hint="give a config.json with `--model-config FILE`",
    )
