"""What can go wrong between an authentication Secret and a selected value, value-free (rule F8).

    PsonoError
    ├── CredentialsError        a value of the authentication Secret; names its role and its key
    │   ├── MissingCredential   absent, empty, or no text
    │   └── InvalidCredential   there, but malformed
    ├── ProxySettingsError      HTTP_PROXY or HTTPS_PROXY of this process is malformed
    ├── RemoteError             the exchange with the server; another try may end differently
    │   ├── Unreachable         no answer: name, connection, TLS, proxy, deadline
    │   ├── Refused             400, 401, 403: key, entry or rights are not what they should be
    │   ├── Throttled           429, or 503 with Retry-After
    │   ├── Maintenance         423: switched off by its administrator
    │   ├── ServerFault         5xx
    │   ├── TooLarge            the answer exceeds the cap
    │   └── ProtocolError       the answer is no answer of a Psono server
    ├── DecryptionError         the entry cannot be opened; names the stage
    └── ExtractionError         the entry has no such value; names the selector and the kind of what is there

Every message is put together from fixed texts, numbers, names of keys in the authentication Secret and the
selector. It ends with what a person can do. None holds a value, a body, a header or an address, and none
carries another exception that does. These classes refuse to know conditions and retries.
"""

from __future__ import annotations

from enum import StrEnum


class PsonoError(Exception):
    """Base of everything this room raises."""


class Role(StrEnum):
    """What a value of the authentication Secret is for."""

    SERVER_URL = "server URL"
    API_KEY_ID = "API key id"
    API_SECRET_KEY = "API secret key"
    CA_BUNDLE = "CA bundle"


class CredentialsError(PsonoError):
    """One value of the authentication Secret cannot be used."""

    def __init__(self, role: Role, key: str, problem: str) -> None:
        self.role = role
        self.key = key
        """The key in the authentication Secret, for example ``apiKeyId``."""
        super().__init__(f"the {role} under key {key!r} of the authentication Secret {problem}")


class MissingCredential(CredentialsError):
    """The value is absent, empty, or cannot be text."""


class InvalidCredential(CredentialsError):
    """The value is there and is not what its role asks for."""


class ProxySettingsError(PsonoError):
    """A proxy variable of the process's environment is malformed. Names the variable."""

    def __init__(self, variable: str, problem: str) -> None:
        self.variable = variable
        super().__init__(f"the environment variable {variable} {problem}")


class RemoteError(PsonoError):
    """The exchange with the Psono server failed."""


class Unreachable(RemoteError):
    """No whole answer came."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the Psono server could not be reached: {problem}")


class Meaning(StrEnum):
    """All that a refusal can mean. The server gives one answer for many reasons."""

    READ = (
        "the API key is unknown, inactive or deleted, or has no read right, or the entry is not assigned to "
        "it (or does not exist), or the key's owner is disabled or lost the right to read the entry; "
        "check the API key and its assigned entries in Psono"
    )
    INSPECT = (
        "the API key is unknown, inactive or deleted, or its owner is disabled; check the API key in Psono"
    )
    API_KEY_ID = "the server takes the API key id for no UUID; compare it with the id shown in Psono"
    SECRET_ID = "the server takes the entry's id for no UUID; compare secretId with the SECRET_ID in Psono"
    BOTH_IDS = (
        "the server takes neither the API key id nor the entry's id for a UUID; "
        "compare both with the ids shown in Psono"
    )
    REQUEST = "the server did not understand the request; look for a proxy that rewrites requests"
    LOGIN = (
        "something in front of the server asks for a login; check the server URL and what stands before it"
    )
    FORBIDDEN = (
        "a proxy or firewall in front of the server refused, or adds an Authorization header, "
        "which Psono does not accept; check what stands before the server"
    )


class Refused(RemoteError):
    """The server answered no. ``meaning`` says everything that this no can stand for."""

    def __init__(self, status: int, meaning: Meaning) -> None:
        self.status = status
        self.meaning = meaning
        super().__init__(f"the Psono server refused with {status}: {meaning}")


class Throttled(RemoteError):
    """The server asks for a pause of ``retry_after`` seconds, for every caller at this address."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(
            f"the Psono server asks for a pause of {retry_after:.0f} s; if this lasts, read fewer entries, "
            "read less often, or raise the server's THROTTLE_RATE_ANON and THROTTLE_RATE_USER"
        )


