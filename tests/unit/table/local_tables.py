"""Parts that controllers share; a test passes those that its controller uses."""

from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers.local_tables import LocalTables


def local_tables(**parts):
    nothing = LocalTables(*[None] * len(LocalTables._fields))
    return nothing._replace(settings=TableSettings(), look_at=lambda _: None)._replace(**parts)
