"""Secrets are masked, and ordinary code is not."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaklink.agent.reading.masks import masked_lines, masked_text
from weaklink.agent.reading.secret_names import MASK, looks_random

KEY = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
RANDOM = "a8F5f167xx44f4964E6c998dee8"

IN_CODE = [
    ("x = ask('sk-0123456789abcdef0123456789abcdef')", "0123456789abcdef"),
    ("x = ask('gsk_" + "a1B2" * 8 + "')", "a1B2"),
    ('run("curl -s -u bob:hunter2 https://x.example")', "hunter2"),
    (r"password = 'it\'s hunter2'", "hunter2"),
    ('connect("Password=hunter2;Server=x")', "hunter2"),
    ("# password: hunter2", "hunter2"),
    ("self.config.apiKey = 'hunter2'", "hunter2"),
    (f'git = "https://{RANDOM}@github.com/x"', RANDOM),
    ('api_key = "hunter2"', "hunter2"),
    ("API_KEY: str = 'hunter2'", "hunter2"),
    (f"client = OpenAI(api_key=os.environ.get('OPENAI_API_KEY', '{KEY}'))", KEY),
    ('os.environ["WANDB_API_KEY"] = "hunter2"', "hunter2"),
    ('os.environ.setdefault("WANDB_API_KEY", "hunter2")', "hunter2"),
    ('parser.add_argument("--password", type=str, default="hunter2")', "hunter2"),
    ('subprocess.run(["mysql", "--password", "hunter2"])', "hunter2"),
    ('subprocess.run("mysql --password=hunter2 db", shell=True)', "hunter2"),
    ('{"user": "bob", "password": "hunter2"}', "hunter2"),
    ("if password == 'hunter2':", "hunter2"),
    (f'wandb.login(key="{RANDOM}")', RANDOM),
    (f'token = "{RANDOM}"', RANDOM),
    ('db = "postgres://bob:hunter2@db.example/x"', "hunter2"),
    (f'requests.get("https://x.example/?access_token={RANDOM}&page=2")', RANDOM),
    (f'headers = {{"Authorization": "Bearer {RANDOM}"}}', RANDOM),
    (f"headers = ['x-api-key: {RANDOM}']", RANDOM),
    ('login("hf_' + "a1B2" * 8 + '")', "a1B2"),
    ("key = 'ghp_" + "a1B2" * 9 + "'", "a1B2"),
    ('aws = "AKIAIOSFODNN7EXAMPLE"', "AKIAIOSFODNN7EXAMPLE"),
    ('g = "AIza' + "a1B2-" * 7 + '"', "a1B2-a1B2"),
    ('slack = "xoxb-123456789012-abcdefGHIJ"', "123456789012"),
    ("url = 'https://hooks.slack.com/services/T000/B000/XXXXyyyyZZZZ'", "XXXXyyyyZZZZ"),
    ('   "source": ["password = \\"hunter2\\"\\n"]', "hunter2"),
    ("jwt = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc123'", "eyJzdWIi"),
    (f"client_secret: Final = '{RANDOM}'", RANDOM),
    ('config["db"]["password"] = r"hunter2"', "hunter2"),
    ("password = (b'hunter2')", "hunter2"),
    ('secret = "an open end hunter2', "hunter2"),
]

IN_CONFIGURATION = [
    ("password: hunter2", "hunter2"),
    ("  db_password = hunter2  ", "hunter2"),
    ("export HF_TOKEN=" + RANDOM, RANDOM),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr"),
    ("- api-key: hunter2", "hunter2"),
    ("ENV API_KEY=hunter2", "hunter2"),
    ("{user: bob, password: hunter2, host: x}", "hunter2"),
    ("<password>hunter2</password>", "hunter2"),
    ("machine x.example login bob password hunter2", "hunter2"),
    ("password: 12345678", "12345678"),
    ("spring.datasource.password=hunter2", "hunter2"),
    ("secretKey: hunter2", "hunter2"),
    ('{"clientSecret": "hunter2"}', "hunter2"),
    (f"Authorization: Basic {base64.b64encode(b'bob:hunter2').decode()}", "Ym9i"),
    ("curl -u x --api-key hunter2 https://x.example", "hunter2"),
    ("Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=abc123=", "abc123"),
]

ORDINARY_CODE = [
    "def sign(private_key: Ed25519PrivateKey | Ed448PrivateKey) -> bytes:",
    'credentials = f"{name}:{word}"',
    'print(f"token={token} key={key}")',
    "connect('password=' + password)",
    r'token = "\\"',
    'url = f"postgres://{user}:{password}@{host}/db"',
    'remote = "ssh://git@example.com/repository"',
    "# token: the next one of the sequence",
    "if not password:",
    'headers = {"Authorization": f"Bearer {token}"}',
    'print("enter the password:", end="")',
    "tokens = tokenizer(text, padding=True)",
    "key = self.key(x)",
    "password_length=8",
    "num_tokens: 128",
    'max_tokens = "128"',
    "torch.manual_seed(1234567890123456789)",
    'pad_token = "[PAD]"',
    'eos_token="<|endoftext|>"',
    'unk_token: str = "<unk>"',
    "query, key, value = self.qkv(x).chunk(3, dim=-1)",
    'for key in ("loss", "accuracy", "learning_rate"):',
    'batch["key"] = "image"',
    'state["model.layers.0.attention.key.weight"]',
    'key = "encoder.layer.11.attention.self.key.weight"',
    'sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
    '{"file": "x.bin", "sha256": "9f86d081884c7d659a2feaa0c55ad015"}',
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "api_key = settings.api_key",
    "def login(password: str, token: str | None = None) -> None:",
    'token = "resnet50_layer4_block2_conv3"',
    'raise ValueError("no password was given")',
    "forward_pass = model(x)",
    'model = "gpt2-medium"  # a basic transformer',
    'monitor_key = "val_loss_epoch_mean"',
    'getattr(config, "api_key", None)',
    'names = ["user", "password", "host"]',
    'parser.add_argument("--password", "-p")',
    "x = x @ self.token_embedding.weight.T",
    "from secrets import token_hex",
    "keys = jax.random.split(key, 2)",
    'tokenizer.add_special_tokens({"mask_token": "[MASK]"})',
    "loss = F.cross_entropy(logits, targets)  # token: the next one",
    "if key == 'train':",
    "lr_schedule = {0: 1e-3, 10: 1e-4}",
    'url = "https://example.com/data/train.csv?page=2&sort=asc"',
]

ORDINARY_CONFIGURATION = [
    "unwrap(payload, *, secret=None) -> Event",
    "learning_rate: 0.001",
    "num_tokens: 128",
    "password:",
    "password: ${DB_PASSWORD}",
    "api_key: null",
    "use_password: false",
    "token: word",
    "tokenizer: gpt2",
    "monitor: val_loss",
    "key: image",
    "checkpoint: runs/2024-01-01/best_model_epoch_12.pt",
    "seed: 1234567890",
    "hidden_sizes: [512, 256, 128]",
    "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
]


@pytest.mark.parametrize(("line", "secret"), IN_CODE)
def test_a_secret_in_code_is_masked(line: str, secret: str) -> None:
    masked = masked_text(line, code=True)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(("line", "secret"), [*IN_CODE, *IN_CONFIGURATION])
def test_a_secret_in_a_configuration_is_masked(line: str, secret: str) -> None:
    masked = masked_text(line, code=False)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize("line", ORDINARY_CODE)
def test_ordinary_code_stays(line: str) -> None:
    assert masked_text(line, code=True) == line


@pytest.mark.parametrize("line", ORDINARY_CONFIGURATION)
def test_ordinary_configuration_stays(line: str) -> None:
    assert masked_text(line, code=False) == line


def test_what_stands_around_a_secret_stays() -> None:
    line = 'client = OpenAI(api_key="hunter2", timeout=30)  # the endpoint'
    assert masked_text(line, code=True) == f'client = OpenAI(api_key="{MASK}", timeout=30)  # the endpoint'


def test_a_private_key_is_masked_over_its_lines_and_no_further() -> None:
    lines = [
        "x = 1",
        "key = '''-----BEGIN RSA PRIVATE KEY-----",
        "MIIabc",
        "def",
        "-----END RSA PRIVATE KEY-----'''",
        "y",
    ]
    assert masked_lines(lines, code=True) == ["x = 1", f"key = '''{MASK}", MASK, MASK, f"{MASK}'''", "y"]


def test_the_mention_of_a_private_key_hides_nothing_below_it() -> None:
    lines = ['if "-----BEGIN PRIVATE KEY-----" in line:', "    found = read(line)", "    return found", "x = 1"]
    assert masked_lines(lines, code=True)[1:] == lines[1:]


def test_names_below_a_list_of_keys_stay() -> None:
    lines = ["config_keys = (", '    "batch_size",', '    "learning_rate",', ")"]
    assert masked_lines(lines, code=True) == lines


def test_a_value_on_the_lines_below_its_name_is_masked() -> None:
    lines = ["password: |", "  hunter2", "  hunter3", "user: bob"]
    assert masked_lines(lines, code=False) == ["password: |", f"  {MASK}", f"  {MASK}", "user: bob"]
    pieces = ["password = (", '    "hunt"', '    "er2"', ")", 'user = "bob"']
    assert masked_lines(pieces, code=True) == ["password = (", f'    "{MASK}"', f'    "{MASK}"', ")", 'user = "bob"']
    below = ["options = {", '    "password":', '        "hunter2",', "}"]
    assert masked_lines(below, code=True) == ["options = {", '    "password":', f'        "{MASK}",', "}"]
    triple = ['secret = """hunter2', "hunter3", 'end""" + x', "y = 1"]
    assert masked_lines(triple, code=True) == [f'secret = """{MASK}', MASK, f'{MASK}""" + x', "y = 1"]


def test_words_are_not_random_and_digests_are() -> None:
    assert not looks_random("best_model_epoch_12_final_v2")
    assert looks_random(RANDOM)


@given(st.lists(st.text(max_size=200), max_size=20), st.booleans())
def test_any_text_keeps_its_number_of_lines(lines: list[str], code: bool) -> None:
    assert len(masked_lines(lines, code)) == len(lines)


@given(st.text(max_size=300), st.booleans())
def test_masking_twice_is_masking_once(line: str, code: bool) -> None:
    once = masked_text(line, code)
    assert masked_text(once, code) == once


PIECES = ["sk-", "a=", "'", '"', "password=", "eyJa.", "x://", " ", "a", "--a ", "{a:", "-----BEGIN ", "key:", "-"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_line_is_masked_in_little_time(piece: str) -> None:
    line = "api_key" + (piece * 8192)[:8192]
    started = time.monotonic()
    masked_text(line, code=True)
    masked_text(line, code=False)
    assert time.monotonic() - started < 1


def test_a_long_file_is_masked_in_little_time() -> None:
    lines = [f"    token, key = self.embed(tokens[{number}]), keys" for number in range(20_000)]
    started = time.monotonic()
    masked_lines([*lines, *(f"{number},0.5,0.25,word" for number in range(500_000))], code=True)
    assert time.monotonic() - started < 5
