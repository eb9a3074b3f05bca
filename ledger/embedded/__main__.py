"""`python -m ledger.embedded start|stop|status|destroy HOME`."""

from ledger.embedded import main

raise SystemExit(main())
