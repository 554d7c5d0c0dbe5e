import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.parse.redact import (
    REDACTED,
    answer_spans,
    redact,
    redact_answer,
    redact_argv,
    redact_environment,
    redact_headers,
    replace_spans,
    secret_spans,
)

# Real-looking values are put together here, so that no scanner takes this file for a leak.
LETTERS = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU0vW1xY"


def made(*parts: str) -> str:
    return "".join(parts)


HF = made("hf", "_", LETTERS, "zz")
OPENAI = made("sk", "-", LETTERS, "T3Blbk", LETTERS)
OPENAI_PROJECT = made("sk", "-proj-", LETTERS, "_", LETTERS)
ANTHROPIC = made("sk", "-ant-", "api03-", LETTERS)
GITHUB = made("gh", "p_", LETTERS, "abcd")
JWT = made("ey", "JhbGciOiJIUzI1NiJ9", ".", "ey", "JzdWIiOiIxMjM0NTY3ODkwIn0", ".", LETTERS)
RSA = made("-----BEGIN RSA ", "PRIVATE KEY-----\nMIIEow", LETTERS, "\nabc\n-----END RSA ", "PRIVATE KEY-----")

# form, secret: the form holds one `%s` where the secret stands
BY_FORM = [
    HF,
    OPENAI,
    OPENAI_PROJECT,
    ANTHROPIC,
    GITHUB,
    JWT,
    made("api", "_org_", LETTERS),
    made("sk", "-or-v1-", "0123456789abcdef" * 4),
    made("sk", "-", "Xy12_aBcDeFgHiJkLmNoPq"),
    made("sk", "_live_", LETTERS),
    made("gh", "s_", LETTERS, "abcd"),
    made("github", "_pat_", LETTERS, "_", LETTERS),
    made("gl", "pat-", LETTERS[:20]),
    made("AK", "IA", "IOSFODNN7EXAMPLE"),
    made("AS", "IA", "IOSFODNN7EXAMPLE"),
    made("AI", "za", LETTERS, "abc"),
    made("ya", "29.", LETTERS),
    made("GOC", "SPX-", LETTERS),
    made("xo", "xb-", "123456789012-", LETTERS),
    made("xo", "xp-", "123456789012-", LETTERS),
    made("xa", "pp-1-", "A012-", LETTERS),
    made("npm", "_", LETTERS, "abcd"),
    made("py", "pi-", "AgEIcHlwaS5vcmc", LETTERS, LETTERS),
    made("dckr", "_pat_", LETTERS),
    made("nv", "api-", LETTERS, LETTERS),
    made("dop", "_v1_", "0123456789abcdef" * 4),
    made("S", "G.", LETTERS[:22], ".", LETTERS),
    made("gs", "k_", LETTERS, LETTERS),
    made("r", "8_", LETTERS, "abcde"),
    made("pp", "lx-", LETTERS),
    made("xa", "i-", LETTERS, LETTERS),
    made("tgp", "_v1_", LETTERS),
    made("wandb", "_v1_", LETTERS),
    made("da", "pi", "0123456789abcdef" * 2),
    made("ts", "key-auth-", "kFGHxyz-", LETTERS),
    made("hv", "s.", LETTERS),
    RSA,
]

