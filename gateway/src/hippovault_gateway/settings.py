"""What the gateway can be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import grpc
from cyclopts import Parameter, validators

from hippovault_chassis.errors import ServiceError
from hippovault_chassis.settings import ProcessSettings
from hippovault_gateway.fusion import Fusion
from hippovault_gateway.limits import MAX_ANSWER_BYTES, MAX_OVERSAMPLE_FACTOR, MIN_ANSWER_BYTES
from hippovault_gateway.surprise import Version, Weights
from hippovault_gateway.token_encoding import DEFAULT_ENCODING, TokenEncoding

ToolSet = Literal["hippo", "shodh", "all"]
Fraction = Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1))]


MAX_POOL = 1_000
MAX_FACTOR = 100
"""Of a power or a weight: no score overflows."""


def _finite(_type: object, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError("Must be a finite number.")


Bounded = Annotated[float, Parameter(validator=(validators.Number(gte=0, lte=MAX_FACTOR), _finite))]


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ProcessSettings):
    """Gateway: ranks what storage finds and serves gRPC and MCP."""

    embedding: str = ""
    """gRPC target of the embedding service (default: its socket below home)."""
    storage: str = ""
    """gRPC target of the storage service (default: its socket below home)."""
    http: str = ""
    """Where to serve MCP over HTTP, a loopback `host:port`; `off` for nowhere (default: 127.0.0.1:7465 for the default
    home; for others, or where it is taken, a free port that stays theirs)."""
    mcp_tools: ToolSet = "all"
    """The tools of MCP over HTTP: hippo's, those by SHODH names, or `all`: hippo's are listed, both are answered."""
    mcp_answer_bytes: Annotated[
        int, Parameter(validator=validators.Number(gte=4 * MIN_ANSWER_BYTES, lte=MAX_ANSWER_BYTES))
    ] = 32_768
    """Most of a tool's answer, as JSON, where the call gives no `max_bytes`; contents beyond it become previews."""

    query_cache_mebibytes: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 8
    """Memory for the vectors of queries that were asked lately, some 50 a MiB; 0 keeps none."""
    oversample_factor: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=MAX_OVERSAMPLE_FACTOR))] = 6
    """Candidates fetched for each wanted hit, before the surprise rerank."""
    half_life_days: Annotated[float, Parameter(validator=_finite)] = 30.0
    """Time in which the boost of a surprise halves; 0 or less means never."""
    decay_floor: Fraction = 0.5
    """Least factor that age leaves of a surprise."""
    surprise_version: Version = 2
    """Rule by which new memories are scored and hits are lifted; 1 is the one that claude-hippo published."""
    outlier_weight: Fraction = 0.4
    """Weight of the embedding outlier in a surprise; the four weights sum to 1."""
    engagement_weight: Fraction = 0.2
    """Weight of length and tags in a surprise."""
    explicit_weight: Fraction = 0.1
    """Weight of the caller's importance in a surprise."""
    prediction_weight: Fraction = 0.3
    """Weight of the prediction loss in a surprise; without a backend it goes to outlier (2/3) and engagement (1/3)."""

    token_encoding: TokenEncoding = DEFAULT_ENCODING
    """How the tokens of what is remembered are kept for late interaction: int8 takes a byte a dimension, int4 half of
    it, sign an eighth. What is stored otherwise is embedded again in the background; off keeps what there is."""

    pool: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=MAX_POOL))] = Fusion.pool
    """Hits of each arm that hybrid recall fuses, at least."""
    sharpness: Bounded = Fusion.sharpness
    """Power of a score's part of its arm's best."""
    confidence: Bounded = Fusion.confidence
    """Power of how far an arm's best hit stands out, by which the arm's votes count."""
    dense_weight: Bounded = Fusion.dense
    """Weight of the vectors' votes."""
    keyword_weight: Bounded = Fusion.keyword
    """Weight of the words' votes."""
    late_interaction_weight: Bounded = Fusion.late_interaction
    """Weight of the tokens' votes."""
    contrast: Bounded = Fusion.contrast
    """Power of how far a query's token tells hits apart, by which it counts."""
    foreign: Bounded = Fusion.foreign
    """By how many times the share of a query's unknown tokens vectors and tokens count less."""

    def embedding_target(self) -> str:
        """Returns where the embedding service is reached."""
        return self.embedding or f"unix:{self.layout.socket('embedding')}"

    def storage_target(self) -> str:
        """Returns where the storage service is reached."""
        return self.storage or f"unix:{self.layout.socket('storage')}"

    def fusion(self) -> Fusion:
        """Returns how hybrid recall fuses its arms."""
        return Fusion(
            pool=self.pool,
            sharpness=self.sharpness,
            confidence=self.confidence,
            dense=self.dense_weight,
            keyword=self.keyword_weight,
            late_interaction=self.late_interaction_weight,
            contrast=self.contrast,
            foreign=self.foreign,
        )

    def surprise_weights(self) -> Weights:
        """Returns the weights of the surprise score.

        Raises:
            ServiceError: They do not sum to 1.
        """
        try:
            return Weights(
                outlier=self.outlier_weight,
                engagement=self.engagement_weight,
                explicit=self.explicit_weight,
                prediction=self.prediction_weight,
            )
        except ValueError as error:
            raise ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_SETTING", str(error)) from error
