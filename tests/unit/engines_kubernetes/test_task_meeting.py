"""Connections of a pod as its kernel lists them."""

from carrel_scheduler.engines.kubernetes.tasks.engine import ports

TABLES = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0929 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1
   1: 0100007F:C350 07E0E00A:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2
   2: 0100007F:C351 07E0E00A:0016 02 00000000:00000000 00:00000000 00000000  1000        0 3
  sl  local_address                         remote_address                        st tx_queue
   0: 00000000000000000000000000000000:1388 00000000000000000000000000000000:0000 0A 00000000
"""


def test_what_listens_and_what_is_connected_counts_on_both_ends() -> None:
    assert set(ports(TABLES)) == {2345, 0, 50000, 8080, 5000}
