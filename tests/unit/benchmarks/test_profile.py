"""Profiles of a benchmark: reading perf's report, and whose CPU time it was."""

from __future__ import annotations

import pytest

from benchmarks.versus_redis.profile import PARTS, part_of, read

REPORT = """\
# Samples: 13  of event 'cpu-clock:ppp'
#
# Overhead\tShared Object    \tSymbol                          \tIPC   [IPC Coverage]

 60.00%  \t[kernel.kallsyms]\t[k] tcp_sendmsg                 \t-      -
 25.50%  \tlibc.so.6        \t[.] __memmove_avx_unaligned_erms\t-      -
  4.50%  \tredis-server     \t[.] streamTrim                  \t-      -
"""


def test_a_report_gives_shares_by_program_and_function():
    assert read(REPORT) == pytest.approx(
        {
            ("[kernel.kallsyms]", "tcp_sendmsg"): 0.6,
            ("libc.so.6", "__memmove_avx_unaligned_erms"): 0.255,
            ("redis-server", "streamTrim"): 0.045,
        }
    )


@pytest.mark.parametrize(
    ("program", "part"),
    [
        ("[kernel.kallsyms]", "kernel"),
        ("[vdso]", "kernel"),
        ("libc.so.6", "C library"),
        ("libc-2.31.so", "C library"),
        ("libjemalloc.so.2", "C library"),
        ("ld-linux-x86-64.so.2", "C library"),
        ("redis-check-rdb", "itself"),
        ("valkey-server", "itself"),
        ("e3a1c__mypyc.cpython-311-x86_64-linux-gnu.so", "itself"),
        ("python3.11", "interpreter"),
        ("libpython3.11.so.1.0", "interpreter"),
        ("loop.cpython-311-x86_64-linux-gnu.so", "libraries"),
        ("libzstd.so.1", "libraries"),
    ],
)
def test_each_program_belongs_to_a_part(program: str, part: str):
    assert part_of(program) == part
    assert part in PARTS
