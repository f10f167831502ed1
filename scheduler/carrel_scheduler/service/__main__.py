"""``python -m carrel_scheduler.service``."""

from carrel_scheduler.service.main import main

main()
