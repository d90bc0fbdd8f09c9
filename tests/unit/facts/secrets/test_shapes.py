"""Tokens that their own letters give away, as their makers document them. All of them are made up here."""

import base64

import pytest

from curtainwall.facts import Masker

MASKER = Masker(b"key")
MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6"
UPPER = "A1B2C3D4E5F6G7H8I9J0K1L2M3N4O5P6Q7R8S9T0U1V2W3X4Y5Z6A7B8C9D0E1F2"
HEX = "0123456789abcdef" * 6
KEY_IN_BASE64 = base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEpAIBAAKCAQEA" * 8).decode()


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (f"glcbt-{MIXED[:24]}", "gitlab-token"), (f"glptt-{MIXED[:40]}", "gitlab-token"), (f"GR1348941{MIXED[:20]}", "gitlab-token"),
        (f"GOCSPX-{MIXED[:28]}", "google-secret"), (f"ya29.{MIXED[:60]}", "google-token"), (f"xoxc-{MIXED[:40]}", "slack-token"),
        (f"xoxe.xoxp-{MIXED[:40]}", "slack-token"), (f"xapp-1-{MIXED[:40]}", "slack-token"), (f"rk_live_{MIXED[:24]}", "stripe-key"),
        (f"SK{HEX[:32]}", "twilio-key"), (f"SG.{MIXED[:22]}.{MIXED[:43]}", "sendgrid-key"), (f"key-{HEX[:32]}", "mailgun-key"),
        (f"{HEX[:32]}-{HEX[:8]}-{HEX[:8]}", "mail-key"), (f"{HEX[:32]}-us12", "mail-key"), (f"dop_v1_{HEX[:64]}", "digitalocean-token"),
        (f"123456789:AA{MIXED[:33]}", "telegram-token"), (f"M{MIXED[:23]}.Gx1y2z.{MIXED[:38]}", "discord-token"),
        (f"shpat_{HEX[:32]}", "shopify-token"), (f"sq0atp-{MIXED[:22]}", "square-token"), (f"EAAA{MIXED[:60]}", "square-token"),
        (f"dapi{HEX[:32]}", "databricks-token"), (f"hvs.{MIXED[:28]}", "vault-token"), (f"glsa_{MIXED[:32]}_{HEX[:8]}", "grafana-token"),
        (f"dckr_pat_{MIXED[:27]}", "docker-token"), (f"ATATT3xFfGF0{MIXED}", "atlassian-token"), (f"lin_api_{MIXED[:40]}", "linear-key"),
        (f"ntn_{MIXED[:46]}", "notion-token"), (f"figd_{MIXED[:40]}", "figma-token"), (f"PMAK-{HEX[:24]}-{HEX[:34]}", "postman-key"),
        (f"pul-{HEX[:40]}", "pulumi-token"), (f"sbp_{HEX[:40]}", "supabase-token"), (f"sntrys_{MIXED}", "sentry-token"),
        (f"pscale_tkn_{MIXED[:40]}", "planetscale-token"), (f"nfp_{MIXED[:36]}", "netlify-token"), (f"HRKU-{MIXED[:40]}", "heroku-key"),
        (f"rubygems_{HEX[:48]}", "rubygems-key"), (f"gsk_{MIXED[:52]}", "groq-key"), (f"xai-{MIXED}{MIXED[:8]}", "xai-key"),
        (f"pplx-{MIXED[:48]}", "perplexity-key"), (f"r8_{MIXED[:37]}", "replicate-token"),
        (f"lsv2_pt_{HEX[:32]}_{HEX[:10]}", "langsmith-key"), (f"tskey-auth-{MIXED[:30]}", "tailscale-key"),
        (f"NRAK-{UPPER[:27]}", "newrelic-key"), (f"squ_{HEX[:40]}", "sonar-token"), (f"AGE-SECRET-KEY-1{UPPER[:58]}", "age-key"),
        (f"{MIXED[:14]}.atlasv1.{MIXED[:67]}", "terraform-token"), (f"dp.pt.{MIXED[:43]}", "doppler-token"),
        (f"dt0c01.{UPPER[:24]}.{UPPER[:64]}", "dynatrace-token"), (f"sk.eyJ{MIXED}.{MIXED[:22]}", "mapbox-token"),
        (KEY_IN_BASE64, "private-key"),
    ],
)  # fmt: skip
def test_a_token_is_known_by_the_form_that_its_maker_gives_it(token: str, kind: str) -> None:
    for text in (token, f"see {token} there", f'"{token}"', f"x={token}&y", f"({token})", f"a/{token}\nb", f"é{token}é "):
        masked = MASKER.mask_text(text)
        assert token[-16:] not in masked, text
        assert f"[masked:{kind}:" in masked


@pytest.mark.parametrize("before", ["xx-", "my_", "a.b/", "user:"])
def test_a_token_is_known_inside_of_something_longer(before: str) -> None:
    for token in (f"ghp_{MIXED[:36]}", f"glpat-{MIXED[:20]}", f"dop_v1_{HEX[:64]}"):
        assert token[-12:] not in MASKER.mask_text(f"{before}{token}")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"https://x.blob.core.windows.net/c?sv=2022&sig={MIXED[:20]}%2Fabc%3D&se=1", MIXED[:20]),
        (f"https://discord.com/api/webhooks/123456789012/{MIXED[:60]}", f"123456789012/{MIXED[:60]}"),
        ("postgres://app:Tr0ub4dor@localhost/db", "Tr0ub4dor"), ("redis://:s3cr3t-word@cache:6379/0", "s3cr3t-word"),
        ("amqp://guest:p%40ss-w0rd@mq/", "p%40ss-w0rd"),
    ],
)  # fmt: skip
def test_an_address_that_holds_a_secret_shows_the_rest(text: str, hidden: str) -> None:
    masked = MASKER.mask_text(text)
    assert hidden not in masked
    assert masked.startswith(text.partition(hidden)[0])


@pytest.mark.parametrize(
    "text",
    [
        "https://user:password@example.org/", "postgres://user:pass@localhost/db", "https://user:$TOKEN@host", "https://{user}:{word}@host",
        "test_masking_twice_is_masking_once_and_never_more_than_that", "TASK" + "a" * 30, "a-very-long-name-with-dashes-and-1-digit",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "b55c6f2e-5b3f-4d0c-9c1e-2f6d8e3a7b10",
        "sha512-" + "A" * 40, "SK-learn-something-else-entirely", "/api/webhooks/list", "?signature=abc", "sig=short",
        "12:30:AAPL", "eslint-plugin-react-hooks/exhaustive-deps", "monkey-0123456789abcdef", "ntn_short", "key-" + "g" * 32,
        base64.b64encode(b"-----BEGIN CERTIFICATE-----\n" + b"MIIB" * 30).decode(),
    ],
)  # fmt: skip
def test_what_only_resembles_a_token_is_left_alone(text: str) -> None:
    assert MASKER.mask_text(text) == text