IN_TEXT = [
    # command lines
    ("vllm serve m --api-key %s --port 8000", "k1"),
    ("vllm serve m --api-key=%s --port 8000", "abc"),
    ("vllm serve m --api_key %s", "abc"),
    ("sglang.launch_server --admin-api-key '%s' --tp 4", "a b c"),
    ('llama-server --api-key "%s" -m x.gguf', "p@ss, word"),
    ("vllm\0serve\0--api-key\0%s\0--port\08000\0", "k1"),
    ("vllm\0serve\0--api-key=%s\0--port\08000\0", "k1"),
    ("docker run -e HF_TOKEN=%s -p 8000:8000 vllm/vllm-openai", "abcdef"),
    ("docker run --env HUGGING_FACE_HUB_TOKEN=%s img", "abcdef"),
    ("docker run -e 'HF_TOKEN=%s' img", "abc def"),
    ("huggingface-cli login --token %s --add-to-git-credential", "abcdef"),
    ("hf auth login --token=%s", "abcdef"),
    ("llama-server --hf-token %s", "abcdef"),
    ("mysql --password=%s db", "123456"),
    ("mysqldump -u root -p%s db", "hunter2"),
    ("sshpass -p %s ssh host", "hunter2"),
    ("docker login -u me -p %s registry.local", "hunter2"),
    ("curl -u admin:%s http://h/metrics", "hunter2"),
    ("curl -s --user admin:%s http://h/metrics", "hunter2"),
    ('curl -H "Authorization: Bearer %s" http://h/v1/models', "abc"),
    ("curl -H 'X-Api-Key: %s' http://h/v1/models", "abc"),
    ("['vllm', 'serve', '--api-key', '%s', '--port', '8000']", "k1"),
    ('"Cmd":["--model","m","--api-key","%s","--port","80"]', "k1"),
    ('"Args": [\n  "--api-key",\n  "%s"\n]', "k1"),
    ("args:\n  - --api-key\n  - %s\n  - --port", "k1"),
    ("ExecStart={ path=/usr/bin/vllm ; argv[]=/usr/bin/vllm serve m --api-key %s ; ignore_errors=no }", "k1"),
    ("vllm serve m \\\n  --api-key \\\n  %s \\\n  --port 8000", "k1"),
    # environment
    ("PATH=/bin\0HF_TOKEN=%s\0HOME=/root\0", "abc def, {x}"),
    ("PATH=/bin\0DB_PASSWORD=%s\0HOME=/root\0", 'it\'s "quoted" & long'),
    ("PATH=/bin\nHOME=/root\nPGPASSWORD=%s\nLANG=C\n", "my pass phrase"),
    ("PATH=/bin\nHOME=/root\nMYSQL_PWD=%s\nLANG=C\n", "my pass phrase"),
    ("HF_TOKEN=%s vllm serve m", "abcdef"),
    ("export OPENAI_API_KEY=%s", "abc&def;x"),
    ('export OPENAI_API_KEY="%s"', "abc def"),
    ("WANDB_API_KEY=%s", "0123456789abcdef0123456789abcdef01234567"),
    ("AWS_SECRET_ACCESS_KEY=%s", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SESSION_TOKEN=%s", "FwoGZXIvYXdzEBYaD//////////wE="),
    ("GF_SECURITY_ADMIN_PASSWORD=%s", "admin"),
    ("MODELSCOPE_API_TOKEN=%s", "abcdef"),
    ("OPENAI_API_KEY_PROD=%s", "abcdef"),
    ("API_KEY_1=%s", "abcdef"),
    ("JUPYTER_TOKEN=%s", "abcdef"),
    ("VLLM_API_KEY=%s", "token-abc123"),
    ("LITELLM_MASTER_KEY=%s", "1234"),
    ("SMTP_PASS=%s", "hunter2"),
    ("SECRET=%s", "hunter2"),
    # unit files
    ("[Service]\nEnvironment=HF_TOKEN=%s\nExecStart=/bin/vllm\n", "abcdef"),
    ('[Service]\nEnvironment="HF_TOKEN=%s" "HF_HOME=/data"\n', "abc def"),
    ("Environment=HF_HOME=/data HF_TOKEN=%s VLLM_LOGGING_LEVEL=INFO\n", "abcdef"),
    ("SetCredential=key:%s\n", "some words"),
    # headers
    ("Authorization: Bearer %s\r\nAccept: */*", "abc"),
    ("authorization: Basic %s\nserver: x", "dXNlcjpwYXNz"),
    ("Authorization: %s\n", "abcdef"),
    ("Proxy-Authorization: Basic %s\n", "dXNlcjpwYXNz"),
    ("Cookie: %s\n", "session=abc; theme=dark"),
    ("Set-Cookie: %s\r\nX: y", "sid=abc; HttpOnly; Path=/"),
    ("X-API-Key: %s\n", "abc"),
    ("api-key: %s\n", "abc"),
    ("X-Auth-Token: %s\n", "abcdef"),
    ('{"Authorization": "Bearer %s", "Accept": "x"}', "abc"),
    ("{'authorization': 'Bearer %s'}", "abc"),
    ("INFO request with bearer %s refused", "abc123def456"),
    # URLs
    ("postgresql://user:%s@db:5432/x", "hunter2"),
    ("http://:%s@gpubox:8000/v1", "hunter2"),
    ("https://oauth2:%s@git.local/x.git", "abcdef"),
    ("HTTPS_PROXY=http://me:%s@proxy:3128", "hunter2"),
    ("GET /v1/models?api_key=%s&limit=3 HTTP/1.1", "abc"),
    ("GET /api?token=%s HTTP/1.1", "abcdef"),
    ("https://x/y?key=%s&z=1", "abcdefgh12"),
    ("https://s3/x?X-Amz-Signature=%s&X-Amz-Date=1", "0123456789abcdef"),
    ("https://blob/x?sv=2020&sig=%s&se=1", "abc%2Bdef%3D"),
    ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=%s;EndpointSuffix=y", "abcdefgh=="),
    # JSON, YAML, Python
    ('{"api_key": "%s", "model": "m"}', "k1"),
    ('{"api_key":["%s"],"model":"m"}', "k1"),
    ('{"apiKey":"%s"}', "k1"),
    ('{"client_secret":"%s"}', "abc"),
    ('{"password": "%s"}', 'p\\"q'),
    ('{"access_token": "%s", "expires_in": 3600}', "abcdef"),
    ('{"token": "%s"}', "abcdef0123456789"),
    ('"config": "{\\"api_key\\": \\"%s\\"}"', "k1"),
    ('{"auths":{"r":{"auth":"%s"}}}', "dXNlcjpwYXNzd29yZDE="),
    ("Namespace(model='m', api_key='%s', port=8000)", "k1"),
    ("Namespace(model='m', api_key=['%s'], port=8000)", "k1"),
    ("api_key: %s\nmodel: m\n", "k1"),
    ("  hf_token: %s\n", "abcdef"),
    ("api_keys:\n  - %s\n", "abc"),
    ("- name: HF_TOKEN\n  value: %s\n", "abcdef"),
    ('{"name":"HF_TOKEN","value":"%s"}', "abcdef"),
    ('"Env":["PATH=/bin","HF_TOKEN=%s","X=1"]', "abc, def"),
    ("password = %s\n", "hunter2"),
    ("INFO using API key: %s", "k1"),
    ("db password: %s", "hunter2"),
]

LOOK_ALIKES = [
    "--max-num-batched-tokens 8192",
    "--tokenizer Qwen/Qwen3-8B --tokenizer-mode auto",
    "--served-model-name sk-tiny",
    "--served-model-name sk-tiny-instruct-135m-q8",
    "max_tokens=8192, min_tokens=0, tokens=8192",
    '{"max_tokens": 16, "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}',
    "HF_HOME=/data/hf\nHF_HUB_CACHE=/data/hub\nHF_HUB_OFFLINE=1\n",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
    "HF_TOKEN_PATH=/root/.cache/huggingface/token",
    "HF_TOKEN=$HF_TOKEN vllm serve m",
    'docker run -e HF_TOKEN=${HF_TOKEN} -e "HF_TOKEN" img',
    "docker run -u 1000:1000 -p 8000:8000 img",
    '--api-key "$VLLM_API_KEY" --port 8000',
    "--api-key --port 8000",
    "api_key=None, api_key: str | None = None",
    '{"api_key": null, "password": "", "hf_token": null}',
    "eos_token='<|im_end|>', bos_token=\"<s>\", pad_token: </s>",
    '{"eos_token": "<|endoftext|>", "unk_token": "[UNK]", "eos_token_id": 151645}',
    '{"token":"Hello","logprob":-0.01,"top_logprobs":[{"token":" 0123456789ab","logprob":-1.0}]}',
    'vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 3.0',
    "vllm:time_per_output_token_seconds_sum 12.5",
    "Time to first token: 0.23s, per token: 12 ms, tokens/s: 84.0",
    "GPU KV cache size: 355,200 tokens",
    "skip_special_tokens=True, reasoning_parser='qwen3', think_start_token=<think>",
    "num_key_value_heads=8, key_cache, keyword: value, primary_key: id, public_key=abc",
    "PWD=/root\nOLDPWD=/home\nSHELL=/bin/sh\n",
    "SSH_AUTH_SOCK=/run/agent.sock",
    "--ssl-keyfile /etc/tls/key.pem --ssl-certfile /etc/tls/cert.pem",
    "hf_transfer hf_hub_download hf_xet HF_XET_HIGH_PERFORMANCE=1",
    "GPU-5e8c1a7e-1b2c-3d4e-5f60-718293a4b5c6, 00000000:06:00.0",
    "http://gpubox:8000/v1/models, http://127.0.0.1:8000, ssh://root@gpubox:2222",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "secretName: tls, password_file: /run/secrets/x, token_limit=4096, TOKENIZERS_PARALLELISM=false",
    "bearer authentication is used",
    "passwd: files systemd",
    "Unexpected token: } in JSON",
    "token=123 tokens_per_s=84.2 token_count: 9",
    "forward_pass: 3 ms, first_pass=2, bypass=on, compass: north",
    "author: me, authors=x, cookiecutter: y, monkey=1, turkey: 2",
    "/usr/share/keyrings/nvidia.gpg keyboard=us hotkey: x",
    "ghcr.io/ggml-org/llama.cpp:server AKIArtifact xoxo",
    "chunked prefill is enabled with max_num_batched_tokens=2048.",
    "multimodal: image_token_id=151655, vision_start_token_id=151652",
    '{"finish_reason":"stop","tool_calls":[{"function":{"name":"f","arguments":"{\\"key\\": \\"v\\"}"}}]}',
]


@pytest.mark.parametrize("secret", BY_FORM)
@pytest.mark.parametrize("around", ["%s", "x %s y", '{"content": "see %s."}', "'%s'", "a=%s\n"])
def test_a_secret_is_known_by_its_form(secret, around):
    text = redact(around % secret)
    assert REDACTED in text
    assert not any(part in text for part in (secret, secret[8:24]))
    assert text == around % REDACTED or around == "%s"


@pytest.mark.parametrize(("text", "secret"), IN_TEXT, ids=[text[:40] for text, _ in IN_TEXT])
def test_a_secret_is_known_by_where_it_stands(text, secret):
    assert redact(text % secret if text.count("%") == 1 else text.replace("%s", secret)) == text.replace(
        "%s", REDACTED
    )


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_what_only_looks_like_a_secret_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize("text", [text.replace("%s", secret) for text, secret in IN_TEXT] + LOOK_ALIKES)
def test_twice_is_the_same_as_once(text):
    once = redact(text)
    assert redact(once) == once


def test_the_users_own_key_goes_in_every_spelling():
    key = 'my "own" key/7'
    body = json.dumps({"echo": key}) + " " + key + " my%20%22own%22%20key%2F7 bXkgIm93biIga2V5Lzc="
    assert redact(body, [key]).replace(REDACTED, "").strip('{}" :echo=') == ""


def test_a_short_key_goes_as_a_word_only():
    assert redact("ab12 ab123 xab12 (ab12)", ["ab12"]) == f"{REDACTED} ab123 xab12 ({REDACTED})"


def test_a_key_that_is_a_plain_word_goes_only_where_its_name_says_so():
    assert redact("vllm serve m --api-key vllm", ["vllm"]) == f"vllm serve m --api-key {REDACTED}"


def test_several_keys_after_one_flag_all_go_and_a_model_does_not():
    assert (
        redact("vllm serve --api-key k1 k2 --port 80")
        == f"vllm serve --api-key {REDACTED} {REDACTED} --port 80"
    )
    assert redact("vllm serve --api-key k1 org/model") == f"vllm serve --api-key {REDACTED} org/model"
    assert redact("a\0--api-key\0k1\0k2\0--tp\04\0") == f"a\0--api-key\0{REDACTED}\0{REDACTED}\0--tp\04\0"


def test_a_models_own_text_keeps_its_code_but_loses_real_keys():
    code = json.dumps({"choices": [{"message": {"content": 'password = "x"\ntoken: abc\nAPI_KEY=1'}}]})
    assert redact_answer(code) == code
    assert redact_answer(code.replace("abc", HF)) == code.replace("abc", REDACTED)
    assert redact_answer('{"api_key":"k1","token":"a"}') == f'{{"api_key":"{REDACTED}","token":"a"}}'


def test_argument_lists_keep_their_shape():
    argv = ("vllm", "serve", "m", "--api-key", "a b", "-e", "HF_TOKEN=x y", "--hf-token=abc", "")
    assert redact_argv(argv) == (
        *("vllm", "serve", "m", "--api-key", REDACTED, "-e"),
        *(f"HF_TOKEN={REDACTED}", f"--hf-token={REDACTED}", ""),
    )
    assert redact_argv(()) == ()
    assert redact_argv(("odd\0argument", "--api-key=x")) == ("odd\0argument", f"--api-key={REDACTED}")


def test_environment_and_headers_are_known_by_their_names():
    environment = {"HF_TOKEN": "x y", "PWD": "/root", "URL": "http://a:b@c", "MAX_TOKENS": "9", "API_KEY": ""}
    assert redact_environment(environment) == {
        **environment,
        "HF_TOKEN": REDACTED,
        "URL": f"http://a:{REDACTED}@c",
    }
    headers = [("authorization", "x"), ("set-cookie", "a=b"), ("x-api-key", "1"), ("server", "uvicorn")]
    assert [value for _, value in redact_headers(headers)] == [REDACTED, REDACTED, REDACTED, "uvicorn"]


def test_an_unfinished_private_key_goes_to_the_end():
    cut = RSA[: len(RSA) // 2]
    assert redact(f"a {cut}") == f"a {REDACTED}"


def test_a_letter_that_grows_when_lowered_does_not_shift_the_cut():
    assert redact("İİİİ api_key=abc İ") == f"İİİİ api_key={REDACTED} İ"


@given(st.text(alphabet=st.sampled_from("abc=:\"'\\ \n\0-_[]{},$<token>keyAPI"), max_size=80))
def test_any_text_is_taken_and_twice_is_once(text):
    once = redact(text)
    assert redact(once) == once
    for spans in (secret_spans(text), answer_spans(text)):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        assert replace_spans(text, spans).count(REDACTED) >= len(spans)
