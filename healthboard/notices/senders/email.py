"""E-mail by the SMTP server of the environment; the certificate is verified. In the sandbox to loopback only."""

from __future__ import annotations

import smtplib
import socket
import ssl

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from healthboard import config, egress
from healthboard.notices.models import Delivery
from healthboard.notices.senders import card
from healthboard.notices.senders.failed import Failed


class _Plain(smtplib.SMTP):
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return egress.connect(host, port, timeout)


class _Tls(smtplib.SMTP_SSL):
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(egress.connect(host, port, timeout), server_hostname=self._host)


class Backend(EmailBackend):
    """Django's, to the address that was looked up once and checked."""

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _Tls if self.use_ssl else _Plain


def send(delivery: Delivery) -> None:
    host = settings.EMAIL_HOST
    if not host:
        raise Failed("No mail server is set", "set HEALTHBOARD_SMTP_HOST and restart", for_good=True)
    if settings.SANDBOX and not config.loopback(host):
        raise Failed("The sandbox reaches loopback only", "set HEALTHBOARD_SMTP_HOST=127.0.0.1", for_good=True)
    to = delivery.person.email if delivery.person else delivery.to
    if not to:
        raise Failed(f"{delivery.person} has no e-mail address", "enter one under People", for_good=True)
    try:
        message(delivery, to).send()
    except ssl.SSLError as error:
        raise Failed(
            f"TLS with {host} failed: {error.reason}", "check HEALTHBOARD_SMTP_TLS and its certificate"
        ) from None
    except smtplib.SMTPNotSupportedError:
        raise Failed(f"{host} does not offer STARTTLS or log-in", "check HEALTHBOARD_SMTP_TLS and its port") from None
    except smtplib.SMTPRecipientsRefused:
        raise Failed(f"{host} does not take mail for this address", "check the address", alone=True) from None
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise Failed(f"{host} answers {error.smtp_code}: {said}", "check the mail server's settings") from None
    except (OSError, smtplib.SMTPException) as error:
        raise Failed(
            f"{host} cannot be reached: {type(error).__name__}", "check HEALTHBOARD_SMTP_HOST and port"
        ) from None


def message(delivery: Delivery, to: str) -> EmailMessage:
    notice = delivery.notice
    lines = [notice.body, *[f"{name}: {value}" for name, value in card.facts(notice).items()], card.link(notice)]
    where = f"{notice.thread or notice.key}".replace(":", "-")
    thread = "".join(c if c.isalnum() or c in "-." else "-" for c in where)
    return EmailMessage(
        subject=" ".join(f"[{notice.severity}] {card.headline(notice)}".split())[:250],
        body="\n\n".join(line for line in lines if line) + "\n",
        to=[to],
        headers={
            "Message-ID": f"<delivery-{delivery.pk}@healthboard>",  # the same for one that is sent again
            "References": f"<{thread}@healthboard>",  # mail readers show a matter as one conversation
            "Auto-Submitted": "auto-generated",
        },
        connection=Backend(timeout=settings.EMAIL_TIMEOUT),
    )
