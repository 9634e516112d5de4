"""The memories and questions of the evaluations: one team's talk, in which few things were decided."""

from __future__ import annotations

DECISIONS = {
    "auth": (
        "Decision on auth: login moves from server sessions to short-lived access tokens with refresh tokens. "
        "Access tokens live fifteen minutes, refresh tokens thirty days and are bound to the device. We "
        "considered staying with cookies, but the mobile apps and the partner API need one scheme that works "
        "without sticky servers. Password logins stay for now; passkeys come next quarter. Owner: Priya."
    ),
    "db": (
        "Decision on the db: PostgreSQL stays our database and we shard by tenant id instead of moving to a "
        "distributed store. Each shard gets one synchronous and one asynchronous replica, and schema changes go "
        "out as expand and contract in two releases. The trial of the distributed store showed three times the "
        "write latency for our transactions. To be reviewed when a shard passes two terabytes."
    ),
    "billing": (
        "Decision on billing: invoices are issued on the first of the month in the customer's own currency, and "
        "usage is charged in arrears. Failed card payments are retried on days three, seven and fourteen before "
        "the account becomes read-only. We leave the old payment provider in March because its fees for cards "
        "from abroad doubled. Refunds above five hundred euros need two approvals from finance."
    ),
    "ui": (
        "Decision on the ui: it adopts one design system with tokens for colour, spacing and type, and every new "
        "ui screen is built from its components. Dark mode ships together with it, not before. We drop the two "
        "older component libraries by summer. Accessibility at level AA is a condition for release, checked by "
        "the design guild in each review. Exceptions are granted by Marta only."
    ),
    "infra": (
        "Decision on infra: servers move from hand-kept virtual machines to Kubernetes in two regions, with "
        "traffic split by the load balancer and a tested failover every quarter. Clusters are described in code "
        "and rebuilt rather than patched. Staging stays in one region to save money. On-call rotates weekly among"
        " six people, and every page needs a runbook before the alert goes live."
    ),
}
"""What was decided, one a topic; tagged and important."""

CHATS = {
    "auth": [
        "auth login is slow again",
        "auth token expired early",
        "login page shows a blank",
        "auth errors in the logs",
        "cannot sign in on mobile",
        "who broke the auth tests",
        "login works for me now",
        "auth token looks too long",
        "sign in fails on staging",
        "auth service restarted",
        "login button is grey",
        "looking at auth tickets",
        "password reset mail late",
        "auth team meets at three",
        "login redirect loops",
        "token check took seconds",
        "auth header was missing",
        "sign in page is fine",
        "auth logs are noisy",
    ],
    "db": [
        "db query is slow today",
        "database backup finished",
        "db connection dropped",
        "who locked the db table",
        "database is up again",
        "db disk is nearly full",
        "slow database on staging",
        "db migration still runs",
        "database replica lags",
        "db index was missing",
        "checking the db logs",
        "database tests are red",
        "db pool ran out again",
        "database login rejected",
        "db dump took an hour",
        "database looks healthy",
        "db query plan changed",
        "restarting the database",
        "db row count looks odd",
    ],
    "billing": [
        "billing page times out",
        "invoice total looks off",
        "billing mail bounced",
        "card payment declined",
        "billing run is late",
        "invoice was sent twice",
        "billing tests are flaky",
        "payment went through now",
        "billing export is empty",
        "customer asks for invoice",
        "billing job restarted",
        "refund is still pending",
        "billing logs look fine",
        "invoice date is wrong",
        "billing team is at lunch",
        "payment webhook failed",
        "billing report is ready",
        "invoice has a typo",
        "billing ticket closed",
    ],
    "ui": [
        "ui button is misaligned",
        "ui looks odd on safari",
        "dark ui hurts my eyes",
        "ui font is too small",
        "the ui menu flickers",
        "ui icon is missing",
        "ui tests fail again",
        "screen is blank in ui",
        "ui colour is too pale",
        "ui spinner never stops",
        "new ui looks nice",
        "ui text is cut off",
        "ui layout jumps around",
        "modal in ui won't close",
        "ui tooltip is wrong",
        "ui page loads slowly",
        "ui review is at two",
        "scrolling in ui is slow",
        "ui link goes nowhere",
    ],
    "infra": [
        "infra alert fired again",
        "server is out of memory",
        "infra deploy is stuck",
        "node rebooted at night",
        "infra costs went up",
        "cluster looks healthy",
        "infra dashboards broken",
        "load balancer is slow",
        "infra ticket is open",
        "deploy failed on staging",
        "infra team is on call",
        "server room was hot",
        "infra pipeline is red",
        "pods restart all day",
        "infra logs are missing",
        "network blip at noon",
        "infra upgrade is done",
        "server disk was replaced",
        "infra page woke me up",
    ],
}
"""What was said beside it: short, near to the questions' words, and no answer to them."""

