"""Environment only. With nothing set: sandbox mode on SQLite in `var/`, which needs no services."""

from pathlib import Path

import environ
from csp.constants import NONE, SELF

from healthboard import broker, config
from healthboard.people.oidc import config as oidc

BASE_DIR = Path(__file__).resolve().parent.parent
MODE = config.mode()
SANDBOX = MODE == "sandbox"
HOME = config.home()
SPEED = config.speed()

DEBUG = False
SECRET_KEY = config.read("HEALTHBOARD_SECRET_KEY") or config.secret("django")
SECRET_KEY_FALLBACKS = config.listed("HEALTHBOARD_SECRET_KEY_FALLBACKS")
ALLOWED_HOSTS = config.listed("HEALTHBOARD_HOSTS") or ["127.0.0.1", "localhost", "[::1]"]
CSRF_TRUSTED_ORIGINS = config.listed("HEALTHBOARD_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "csp",
    "django_htmx",
    "template_partials",
    "healthboard",
    "healthboard.audit",
    "healthboard.people",
    "healthboard.notices",
    "healthboard.fleet",
    "healthboard.policies",
    "healthboard.repairs",
    "healthboard.cases",
    "healthboard.approve",
    "healthboard.api",
]

MIDDLEWARE = [
    "healthboard.headers.Headers",
    "django.middleware.security.SecurityMiddleware",
    "healthboard.api.alive.Alive",
    "healthboard.api.given_up.GivenUp",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "healthboard.compress.Compress",
    "healthboard.inert.Inert",
    "healthboard.audit.middleware.RequestId",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "healthboard.people.sessions.Bounded",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "healthboard.approve.context.Attach",
    "healthboard.people.denied.OnRecord",
]

ROOT_URLCONF = "healthboard.urls"
WSGI_APPLICATION = "healthboard.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "healthboard.approve.context.shell",
            ],
        },
    }
]

_database = environ.Env.db_url_config(config.read("DATABASE_URL") or f"sqlite:///{HOME / 'healthboard.sqlite3'}")
if "ENGINE" not in _database:
    raise config.BadSetting("DATABASE_URL cannot be read: expected postgres://USER:PASSWORD@HOST/NAME")
if _database["ENGINE"].endswith("sqlite3"):
    # One writer at a time: a transaction takes the write lock when it begins, so read-then-write is safe.
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=30000;",
    }
else:
    _database["ENGINE"] = "healthboard.postgres"
    _database["CONN_MAX_AGE"] = 60
    _database["CONN_HEALTH_CHECKS"] = True
    _options = _database.setdefault("OPTIONS", {})
    _options |= {"connect_timeout": 5, **config.database_tls(_database.get("HOST", ""), _options)}
DATABASES = {"default": _database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = broker.url()

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = HOME / "static"
STATICFILES_DIRS = [BASE_DIR / "healthboard" / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
WHITENOISE_ALLOW_ALL_ORIGINS = False

LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
CSRF_FAILURE_VIEW = "healthboard.people.detour.csrf_failure"
LOGOUT_REDIRECT_URL = "/accounts/login/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {
        "NAME": "django.contrib.auth.password_validation.CommonPasswordValidator",
        "OPTIONS": config.password_list(),
    },
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "healthboard.people.passwords.OwnWords"},
]

#: the provider that people may log in by, or None; see healthboard/people/oidc. Of allauth no page of its own is served.
OIDC = oidc.provider()
OIDC_DAYS = oidc.days()
#: whether people may log in by a password that is kept here
LOCAL_LOGIN = oidc.local()
ACCOUNT_ADAPTER = "healthboard.people.oidc.adapters.Accounts"
SOCIALACCOUNT_ADAPTER = "healthboard.people.oidc.adapters.Social"
ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGIN_METHODS, ACCOUNT_SIGNUP_FIELDS = {"username"}, ["username*"]
SOCIALACCOUNT_STORE_TOKENS = SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_EMAIL_REQUIRED = False

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
#: seconds that a log-in counts at most, and without a click; None: no such end
SESSION_LONGEST, SESSION_IDLE = config.sessions()
SESSION_COOKIE_AGE = int(SESSION_LONGEST or 12 * 3600)
SESSION_COOKIE_NAME = f"hb{config.port()}session"
CSRF_COOKIE_NAME = f"hb{config.port()}csrf"
KNOWN_COOKIE_NAME = f"hb{config.port()}known"
#: of what else is kept in cookies: messages, the look
COOKIE_PREFIX = "" if SANDBOX else "__Host-"
MESSAGE_STORAGE = "healthboard.said.Said"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
if not SANDBOX:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME, KNOWN_COOKIE_NAME = "__Host-session", "__Host-csrf", "__Host-known"
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = True
    SECURE_SSL_REDIRECT = config.read("HEALTHBOARD_SSL_REDIRECT", "1") == "1"
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
else:
    SECURE_SSL_REDIRECT, SECURE_HSTS_SECONDS = False, 0

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "manifest-src": [SELF],
        "base-uri": [NONE],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
    }
}

#: links in messages begin so
URL = config.url()
globals().update(config.smtp())
EMAIL_TIMEOUT = 10

DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "healthboard.logs.Line"}, "json": {"()": "healthboard.logs.json_lines"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": config.choice("HEALTHBOARD_LOG_FORMAT", "line" if SANDBOX else "json", ("line", "json")),
        }
    },
    "root": {"handlers": ["stderr"], "level": config.read("HEALTHBOARD_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "botocore": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "kombu": {"level": "WARNING"},
    },
}
