"""Opening an entry: whatever stands in its four texts, an entry comes out or a stage is named."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.secret import SecretBox

from psono_operator.psono.entry import Entry, FieldPath
from psono_operator.psono.errors import DecryptionError, Stage
from psono_operator.psono.sealed import SealedEntry
from psono_operator.psono.secretbytes import SecretBytes
from tests.psono.recorded import assert_value_free

KEY, ENTRY_KEY, NONCE = b"k" * 32, b"e" * 32, b"n" * 24
CANARY = "cAnArY-91"


def seal(plaintext: bytes, wrapped: bytes = ENTRY_KEY.hex().encode()) -> SealedEntry:
    return SealedEntry(
        SecretBox(ENTRY_KEY).encrypt(plaintext, NONCE).ciphertext.hex(),
        NONCE.hex(),
        SecretBox(KEY).encrypt(wrapped, NONCE).ciphertext.hex(),
        NONCE.hex(),
    )


def test_both_layers_open() -> None:
    entry = seal(b'{"a": "b"}').open(SecretBytes(KEY))
    assert entry.select(FieldPath("a")).reveal() == b"b"


@pytest.mark.parametrize(
    "wrapped", [ENTRY_KEY, b"e" * 64, b"", ENTRY_KEY.hex().encode() + b"\n", b" " + b"e" * 63 + b"g"]
)
def test_an_entry_key_is_64_hexadecimal_characters(wrapped: bytes) -> None:
    sealed = seal(b"{}", wrapped)
    expected = Stage.DATA_AUTHENTICATION if wrapped == b"e" * 64 else Stage.ENTRY_KEY_FORM
    with pytest.raises(DecryptionError) as caught:
        sealed.open(SecretBytes(KEY))
    assert caught.value.stage is expected


@pytest.mark.parametrize("text", [" 00", "00 ", "0 0", "0\n0", "0", "é0", "0x00"])
def test_blanks_between_digits_are_not_passed_over(text: str) -> None:
    """Python's own bytes.fromhex passes them over; no other client does."""
    good = seal(b"{}")
    with pytest.raises(DecryptionError) as caught:
        dataclasses.replace(good, data=text + good.data).open(SecretBytes(KEY))
    assert caught.value.stage is Stage.DATA_ENCODING


def test_a_key_of_the_wrong_length_is_named_as_such() -> None:
    with pytest.raises(DecryptionError) as caught:
        seal(b"{}").open(SecretBytes(b"short"))
    assert caught.value.stage is Stage.API_SECRET_KEY_FORM


def test_a_wrong_key_is_said_to_be_one() -> None:
    with pytest.raises(DecryptionError, match="API secret key does not unlock it") as caught:
        seal(b"{}").open(SecretBytes(b"x" * 32))
    assert caught.value.stage is Stage.ENTRY_KEY_AUTHENTICATION
    assert caught.value.__context__ is None


def test_sealed_entries_print_nothing() -> None:
    assert repr(seal(b"{}")) == "SealedEntry()"


texts = st.text(max_size=8) | st.binary(max_size=80).map(bytes.hex) | st.just(CANARY)
GOOD = seal(b'{"a": "b"}')


@given(
    st.just(GOOD.data) | texts,
    st.just(GOOD.data_nonce) | texts,
    st.just(GOOD.secret_key) | texts,
    st.just(GOOD.secret_key_nonce) | texts,
)
def test_any_four_texts_give_an_entry_or_a_clean_refusal(
    data: str, data_nonce: str, secret_key: str, secret_key_nonce: str
) -> None:
    sealed = SealedEntry(data, data_nonce, secret_key, secret_key_nonce)
    try:
        assert isinstance(sealed.open(SecretBytes(KEY)), Entry)
    except DecryptionError as error:
        assert_value_free(error, CANARY)
        assert error.__context__ is None
