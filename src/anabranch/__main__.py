"""``python -m anabranch`` is the ``anabranch`` command."""

from __future__ import annotations

from anabranch.cli.main import main

if __name__ == "__main__":
    main()
