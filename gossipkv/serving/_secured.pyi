from typing import final

@final
class Secured: ...