QUESTIONS = {
    "auth": ["auth", "sign in and auth", "what is our auth like", "auth token lifetime", "auth on mobile"],
    "db": [
        "db and its replicas",
        "postgres database",
        "slow database writes",
        "latency of the database",
        "db replicas",
    ],
    "billing": [
        "billing",
        "tell me about billing",
        "billing and invoices",
        "our billing",
        "what happens when a card payment fails",
    ],
    "ui": [
        "dark mode of the ui",
        "ui components",
        "ui components and colours",
        "which ui components do we keep",
        "ui fonts and colours",
    ],
    "infra": [
        "infra and clusters",
        "clusters and load balancer",
        "on call for servers",
        "infra failover",
        "staging servers",
    ],
}
"""Five phrasings a topic; the topic's decision is what matters."""

AGED_DECISION = DECISIONS["auth"]
AGED_CHATS = [
    *CHATS["auth"],
    "auth build is green",
    "login form lost my email",
    "auth cache was cold",
    "logged out twice today",
    "auth pod was evicted",
    "sign in mail in spam",
    "token debug is still on",
    "auth review at noon",
    "login count is down",
    "auth release postponed",
    "two logins at once fail",
    "auth docs are outdated",
    "sign in took a minute",
    "auth alert was false",
    "login screen flickers",
    "token refresh is stuck",
    "auth branch has merged",
    "login tests skipped",
    "auth ping is fine",
    "sign in button moved",
    "auth dashboard is down",
    "login name has a typo",
    "token cookie was empty",
    "auth retry worked",
    "login locked after lunch",
    "auth config was wrong",
    "sign in by phone broken",
    "auth demo went well",
    "login is back to normal",
    "auth ticket reopened",
]
"""49 of the same topic."""
AGED_QUESTIONS = [
    "auth",
    "sign in and auth",
    "what is our auth like",
    "auth token lifetime",
    "auth on mobile",
    "how does login work",
    "login and sessions",
    "refreshing an auth token",
]
CACHE_DECISIONS = [
    (
        "Decision: we put one shared cache in front of the catalogue and keep entries for five minutes. Writers "
        "evict what they change; nobody else may. The per-process caches are removed in the next release."
    ),
    (
        "Decision: when the cache is full, the least used entries go first. Cache sizes are fixed for each "
        "service by the platform team, and a service that needs more has to show its hit rate of the last month."
    ),
    (
        "Decision: personal data never enters the cache. Profiles and carts are read from their own store, and "
        "reviewers block any change that breaks this rule, whatever it would gain in speed."
    ),
    (
        "Decision: a cache miss is answered by one loader while the others wait, at most for two hundred "
        "milliseconds; then they are given the old entry. This ends the stampedes that we saw on sale days."
    ),
]
"""What was decided of one topic; tagged and important."""
CACHE_NOTES = {
    "Observation": [
        "Cache hit rate fell on Monday",
        "Cache is cold after deploys",
        "Cache memory doubled in May",
        "Cache latency rises at noon",
    ],
    "Pattern": [
        "Cache misses follow releases",
        "Cache keys grow with tenants",
        "Cache evictions come in waves",
        "Cache errors precede alerts",
    ],
    "Discovery": [
        "Cache keys lack a version",
        "Cache client retries twice",
        "Cache size is per process",
        "Cache stores empty answers",
    ],
    "Learning": [
        "Warm the cache before tests",
        "Short cache keys are faster",
        "Never cache failed lookups",
        "Measure the cache per route",
    ],
}
"""What was noted beside it: short, of little importance."""
CACHE_QUESTIONS = [
    "cache decisions",
    "how do we use the cache",
    "what was decided on the cache",
    "what goes into the cache and what leaves it",
    "rules for cache entries",
    "cache entries and services",
    "what may be in the cache",
    "who owns the cache",
]

_SUBJECTS = [
    *("the tomato seedlings", "the sourdough starter", "the garden fence", "the kitchen sink", "the piano lessons"),
    *("the mountain hike", "the old bicycle", "the neighbour's cat", "the train to Vienna", "the camping stove"),
    *("the choir rehearsal", "the apple trees", "the history museum", "the swimming course", "the wool sweater"),
    *("the birthday cake", "the sailing trip", "the bookshelf", "the vegetable soup", "the chess club"),
    *("the bird feeder", "the marathon plan", "the pottery class", "the holiday photos", "the beehive"),
]
_REMARKS = [
    *(
        "needs some care this week",
        "was better than I had hoped",
        "cost more than last year",
        "can wait until Saturday",
    ),
    *("made the children laugh", "reminds me of my grandmother", "is finished at last", "smelled of rain and smoke"),
    *("has to be paid in advance", "started an hour too late", "is what Anna asked about", "should be shown to Tom"),
    *(
        "was left out in the cold",
        "turned out to be too small",
        "will be repeated in autumn",
        "kept us busy all Sunday",
    ),
    *("is harder than it looks", "went wrong because of me", "deserves a second try", "belongs to my sister now"),
]


def unrelated(count: int) -> list[str]:
    """Returns memories of another life, at most 500, the first ones as different as can be."""
    pairs = [(place % len(_SUBJECTS), place // len(_SUBJECTS)) for place in range(count)]
    return [f"{_SUBJECTS[a].capitalize()} {_REMARKS[(a + b) % len(_REMARKS)]}" for a, b in pairs]
