//! The jobs. Each exits with 0 when all is well; its current folder is an empty workspace.

use super::On::{Both, Namespaces, Nowhere};
use super::{On, Row};

/// Without a network namespace the only loopback is the host's, which is not the session's to use.
const OWN_LOOPBACK: On = Namespaces("loopback needs a network of the session's own");
/// Below Landlock ABI 9 nothing tells the host's sockets from the session's, and a read-only mount does not bar connecting.
const UNIX_BY_PATH: On = Nowhere("unix sockets with a name are refused below Landlock ABI 9");
/// Only TMPDIR is private there.
const OWN_TMP: On = Namespaces("/tmp is the host's");
/// It holds others' memory.
const OWN_SHM: On = Namespaces("/dev/shm is the host's");
/// Other terminals of the same user may be in it.
const OWN_PTS: On = Namespaces("/dev/pts is the host's");

/// Seconds, on a machine with much else to do.
const SLOW: u64 = 120;
const QUICK: u64 = 40;

const fn row(name: &'static str, needs: &'static [&'static str], on: On, limit: u64, script: &'static str) -> Row {
    Row { name, needs, on, limit, script }
}

pub(super) const ROWS: &[Row] = &[
    row(
        "git: init, add, commit, status",
        &["git"],
        Both,
        QUICK,
        r#"
set -e; git init -q; test -z "$(git status --porcelain)"; echo a > a; git add .; git commit -qm one
echo b >> a; test "$(git status --porcelain)" = ' M a'; git commit -qam two; test "$(git log --oneline | wc -l)" = 2
test "$(git log -1 --format=%an)" = Tester"#,
    ),
    row(
        "git: stash, branch, merge, rebase, tag, gc",
        &["git"],
        Both,
        QUICK,
        r#"
set -e; git init -q; echo a > a; git add .; git commit -qm one; echo b > a; git stash -q; test "$(cat a)" = a; git stash pop -q
test "$(cat a)" = b; git commit -qam two; git checkout -qb side HEAD~1; echo c > c; git add .; git commit -qm three
git rebase -q main; git checkout -q main; git merge -q side; git tag v1; git gc -q; git fsck; test -f c"#,
    ),
    row(
        "git: worktree",
        &["git"],
        Both,
        QUICK,
        r#"
set -e; git init -q r; cd r; echo a > a; git add .; git commit -qm one; git worktree add -q ../w; cd ../w; echo b > b; git add .
git commit -qm two; cd ../r; git worktree list | grep -q /w; git worktree remove ../w; git log --oneline w | grep -q two"#,
    ),
    row(
        "git: submodule",
        &["git"],
        Both,
        QUICK,
        r#"
set -e; git init -q sub; (cd sub; echo a > a; git add .; git commit -qm one); git init -q r; cd r
git -c protocol.file.allow=always submodule --quiet add "$PWD/../sub" sub; git commit -qm sub; git submodule status | grep -q sub
cd sub; echo b > b; git add .; git commit -qm two"#,
    ),
    row(
        "git: clone, push, pull, bare, format-patch, am",
        &["git"],
        Both,
        QUICK,
        r#"
set -e; git init -q --bare b.git; git clone -q b.git c 2>/dev/null; cd c; echo a > a; git add .; git commit -qm one; git push -q origin HEAD
cd ..; git clone -q b.git d; cd c; echo b > b; git add .; git commit -qm two; git push -q origin HEAD; cd ../d; git pull -q; test -f b
git format-patch -q -1 -o p; git reset -q --hard HEAD~1; git am -q p/*; test -f b"#,
    ),
    row(
        "python: a virtual environment",
        &["python3"],
        Both,
        SLOW,
        r#"python3 -m venv v && v/bin/python -c 'import sys; assert sys.prefix.endswith("/v")' && v/bin/pip --version"#,
    ),
    row(
        "python: multiprocessing, pool and queue",
        &["python3"],
        OWN_SHM,
        QUICK,
        r#"
cat > m.py <<'E'
import multiprocessing as m
def f(x): return x * x
if __name__ == '__main__':
    for how in ('fork', 'spawn'):
        with m.get_context(how).Pool(2) as p: assert p.map(f, [1, 2, 3]) == [1, 4, 9]
    q = m.Queue(); c = m.Process(target=q.put, args=(7,)); c.start(); assert q.get(timeout=10) == 7; c.join()
E
python3 m.py"#,
    ),
    row(
        "python: processes by concurrent.futures",
        &["python3"],
        OWN_SHM,
        QUICK,
        r#"
python3 -c '
from concurrent.futures import ProcessPoolExecutor as P
with P(2) as p: assert list(p.map(abs, [-1, -2])) == [1, 2]'"#,
    ),
    row(
        "python: threads",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 -c '
from concurrent.futures import ThreadPoolExecutor as P
with P(4) as p: assert sum(p.map(abs, range(-100, 0))) == 5050'"#,
    ),
    row(
        "python: asyncio subprocess and threads",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import asyncio, threading
async def main():
    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    out, _ = await asyncio.wait_for(p.communicate(b'hello'), 10); assert out == b'hello'
    loop = asyncio.get_running_loop(); done = asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set)).start()
    await asyncio.wait_for(done.wait(), 10)
    assert await loop.run_in_executor(None, lambda: 5) == 5
asyncio.run(main())
E"#,
    ),
    row(
        "python: sqlite, write-ahead log",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 -c '
import sqlite3
c = sqlite3.connect("d.db"); assert c.execute("pragma journal_mode=wal").fetchone() == ("wal",)
c.execute("create table t(x)"); c.execute("insert into t values (1)"); c.commit()
d = sqlite3.connect("d.db"); assert d.execute("select x from t").fetchall() == [(1,)]'"#,
    ),
    row(
        "python: subprocess, tempfile, shutil",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import subprocess, tempfile, shutil, os
assert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3
with tempfile.TemporaryDirectory() as d:
    open(os.path.join(d, 'a'), 'w').write('x'); shutil.copy2(os.path.join(d, 'a'), 'b')
    shutil.move('b', os.path.join(d, 'c')); shutil.move(os.path.join(d, 'c'), 'e')
os.mkdir('t'); open('t/f', 'w').close(); shutil.copytree('t', 'u'); shutil.rmtree('t')
assert open('e').read() == 'x'
E"#,
    ),
    row(
        "python: shared memory",
        &["python3"],
        OWN_SHM,
        QUICK,
        r#"
python3 -c '
from multiprocessing import shared_memory as s
a = s.SharedMemory(create=True, size=64); a.buf[0] = 7; b = s.SharedMemory(a.name); assert b.buf[0] == 7; b.close(); a.close(); a.unlink()'"#,
    ),
    row(
        "cargo: build, test, run, offline",
        &["cargo"],
        Both,
        SLOW,
        r#"
set -e; cargo new -q --vcs none p; cd p; echo '#[test] fn t() { assert_eq!(1 + 1, 2) }' >> src/main.rs; cargo build -q --offline
cargo test -q --offline; cargo run -q --offline | grep -q Hello; touch src/main.rs; cargo build -q --offline; cargo clean -q"#,
    ),
    row(
        "node: npm script",
        &["node", "npm"],
        Both,
        QUICK,
        r#"
echo '{"name":"p","version":"1.0.0","scripts":{"test":"node t.js","pretest":"echo pre"}}' > package.json
echo 'require("fs").writeFileSync("out", "x")' > t.js; npm test && test -f out"#,
    ),
    row(
        "node: worker threads",
        &["node"],
        Both,
        QUICK,
        r#"
node -e '
const { Worker } = require("worker_threads");
const w = new Worker("require(\"worker_threads\").parentPort.postMessage(42)", { eval: true });
w.on("message", m => process.exit(m == 42 ? 0 : 1)); setTimeout(() => process.exit(2), 20000)'"#,
    ),
    row(
        "node: child processes with a channel",
        &["node"],
        Both,
        QUICK,
        r#"
cat > c.js <<'E'
const { fork, execFileSync } = require('child_process');
if (process.argv[2]) process.on('message', m => { process.send(m + 1); process.disconnect() });
else {
  const c = fork(__filename, ['x']);
  c.on('message', m => process.exit(m == 2 && execFileSync('echo', ['a']) == 'a\n' ? 0 : 1)); c.send(1);
  setTimeout(() => process.exit(2), 20000);
}
E
node c.js"#,
    ),
    row(
        "node: watching files",
        &["node"],
        Both,
        QUICK,
        r#"
node -e '
const fs = require("fs"); fs.mkdirSync("d"); fs.watch("d", () => process.exit(0));
setTimeout(() => fs.writeFileSync("d/x", ""), 100); setTimeout(() => process.exit(2), 20000)'"#,
    ),
    row(
        "gcc: compile, link, run",
        &["gcc"],
        Both,
        QUICK,
        r#"
printf '#include <stdio.h>\nint main(void){puts("hi");return 0;}' > a.c && gcc -O1 -g -o a a.c && ./a | grep -q hi && gcc -shared -fPIC -o l.so a.c"#,
    ),
    row(
        "make -j with a job server",
        &["make", "gcc"],
        Both,
        QUICK,
        r#"
printf 'all: a b c d\n\t$(MAKE) sub\nsub: e f\n%%: %%.c\n\t@gcc -o $@ $<\n' > Makefile
for x in a b c d e f; do echo 'int main(void){return 0;}' > $x.c; done; make -j4 && ./a && ./f"#,
    ),
    row(
        "gcc: threads and locks",
        &["gcc"],
        Both,
        QUICK,
        r#"
cat > t.c <<'E'
#include <pthread.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static int n;
static void *f(void *x) { for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); } return x; }
int main(void) {
  pthread_t t[8]; for (int i = 0; i < 8; i++) if (pthread_create(&t[i], 0, f, 0)) return 2;
  for (int i = 0; i < 8; i++) pthread_join(t[i], 0); return n != 8000;
}
E
gcc -pthread -o t t.c && ./t"#,
    ),
    row(
        "here-documents and here-strings",
        &[],
        Both,
        QUICK,
        r#"
x=$(cat <<'E'
a $b
E
); test "$x" = 'a $b' && read -r y <<< "$x" && test "$y" = 'a $b' && head -c 200000 /dev/zero | tr '\0' x > big && cat <<< "$(cat big)" | wc -c | grep -q 200001"#,
    ),
    row(
        "pipes and early close",
        &[],
        Both,
        QUICK,
        r#"
yes | head -1 | grep -q y && seq 1 1000000 | head -1 | grep -q 1 && test "$(seq 1 100 | sort -rn | head -1)" = 100 &&
! (set -o pipefail; yes | head -1 >/dev/null)"#,
    ),
    row(
        "process substitution, named pipes",
        &[],
        Both,
        QUICK,
        r#"diff <(echo a) <(echo a) && mkfifo p && { echo x > p & } && test "$(cat p)" = x && test "$(tee o <<< y | cat)" = y && cat o > >(cat)"#,
    ),
    row(
        "job control",
        &[],
        Both,
        QUICK,
        r#"
set -m; sleep 30 & jobs | grep -q sleep && kill %1; wait %1; test $? = 143 || exit 1
(exit 4) & wait $!; test $? = 4 && { sleep 0.1 & } && wait -n"#,
    ),
    row(
        "signals among own children",
        &[],
        Both,
        QUICK,
        r#"
{ trap 'exit 9' TERM; echo > ready; while :; do sleep 0.05; done; } & until test -e ready; do sleep 0.05; done
kill -TERM $!; wait $!; test $? = 9 || exit 1; sleep 30 & kill -STOP $! && kill -CONT $! && kill -9 $!; wait $!; test $? = 137 || exit 2
timeout 0.2 sleep 10; test $? = 124"#,
    ),
    row(
        "a process group and a session of its own",
        &["setsid"],
        Both,
        QUICK,
        r#"setsid sh -c 'echo in' | grep -q in && nohup true && nice -n 5 true && echo '1 2 3' | xargs -P4 -n1 echo | wc -l | grep -q 3"#,
    ),
    row(
        "/dev/null and friends",
        &[],
        Both,
        QUICK,
        r#"
set -e; echo a > /dev/null; cat < /dev/null; test $(head -c4 /dev/zero | wc -c) = 4; test $(head -c4 /dev/urandom | wc -c) = 4
test $(head -c4 /dev/random | wc -c) = 4; (! echo a > /dev/full); echo x | cat /dev/stdin > /dev/stdout; echo e > /dev/stderr
test -e /dev/fd/0; dd if=/dev/zero of=f bs=1k count=4 2>/dev/null; ls /dev/null /dev/zero"#,
    ),
    row(
        "own entries in /proc",
        &[],
        Both,
        QUICK,
        r#"
sh -c 'cat /proc/self/maps > /dev/null && readlink /proc/self/exe && cat /proc/self/status /proc/self/cmdline /proc/$$/stat > /dev/null && ls /proc/self/fd /proc/self/task' &&
cat /proc/cpuinfo /proc/meminfo /proc/loadavg /proc/version > /dev/null && cat /proc/sys/kernel/pid_max && nproc"#,
    ),
    row(
        "mktemp in TMPDIR",
        &[],
        Both,
        QUICK,
        r#"
f=$(mktemp) && echo x > $f && d=$(mktemp -d) && mv $f $d/f && test -d "$TMPDIR" && touch $TMPDIR/t && mktemp -p . && cp $d/f here && mv $d/f moved"#,
    ),
    row(
        "mktemp in /tmp",
        &[],
        OWN_TMP,
        QUICK,
        r#"
f=$(mktemp /tmp/XXXXXX) && echo x > $f && touch /tmp/t && mv $f here && cat here && ls /tmp &&
printf '#!/bin/sh\necho ran' > /tmp/s && chmod +x /tmp/s && /tmp/s"#,
    ),
    row("/dev/shm", &[], OWN_SHM, QUICK, "echo x > /dev/shm/t && cat /dev/shm/t && rm /dev/shm/t"),
    row(
        "renames across folders, links, removal",
        &[],
        Both,
        QUICK,
        r#"
set -e; mkdir -p a/b c; touch a/b/f; mv a/b/f c/g; mv a d; mv d/b c/; ln c/g h; ln -s h s; test -e s; cp -al c e; rm -r c d e
mkdir -p x/y; rmdir -p x/y; touch i; mv -f i h"#,
    ),
    row(
        "metadata of own files",
        &[],
        Both,
        QUICK,
        r#"
set -e; touch f; chmod 600 f; chmod +x f; touch -d 2001-01-01 f; test $(stat -c %Y f) -lt 1000000000; chown $(id -u):$(id -g) f
cp -p f g; truncate -s 10M g; fallocate -l 1M k; umask 022; install -m 755 f i"#,
    ),
    row("flock", &["flock"], Both, QUICK, "flock f true && ! flock f flock -n f true"),
    row(
        "fcntl locks, mmap, memfd",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import fcntl, mmap, os
f = open('f', 'w+b'); f.truncate(8192); fcntl.lockf(f, fcntl.LOCK_EX)
m = mmap.mmap(f.fileno(), 8192); m[0] = 65; m.flush(); assert open('f', 'rb').read(1) == b'A'
a = mmap.mmap(-1, 4096); a[0] = 1
n = os.memfd_create('x'); os.write(n, b'y'); os.lseek(n, 0, 0); assert os.read(n, 1) == b'y'
E"#,
    ),
    row(
        "inotify",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import ctypes, os
c = ctypes.CDLL(None, use_errno=True); fd = c.inotify_init1(0); assert fd >= 0
assert c.inotify_add_watch(fd, b'.', 0x100) >= 0, os.strerror(ctypes.get_errno())
open('new', 'w').close(); assert b'new' in os.read(fd, 4096)
E"#,
    ),
    row(
        "epoll, eventfd, timerfd, signalfd, getrandom",
        &["gcc"],
        Both,
        QUICK,
        r#"
cat > e.c <<'E'
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/signalfd.h>
#include <sys/random.h>
#include <signal.h>
#include <time.h>
int main(void) {
  int e = epoll_create1(0), v = eventfd(1, 0), t = timerfd_create(CLOCK_MONOTONIC, 0); sigset_t s; sigemptyset(&s); int g = signalfd(-1, &s, 0);
  struct epoll_event x = { EPOLLIN, { 0 } }, y; char b[4];
  if (e < 0 || v < 0 || t < 0 || g < 0 || epoll_ctl(e, EPOLL_CTL_ADD, v, &x)) return 1;
  return !(epoll_wait(e, &y, 1, 1000) == 1 && getrandom(b, 4, 0) == 4);
}
E
gcc -o e e.c && ./e"#,
    ),
    row(
        "unix socket pairs",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import socket, os
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind); a.send(b'x'); assert b.recv(1) == b'x'
a, b = socket.socketpair(); r, w = os.pipe(); socket.send_fds(a, [b'f'], [w])
_, fds, _, _ = socket.recv_fds(b, 1, 1); os.write(fds[0], b'z'); assert os.read(r, 1) == b'z'
E"#,
    ),
    row(
        "a unix server with a name",
        &["python3"],
        UNIX_BY_PATH,
        QUICK,
        r#"
python3 - <<'E'
import socket, threading
s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen()
threading.Thread(target=lambda: s.accept()[0].sendall(b'hi')).start()
c = socket.socket(socket.AF_UNIX); c.settimeout(10); c.connect('sock'); assert c.recv(2) == b'hi'
E"#,
    ),
    row(
        "a loopback server and its client",
        &["python3"],
        OWN_LOOPBACK,
        QUICK,
        r#"
echo page > index.html; python3 -m http.server 8123 --bind 127.0.0.1 2>/dev/null & p=$!
for i in $(seq 100); do
  python3 -c 'import urllib.request as u; assert u.urlopen("http://localhost:8123/", timeout=5).read() == b"page\n"' 2>/dev/null && kill $p && exit 0
  sleep 0.1
done; exit 1"#,
    ),
    row(
        "loopback: UDP and v6",
        &["python3"],
        OWN_LOOPBACK,
        QUICK,
        r#"
python3 - <<'E'
import socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(family, kind); s.bind((host, 0)); s.settimeout(5); c = socket.socket(family, kind); c.settimeout(5)
        if kind == socket.SOCK_STREAM: s.listen()
        c.connect(s.getsockname()); c.send(b'x')
        assert (s.accept()[0] if kind == socket.SOCK_STREAM else s).recv(1) == b'x'
E"#,
    ),
    row(
        "node: a loopback server",
        &["node"],
        OWN_LOOPBACK,
        QUICK,
        r#"
node -e '
const h = require("http"); const s = h.createServer((q, r) => r.end("x")).listen(0, "localhost", () =>
  h.get({ port: s.address().port, host: "localhost" }, r => process.exit(r.statusCode == 200 ? 0 : 1)));
setTimeout(() => process.exit(2), 20000)'"#,
    ),
    row(
        "a name that does not resolve fails at once",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import socket, time
t = time.monotonic()
try: socket.getaddrinfo('nohost.example.com', 80); raise SystemExit('it resolved')
except OSError: pass
assert time.monotonic() - t < 1, time.monotonic() - t
E"#,
    ),
    row(
        "an address outside fails at once",
        &["python3"],
        Both,
        QUICK,
        r#"
python3 - <<'E'
import socket, time
t = time.monotonic()
try: socket.create_connection(('192.0.2.1', 80), timeout=20); raise SystemExit('it connected')
except OSError: pass
assert time.monotonic() - t < 1, time.monotonic() - t
E"#,
    ),
    row(
        "git and curl to a host outside fail at once",
        &["git", "curl"],
        Both,
        QUICK,
        r#"
s=$(date +%s%N); git ls-remote https://nohost.example.com/x 2>/dev/null && exit 1; curl -s https://nohost.example.com && exit 1
test $(( ($(date +%s%N) - s) / 1000000 )) -lt 3000"#,
    ),
    row("strace of own children", &["strace"], Both, QUICK, "strace -f -o o sh -c 'true; /bin/true' && grep -q execve o"),
    row(
        "gdb of own children",
        &["gdb", "gcc"],
        Both,
        QUICK,
        r#"
echo 'int main(void){return 7;}' > a.c && gcc -g -o a a.c &&
gdb -q -batch -ex 'break main' -ex run -ex bt -ex c ./a > o 2>&1; cat o; grep -q 'exited with code 07' o"#,
    ),
    row("ulimit", &[], Both, QUICK, "ulimit -c 0 && ulimit -a > /dev/null && ulimit -Sn 256"),
    row(
        "ps, pgrep",
        &["ps"],
        Both,
        QUICK,
        r#"sleep 20 & until pgrep -x sleep > /dev/null; do :; done; ps | grep -q sleep && ps aux | grep -q '[s]leep 20' && pgrep -x sleep > /dev/null && ps -ef > /dev/null && ps -o pid,ppid,cmd -p $$ && kill $!"#,
    ),
    row(
        "locale",
        &["locale"],
        Both,
        QUICK,
        r#"locale > /dev/null && locale -a | grep -qi utf && test "$(LC_ALL=C.UTF-8 bash -c 'x=é; echo ${#x}')" = 1 && test "$(printf é | wc -m)" = 1"#,
    ),
    row(
        "time zone",
        &[],
        Both,
        QUICK,
        r#"date > /dev/null && test "$(TZ=UTC date -d @0 +%H)" = 00 && test "$(TZ=Europe/Berlin date -d @0 +%H)" = 01"#,
    ),
    row(
        "user name and home",
        &[],
        Both,
        QUICK,
        r#"id -un && whoami && getent passwd $(id -u) && test "$(id -un)" = "$USER" && cd && touch x && test -w ~"#,
    ),
    row("host name, kernel", &["python3"], Both, QUICK, "uname -a && hostname && python3 -c 'import socket; assert socket.gethostname()'"),
    row(
        "system files",
        &[],
        Both,
        QUICK,
        r#"
cat /etc/os-release /etc/passwd /etc/group /etc/hosts /etc/nsswitch.conf > /dev/null && ls /usr /usr/bin > /dev/null && test -x /bin/sh &&
cat /etc/resolv.conf > /dev/null && getent hosts localhost && cd /"#,
    ),
    row(
        "openpty",
        &["python3"],
        OWN_PTS,
        QUICK,
        r#"
python3 -c '
import pty, os
assert pty.spawn(["true"]) == 0
a, b = os.openpty(); assert os.isatty(b); os.write(b, b"x"); assert os.read(a, 1) == b"x"'"#,
    ),
    row("script", &["script"], OWN_PTS, QUICK, "script -qec tty /dev/null | grep -q /dev/pts"),
    row(
        "tmux",
        &["tmux"],
        UNIX_BY_PATH,
        QUICK,
        "tmux new-session -d 'echo x > o; sleep 30' && for i in $(seq 50); do test -e o && tmux kill-server && exit 0; sleep 0.1; done; exit 1",
    ),
    row(
        "a program that reads its input ends",
        &["git"],
        Both,
        QUICK,
        r#"cat; read -r a; test -z "$a" && git init -q && ! git commit --allow-empty -q && ! sh -c ': < /dev/tty'"#,
    ),
    row(
        "tar, gzip",
        &["tar"],
        Both,
        QUICK,
        "set -e; mkdir d; echo x > d/f; tar czf a.tgz d; rm -r d; tar xzf a.tgz; test -f d/f; gzip -k d/f; gunzip -t d/f.gz",
    ),
    row(
        "perl",
        &["perl"],
        Both,
        QUICK,
        r#"
perl -MSocket -MFile::Temp -e 'open(my $h, "-|", "echo a"); print <$h>; my ($f, $n) = File::Temp::tempfile(); print $f 1;
socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die; fork or exit 0; wait; exit $?'"#,
    ),
    row(
        "java",
        &["java", "javac"],
        Both,
        SLOW,
        r#"
cat > A.java <<'E'
class A { public static void main(String[] a) throws Exception {
  Thread t = new Thread(() -> System.out.println("hi")); t.start(); t.join(); java.io.File.createTempFile("a", "b");
} }
E
javac A.java && java A | grep -q hi"#,
    ),
    row("sqlite3", &["sqlite3"], Both, QUICK, "sqlite3 d 'create table t(x); insert into t values (1); select x from t' | grep -q 1"),
    row(
        "find, grep, sed, awk, sort over a tree",
        &[],
        Both,
        QUICK,
        r#"
mkdir -p a/b && for i in 1 2 3; do echo line $i > a/b/$i; done && find . -type f -exec grep -l line {} + | wc -l | grep -q 3 &&
sed -i s/line/row/ a/b/* && awk '{print $2}' a/b/* | sort -rn | head -1 | grep -q 3 && grep -rn row . | wc -l | grep -q 3"#,
    ),
];
