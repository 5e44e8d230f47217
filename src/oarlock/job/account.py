"""Account: jobs are accounted in the transaction that ends them; this makes the account anew, or catches up."""

from oarlock.config import Config
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting


def catch_up(tx: Tx, config: Config) -> int:
    """Account every ended job that is not accounted yet; say how many were looked at."""
    count = 0
    while looked := accounting.update_accounts(tx, window=config.accounting_window):
        count += looked
    return count


def make_anew(tx: Tx, config: Config) -> int:
    """Forget the account and make it again from all jobs; say how many were looked at."""
    accounting.reinitialize(tx)
    return catch_up(tx, config)