class Maintenance(RemoteError):
    """The server is switched off on purpose; ``disabled`` tells its DISABLED setting from maintenance."""

    def __init__(self, *, disabled: bool) -> None:
        self.disabled = disabled
        state = "is disabled" if disabled else "is in maintenance mode"
        super().__init__(f"the Psono server {state}; wait, or ask its administrator")


class ServerFault(RemoteError):
    """The server, or what stands before it, failed with this 5xx status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"the Psono server failed with {status}; look at the server's own log")


class TooLarge(RemoteError):
    """The answer exceeds ``cap`` bytes, counted after decompression."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        super().__init__(f"the answer is larger than {cap} bytes; check the server URL and the entry's size")


class ProtocolError(RemoteError):
    """The answer, with this HTTP status, is none that a Psono server gives to a reader."""

    def __init__(self, status: int | None, problem: str) -> None:
        self.status = status
        answered = "" if status is None else f" (status {status})"
        super().__init__(f"what answered is no Psono server{answered}: {problem}")


class Stage(StrEnum):
    """Where opening an entry failed, in the order of the attempt."""

    API_SECRET_KEY_FORM = "api_secret_key_form"
    ENTRY_KEY_ENCODING = "entry_key_encoding"
    ENTRY_KEY_NONCE_ENCODING = "entry_key_nonce_encoding"
    ENTRY_KEY_NONCE_LENGTH = "entry_key_nonce_length"
    ENTRY_KEY_AUTHENTICATION = "entry_key_authentication"
    ENTRY_KEY_FORM = "entry_key_form"
    DATA_ENCODING = "data_encoding"
    DATA_NONCE_ENCODING = "data_nonce_encoding"
    DATA_NONCE_LENGTH = "data_nonce_length"
    DATA_AUTHENTICATION = "data_authentication"
    PLAINTEXT_NOT_UTF8 = "plaintext_not_utf8"
    PLAINTEXT_NOT_JSON = "plaintext_not_json"
    PLAINTEXT_NOT_OBJECT = "plaintext_not_object"


_WRONG_KEY = (
    "the API secret key does not unlock it; check that API key id and API secret key are of one API key, "
    "and assign the entry to that key again if they are"
)
_DAMAGED_KEY = "the key stored with it is damaged; remove the entry from the API key and assign it again"
_DAMAGED = "what is stored is damaged; save the entry again in Psono"
_NO_OBJECT = "its content is no JSON object, or nested too deeply; save the entry again with a Psono client"


class DecryptionError(PsonoError):
    """The entry could not be opened; ``stage`` says where and nothing says with what."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        if stage in (Stage.API_SECRET_KEY_FORM, Stage.ENTRY_KEY_AUTHENTICATION):
            advice = _WRONG_KEY
        elif stage.startswith("entry_key"):
            advice = _DAMAGED_KEY
        elif stage.startswith("plaintext"):
            advice = _NO_OBJECT
        else:
            advice = _DAMAGED
        super().__init__(f"the entry could not be decrypted ({stage}): {advice}")


class Found(StrEnum):
    """What stood where a text was looked for."""

    MISSING = "nothing"
    NULL = "null"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    LIST = "a list"
    OBJECT = "an object"
    NOT_UTF8 = "text that cannot be written as UTF-8"
    NO_ENVIRONMENT_VARIABLES = "no list of environment variables"


class ExtractionError(PsonoError):
    """The selected value is absent or no text."""

    def __init__(self, selector: str, found: Found) -> None:
        self.selector = selector
        """Kind and name, for example ``environment variable 'DB_HOST'``."""
        self.found = found
        if found is Found.NO_ENVIRONMENT_VARIABLES:
            advice = "is the entry of the type Environment Variables? Otherwise select a field"
        elif found is Found.MISSING:
            advice = (
                "check the spelling, upper and lower case included, and that the secretId is the right one"
            )
        else:
            advice = "only text can be selected"
        super().__init__(f"{selector}: the entry holds {found} there; {advice}")
