"""One client's request."""

from __future__ import annotations

from sglogparse.causes._base import HINT, NAMED, TOLD, Cause, Sign

CAUSES = (
    Cause(
        "request.invalid",
        "invalid request",
        means="A client sent what the server cannot serve; it answered with an error (4xx) and goes on.",
        differs="When the process ends over a request, the cause is what it threw: code.assertion, mostly.",
        change="correct the request; --context-length and --allow-auto-truncate say how long an input may be",
        signs=(
            Sign(
                TOLD + 10,
                (
                    "is longer than the model's context length",
                    "exceeds the model's maximum context length",
                    "exceeds the maximum allowed length",
                    "input length exceeds",
                    "400 bad request",
                    "422 unprocessable entity",
                    "requestvalidationerror",
                    "invalid request",
                    "badrequesterror",
                    "input_ids cannot be",
                    "should be provided",
                    "is not supported for this model's requests",
                    "requested token count exceeds",
                    "failed to compile json schema",
                    "invalid json schema",
                    "invalid grammar",
                    "unsupported parameter",
                    "aborted by abortreq",
                    "prompt is empty",
                    "invalid image",
                    "cannot identify image file",
                    "incorrect padding",
                    "max_new_tokens must",
                    "max_tokens must",
                    "temperature must",
                    "top_p must",
                    "top_k must",
                    "min_p must",
                    "frequency_penalty must",
                    "presence_penalty must",
                    "repetition_penalty must",
                ),
                unless=("max_tokens must be positive; got",),
            ),
            Sign(NAMED, types=("BadRequestError", "RequestValidationError", "UnidentifiedImageError")),
            Sign(
                HINT + 10,
                modules=(
                    "sampling/sampling_params",
                    "entrypoints/openai",
                    "managers/io_struct",
                    "openai_api",
                    "entrypoints/anthropic",
                    "entrypoints/ollama",
                ),
                types=("ValueError", "TypeError", "AssertionError", "ValidationError", "HTTPException"),
            ),
        ),
    ),
)
