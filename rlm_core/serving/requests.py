"""What a request may say. What is not here has no effect in mlx-lm or could stop its batch, and is refused."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rlm_core.config import Positive, ServeSection, Temperature
from rlm_core.files import first_reason
from rlm_core.records import Share

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

_Penalty = Annotated[float, Field(ge=-2, le=2)]
"""As with OpenAI. What is far beyond makes log-probabilities that are no numbers."""
_Bias = Annotated[float, Field(ge=-100, le=100)]
_TokenId = Annotated[int, Field(ge=0)]
_TokenName = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
_StopWord = Annotated[str, Field(min_length=1, max_length=200)]
_TopLogprobs = Annotated[int, Field(ge=0, le=11)]


def _for_a_template(name: str) -> str:
    if name in _NOT_FOR_TEMPLATES:
        raise ValueError(f"{name} is no variable of a chat template")
    return name


_TemplateName = Annotated[str, AfterValidator(_for_a_template)]
_NOT_FOR_TEMPLATES = frozenset(
    (
        *("conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"),
        *("tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens"),
    )
)
"""Parameters of transformers' `apply_chat_template`, beside which it is given a template's variables. A template of the
client's own would be run by the thread that generates: all others wait for its loops."""


class Refused(Exception):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None):
        super().__init__(message)
        self.status = status
        self._error = {"message": message, "type": _TYPES.get(status, "server_error"), "param": param, "code": code}

    def content(self) -> dict[str, Any]:
        """In OpenAI's form."""
        return {"error": self._error}


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    411: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    """An image's address would be fetched by mlx-lm, from wherever it leads."""
    text: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool = False


class _AnyRequest(BaseModel):
    """What both kinds of requests may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    user: str | None = None
    """Who asks, in OpenAI's form; nothing is made of it."""
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    """0 cuts off nothing, as in mlx-lm."""
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logit_bias: dict[_TokenName, _Bias] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: _StopWord | Annotated[list[_StopWord], Field(max_length=16)] | None = None
    return_token_ids: bool | None = None
    """As vLLM has it: token ids of prompt and answer beside the text."""


class _AskedToChat(_AnyRequest):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: _TopLogprobs | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[_TemplateName, str | bool | int] | None = None


class _AskedToGoOn(_AnyRequest):
    prompt: str | list[_TokenId]
    """A text or token ids; of the latter exactly these are read."""
    logprobs: bool | _TopLogprobs | None = None
    """How many alternatives to each token are told with its log-probability; true for none."""


def read_request(path: str, raw: bytes, limits: ServeSection) -> dict[str, Any]:
    """The body of a request, checked and in mlx-lm's words.

    Raises:
        Refused: it is not JSON, or says something that is not possible here.
    """
    kind = _AskedToGoOn if path == TEXT else _AskedToChat
    try:
        asked = kind.model_validate(json.loads(raw))
    except ValidationError as error:
        place = str((error.errors()[0]["loc"] or ["body"])[0])
        raise Refused(400, first_reason(error), "invalid_value", place) from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}", "invalid_json") from error
    body = asked.model_dump(exclude_none=True)
    most = body.pop("max_completion_tokens", body.get("max_tokens", limits.max_tokens))
    if most > limits.max_tokens:
        reason = f"max_tokens: {most} is above this server's limit of {limits.max_tokens}"
        raise Refused(400, reason, "invalid_value", "max_tokens")
    wanted = body.get("logprobs")
    if wanted is not None and not isinstance(wanted, bool):
        body |= {"logprobs": True, "top_logprobs": wanted}
    return body | {"max_tokens": most}
