"""The model hub refuses: no token, a token without access, or no network.

Seen in: huggingface_hub 0.16 to 1.x `utils/_http.py` (`hf_raise_for_status`), `errors.py` (GatedRepoError,
RepositoryNotFoundError, LocalEntryNotFoundError), transformers `utils/hub.py`.
"""

import re

from bringup.rules import Rule, Sign, read_signs
from bringup.values.finding import Fix

_REFUSED = re.compile(
    r"40[13] Client Error|gated|Gated|Unauthorized|Access to model|restricted|awaiting a review"
)
_TOKEN = Fix(
    type="env",
    name="HF_TOKEN",
    new="a token that may read it",
    cost="in the unit or container, not only in the shell",
)
_LICENCE = Fix(
    type="hardware", name="accept the licence on the model page", new="with the account of the token"
)
_LOCAL = Fix(
    type="flag", name="--model", new="a local folder", kind="workaround", cost="download it elsewhere first"
)

SIGNS = (
    Sign(
        kind="hub.auth",
        pattern=re.compile(
            r"403 (?:Client Error|Forbidden).*(?:hf|hub|huggingface|resolve|api/models)"
            r"|GatedRepoError:? [^\n]{0,40}403|403[^\n]{0,80}(?i:gated)"
            r"|not in the authorized list|awaiting a review from the repo"
            r"|Access to model (?P<model>\S+) is restricted and you are not|Your request to access model"
        ),
        sure=0.95,
        summary="the hub knows the token, and it has no access to this model (403)",
        explanation="The licence is not accepted by the token's account, or the token's scope leaves gated "
        "models out.",
        fixes=(_LICENCE, _TOKEN),
        next_measurement="hf auth whoami; the model's page with that account",
    ),
    Sign(
        kind="hub.auth",
        pattern=re.compile(
            r"GatedRepoError|Cannot access gated repo|You are trying to access a gated repo"
            r"|is gated\. You must be authenticated"
            r"|You must (?:be authenticated|have access to it and be authenticated)|401 Client Error"
            r"|Access to model \S+ is restricted"
            r"|Invalid user token|Invalid credentials in Authorization header|Invalid username or password"
        ),
        unless=re.compile(
            r"403 Client Error|not in the authorized list|RepositoryNotFoundError|Repository Not Found"
        ),
        sure=0.94,
        summary="the hub wants a token for this model, and the process has none that it takes (401)",
        explanation="A token in the shell does not reach a unit, a container or Ray's workers.",
        fixes=(_TOKEN, _LICENCE),
        next_measurement="hf auth whoami as the user of the engine; systemctl show UNIT -p Environment",
    ),
    Sign(
        kind="hub.auth",
        pattern=re.compile(
            r"RepositoryNotFoundError|Repository Not Found for url"
            r"|is not a local folder and is not a valid model identifier"
        ),
        needs=re.compile(
            r"401 Client Error|404 Client Error|private or gated|Repository Not Found|pass a token"
        ),
        sure=0.8,
        summary="the hub shows no such model: the name is wrong, or it is private and the process has no "
        "token",
        explanation="Without a token the hub answers 401 for a name that does not exist as for one that is "
        "private.",
        fixes=(_TOKEN, Fix(type="flag", name="--model", new="the exact name on the hub, or a local folder")),
        next_measurement="hf auth whoami; open the model's page",
    ),
    Sign(
        kind="hub.auth",
        pattern=re.compile(
            r"(?:^|[\s'\"])[\w.-]+/[\w.-]+ is not a local folder and is not a valid model identifier"
        ),
        sure=0.65,
        summary="the hub shows no such model: the name is wrong, or it is private and the process has no "
        "token",
        fixes=(Fix(type="flag", name="--model", new="the exact name on the hub, or a local folder"), _TOKEN),
        next_measurement="open the model's page; hf auth whoami",
    ),
    Sign(
        kind="hub.offline",
        pattern=re.compile(
            r"LocalEntryNotFoundError|outgoing traffic has been disabled|OfflineModeIsEnabled"
            r"|(?:Error: |^)We couldn't connect to 'https://"
            r"|[Cc]annot find the requested files in the (?:disk|local) cache"
            r"|Temporary failure in name resolution|NameResolutionError"
            r"|Max retries exceeded with url: [^\n]{0,80}(?:/resolve/|/api/models|config\.json|\.safetensors)"
        ),
        unless=_REFUSED,
        sure=0.75,
        summary="the hub cannot be reached, and the files are not in the cache",
        fixes=(
            Fix(type="env", name="HF_HOME", new="the folder that holds the downloaded model"),
            Fix(type="env", name="HF_HUB_OFFLINE", new="0", old="1", cost="needs a network"),
            _LOCAL,
        ),
        next_measurement="hf cache scan as the user of the engine; curl -I the hub's address",
    ),
)

RULE = Rule(
    kinds=("hub.auth", "hub.offline"),
    title="the model hub refuses",
    literals=(
        "401 Client Error",
        "403 ",
        "404 Client Error",
        "ated repo",
        "GatedRepo",
        "is gated",
        "authorized list",
        "awaiting a review",
        "Access to model",
        "request to access model",
        "You must be authenticated",
        "You must have access",
        "Invalid user token",
        "Invalid credentials",
        "Invalid username",
        "RepositoryNotFound",
        "Repository Not Found",
        "not a valid model identifier",
        "private or gated",
        "pass a token",
        "Unauthorized",
        "LocalEntryNotFound",
        "outgoing traffic",
        "OfflineMode",
        "connect to 'https",
        "annot find the requested files",
        "name resolution",
        "Max retries exceeded",
        "NameResolutionError",
    ),
    read=read_signs(SIGNS),
    meaning="Files of the model could not be fetched because the hub did not give them.",
    told_apart="401: no token, or one that is not valid. 403: a valid token without access. Neither: no "
    "network.",
    cure="HF_TOKEN where the process runs, the licence accepted by that account, or a local folder.",
    source="huggingface_hub errors.py, utils/_http.py hf_raise_for_status, file_download.py; transformers "
    "utils/hub.py",
)
