"""The first process of a task's container: it starts the command and passes on the word to end.

The first process of a container is special: the kernel shields it from signals that it has no
handler for, and it alone gets SIGTERM. A command in that place would not notice SIGTERM, or, if
it is a shell, would keep it from the training that it started. So the first process is this small
program, for ``/bin/sh`` as every training image has it. It

* copies files that came along into the task's folder, where they may be written;
* waits until the names of a gang's members are known, which takes a name service some seconds and
  is an error to most libraries, but no longer than a minute;
* passes SIGTERM on to every process of the task once it gets it, and then waits for all of them,
  so that a shell that ends at once does not take the training with it that is saving its work;
* ends with the command's own exit code, 128 and the number of the signal that killed it.

Nothing of the command is read by the shell: it is passed on as arguments.
"""

from collections.abc import Sequence
from typing import Final

from carrel_scheduler.engines.kubernetes.tasks.settings import GIVEN, RUN, WORK

NAME_TRIES: Final = 300
SCRIPT: Final = f"""\
asked=
stop() {{
  asked=1
  kill -s TERM -- -1 2>/dev/null
  for one in {RUN}/terminal-*; do kill -s HUP -- "-${{one##*-}}" 2>/dev/null; done
}}
trap stop TERM
all_known() (
  IFS=,
  for one in $CARREL_MEMBERS; do
    one=${{one#*=}}
    getent hosts "${{one%%:*}}" >/dev/null || exit 1
  done
)
if [ -d {GIVEN}/files ]; then cp -RL {GIVEN}/files/. {WORK} || exit 126; fi
if ! command -v "$1" >/dev/null 2>&1; then
  echo "$1: no such program in the image" | tee /dev/termination-log >&2
  exit 127
fi
if [ -n "$CARREL_MEMBERS" ] && command -v getent >/dev/null; then
  tries=0
  until [ -n "$asked" ] || [ $tries -ge {NAME_TRIES} ] || all_known
  do tries=$((tries + 1)); sleep 0.2; done
fi
[ -z "$asked" ] || exit 143
if env --default-signal=INT,QUIT true 2>/dev/null; then
  env --default-signal=INT,QUIT "$@" &
else
  "$@" &
fi
child=$!
[ -z "$asked" ] || kill -s TERM -- -1 2>/dev/null
while :; do
  wait "$child"; code=$?
  kill -s 0 "$child" 2>/dev/null || break
done
wait "$child" 2>/dev/null; again=$?
[ $again -eq 127 ] || code=$again
if [ -n "$asked" ]; then
  while kill -s 0 -- -1 2>/dev/null; do sleep 0.1; done
fi
exit $code
"""

GOODBYE: Final = b"\x1b]carrel;%s;"
GOODBYE_ENDS: Final = b"\a"
EMPTY_READS: Final = 20
TERMINAL: Final = f"""\
mark=$1 note={RUN}/terminal-$1-$$
shift
: > "$note"
"$@"
code=$?
printf '\\033]carrel;%s;%s\\a' "$mark" $code
empty=0
while [ $empty -lt {EMPTY_READS} ]; do
  read -r said || empty=$((empty + 1))
  case $said in *"$mark") break;; esac
done
rm -f "$note"
exit $code
"""
"""A command on a terminal.

Its note lets those who close the terminal find its processes. Once the command has ended it says
so, with the exit code, behind the last of the output, and is there until it is answered with its
mark. Without that, what is typed as a command ends would meet a connection whose other end has gone
already, on which API servers drop the output and the exit code that were still on their way.
"""

HANG_UP: Final = f"""\
for one in {RUN}/terminal-$1-*; do
  kill -s HUP -- "-${{one##*-}}"; kill -s CONT -- "-${{one##*-}}"
done 2>/dev/null
exit 0
"""

KILL: Final = ("/bin/sh", "-c", "kill -s KILL -- -1")
"""Ends every process of a container but its first one, which then ends as the command did."""


def first(command: Sequence[str]) -> list[str]:
    """The command of a container that starts this program, which runs ``command``."""
    return ["/bin/sh", "-c", SCRIPT, "carrel", *command]


def terminal(mark: str, command: Sequence[str]) -> list[str]:
    """The command of a terminal; ``mark`` is a word that no other terminal has."""
    return ["/bin/sh", "-c", TERMINAL, "carrel", mark, *command]


def hang_up(mark: str) -> list[str]:
    """The command that sends a terminal's processes SIGHUP."""
    return ["/bin/sh", "-c", HANG_UP, "carrel", mark]
