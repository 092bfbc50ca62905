"""Django: a job is stored in the same database transaction as the order, and moved to its queue afterwards.

    KQ_BOOTSTRAP=127.0.0.1:9092 python examples/recipes/django_outbox.py

A put inside of `atomic()` would be sent although the transaction is rolled back later. A row of the outbox is not.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.db import connection, transaction

import kqlib as kq

DATABASE = Path(tempfile.mkdtemp()) / "orders.sqlite3"
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}})
django.setup()


def order(customer: str, paid: bool) -> None:
    """A view of your site: both are committed, or neither."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders (customer) VALUES (%s)", [customer])
        outbox().add("invoices", customer.encode(), key=customer.encode())
        if not paid:
            raise ValueError(f"{customer} has not paid")


def outbox() -> kq.virtual.Outbox:
    """Django's cursors take %s, whatever the database's own driver takes."""
    return kq.virtual.Outbox(connection, paramstyle="format")


def move(site: kq.Site) -> None:
    """A management command that runs all the time, or every minute. After a crash it puts a job again under the same id."""
    while outbox().move(site.queue):
        pass


if __name__ == "__main__":
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (customer TEXT)")
    outbox()  # its tables, outside of a transaction
    order("anna", paid=True)
    try:
        order("ben", paid=False)
    except ValueError as error:
        print("rolled back:", error)
    with kq.connect() as cluster, kq.Site(cluster, "billing") as site:
        move(site)
        print("in the queue:", [item.data for item in site.queue("invoices").claim_many(10, wait=10)])
