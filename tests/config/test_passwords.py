"""Passwords inside values: found wherever an address or a setting may have one, and masked whole."""

import pytest

from strandline.config.passwords import has_password, masked


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://me:hush@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:hu@sh@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://db/x?password=hush", "postgresql://db/x?password=***"),
        ("postgresql://db/x?a=1&sslpassword=hush&b=2", "postgresql://db/x?a=1&sslpassword=***&b=2"),
        ("etcd://:hush@one:2379", "etcd://:***@one:2379"),
        ("nats://hush@db:4222/prices", "nats://***@db:4222/prices"),
        ("spark.hadoop.fs.s3a.secret.key=hush", "spark.hadoop.fs.s3a.secret.key=***"),
        ("spark.ssl.keyPassword=hush spark.ui=x", "spark.ssl.keyPassword=*** spark.ui=x"),
        (
            "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net=hush",
            "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net=***",
        ),
        ("app --token=hush", "app --token=***"),
    ],
)
def test_a_password_is_found_and_no_character_of_it_is_kept(value: str, shown: str) -> None:
    assert has_password(value)
    assert masked(value) == shown
    assert masked([value, "x", 3]) == [shown, "x", 3]


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://scanner@db:5432/x?sslmode=require",
        "nats://db:4222/mail@home",
        "/srv/me/a@b:c",
        "spark.kubernetes.driver.secrets.name=/etc/keys",
        "secret*.txt",
        "parquet:tables/token",
    ],
)
def test_other_values_stay_as_they_are(value: str) -> None:
    assert not has_password(value)
    assert masked(value) == value
