//! Each confinement is applied in a forked child, as root (where the tests run as root) and as an ordinary user.

use super::*;
use crate::envelope::FaultCode;
use crate::policy::{Grant, Grants, Identity, Limits, Net, Protection, Rights};
use nix::errno::Errno;
use seccompiler::{SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);
const CLASSES: [Access; 4] = [Access::Look, Access::Change, Access::Execute, Access::Own];

/// A workspace, a session's folder and a folder that nobody was given, all owned by one identity.
struct Place {
    _all: TempDir,
    base: PathBuf,
    outside: PathBuf,
    charter: Charter,
}

fn proved(charter: &Charter, prepared: &HashMap<Access, Prepared>, base: BorrowedFd<'_>) -> Result<Report, Fault> {
    let classes: Vec<Access> = prepared.keys().copied().collect();
    let trial = Trial::begin(base, charter, rooms::Vantage::default(), &classes)?;
    prove(charter, prepared, &Surroundings::default(), trial)?.finish(charter).map(|(report, _)| report)
}

/// Who the tests can be: root and nobody, or whoever runs them.
fn identities() -> Vec<Identity> {
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    let me = Identity { uid, gid };
    if uid == 0 { vec![me, Identity { uid: 65534, gid: 65534 }] } else { vec![me] }
}

fn place(identity: Identity) -> Place {
    let all = tempfile::tempdir().unwrap();
    fs::set_permissions(all.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = all.path().canonicalize().unwrap();
    let (base, session, outside) = (root.join("base"), root.join("session"), root.join("outside"));
    for folder in [&base, &session, &outside, &session.join("home"), &session.join("tmp"), &base.join("sub"), &base.join("other")] {
        fs::create_dir_all(folder).unwrap();
        chown(folder, Some(identity.uid), Some(identity.gid)).unwrap();
    }
    for file in [base.join("sub/file"), outside.join("secret")] {
        fs::write(&file, "text").unwrap();
        chown(&file, Some(identity.uid), Some(identity.gid)).unwrap();
    }
    let grant = |path: &Path, rights| Grant { path: path.into(), rights, reason: "test".into(), origin: "test".into() };
    let mut userland: Vec<Grant> = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/passwd",
        "/etc/ssl",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/localtime",
    ]
    .iter()
    .map(|path| grant(Path::new(path), Rights::RUN))
    .collect();
    userland.push(grant(Path::new("/proc"), Rights::READ));
    userland.push(grant(Path::new("/no/such/path"), Rights::READ));
    for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"] {
        userland.push(grant(Path::new(device), Rights::DEVICE));
    }
    userland.push(grant(Path::new("/dev/shm"), Rights::CHANGE));
    let mut execute = userland.clone();
    execute.push(grant(&base, Rights::ALL));
    execute.push(grant(&session.join("home"), Rights::ALL));
    execute.push(grant(&session.join("tmp"), Rights::ALL));
    userland.push(grant(&session.join("home"), Rights::ALL));
    let charter = Charter {
        policy: "test".into(),
        base: base.clone(),
        identity,
        look: Grants::default(),
        change: Some(Grants::default()),
        execute: Some(Grants(execute)),
        own: Grants(userland),
        env: Vec::new(),
        net: Net::None,
        unix: Unix::Pair,
        protect: Vec::new(),
        limits: Limits { wall_ms: 0, cpu_s: 60, memory: 0, processes: 0, file_size: 1 << 30, open_files: 1024, output: 0, disk: 0 },
        require: Vec::new(),
        namespaces: false,
        allow_degraded: Vec::new(),
        session_dir: session,
        journal: None,
        tools_allow: Vec::new(),
        tools_deny: Vec::new(),
    };
    Place { _all: all, base, outside, charter }
}

impl Place {
    /// Runs `work` in a child that has become the identity and has confined itself to a class.
    fn confined<T>(&self, access: Access, options: &Options, work: impl FnOnce() -> T) -> T
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let in_child = || -> Result<T, String> {
            let text = |fault: Fault| fault.to_string();
            drop_identity(&self.charter.identity).map_err(text)?;
            let base = File::open(&self.base).map_err(|error| error.to_string())?;
            let prepared = prepare_with(&self.charter, access, base.as_fd(), options).map_err(text)?;
            let _confined = prepared.apply().map_err(text)?;
            Ok(work())
        };
        errand::run(LONG, in_child).unwrap().unwrap()
    }

    /// Proves all classes in a child that has become the identity.
    fn prove(&self, options: &Options) -> Result<Report, (FaultCode, String)> {
        errand::run(LONG, || {
            let prove = || {
                drop_identity(&self.charter.identity)?;
                let base = File::open(&self.base).unwrap();
                let prepared: Result<HashMap<_, _>, Fault> =
                    CLASSES.into_iter().map(|access| Ok((access, prepare_with(&self.charter, access, base.as_fd(), options)?))).collect();
                proved(&self.charter, &prepared?, base.as_fd())
            };
            prove().map_err(|fault: Fault| (fault.code(), fault.message().to_string()))
        })
        .unwrap()
    }
}

fn ceiling(abi: u32) -> Options {
    Options { abi_ceiling: Some(abi), ..Options::default() }
}

/// The number of an error, for the way through a pipe.
fn number<T>(result: std::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

#[test]
fn canaries_find_every_class_closed() {
    for identity in identities() {
        let report = place(identity).prove(&Options::default()).unwrap();
        let mut conclusive = std::collections::BTreeSet::new();
        for canary in &report.canaries {
            match (&canary.outcome, canary.protection) {
                (Outcome::Done, Some(Protection::FsMetadata)) => assert!(matches!(canary.access, Access::Execute | Access::Own)),
                (Outcome::Done, None) => {}
                (Outcome::Refused { .. }, Some(protection)) => drop(conclusive.insert(protection)),
                (Outcome::Inconclusive { why }, Some(_)) => {
                    // What this machine refuses to everybody.
                    let everywhere =
                        ["x32", "vsock", "cryptography", "raise a limit", "io_uring", "counter", "userfaultfd", "trace", "bpf", "MPTCP"];
                    assert!(everywhere.iter().any(|act| canary.act.contains(act)), "{canary:?} {why}");
                }
                _ => panic!("{canary:?}"),
            }
        }
        for protection in Protection::ALL {
            let elsewhere = [Protection::FsProtected, Protection::Env, Protection::Fds, Protection::Orphans];
            assert!(conclusive.contains(protection) || elsewhere.contains(protection), "{protection} was not tried: {report}");
        }
        assert_eq!(report.capabilities.effective, "0");
        if identity.uid == 0 {
            assert!(matches!(report.state(Protection::FsMetadata), Some(State::Missing { .. })));
        }
        assert!(report.classes.iter().all(|class| class.filter_depth < 100 && class.filter_hash.len() == 64));
        assert!(report.to_string().contains("fs.read"), "{report}");
    }
}

#[test]
fn older_kernels_are_reported_and_tried_truthfully() {
    let newest = match probe::glance().landlock {
        probe::Landlock::Available { abi } => abi.min(ruleset::ABI_KNOWN),
        probe::Landlock::Missing { .. } => return,
    };
    for identity in identities() {
        for abi in 1..=newest {
            let report = place(identity).prove(&ceiling(abi)).unwrap();
            assert_eq!(report.landlock_abi, abi);
            let signals_open =
                report.canaries.iter().any(|canary| canary.act == "signal another process" && canary.outcome == Outcome::Done);
            assert_eq!(signals_open, abi < 6, "ABI {abi}");
            assert_eq!(matches!(report.state(Protection::Signals), Some(State::Missing { .. })), abi < 6);
            assert_eq!(matches!(report.state(Protection::FsTruncate), Some(State::Enforced { .. })), abi >= 3);
            assert_eq!(report.landlock_lacks.iter().any(|what| what.contains("truncation")), abi < 3);
        }
    }
}

#[test]
fn a_report_that_promises_too_much_is_caught_by_a_canary() {
    let place = place(identities()[0]);
    let caught = errand::run(LONG, || {
        drop_identity(&place.charter.identity).unwrap();
        let base = File::open(&place.base).unwrap();
        let prepared = prepare_with(&place.charter, Access::Execute, base.as_fd(), &ceiling(5)).unwrap();
        // The report of a kernel that scopes signals, over a confinement that does not.
        let report = report::assess_with(&place.charter, &probe::glance(), &Surroundings::default(), 6);
        let tried = canaries(&[&prepared], base.as_fd(), &place.charter, rooms::Vantage::default()).unwrap();
        report.with_canaries(tried).map(drop).map_err(|fault| (fault.code(), fault.message().to_string()))
    })
    .unwrap()
    .unwrap_err();
    assert_eq!(caught.0, FaultCode::CanaryFailed);
    assert!(caught.1.contains("signals"), "{}", caught.1);
}

#[test]
fn signals_within_a_session_are_said_where_landlock_does_not_judge_them() {
    let place = place(identities()[0]);
    let (state, taken) = errand::run(LONG, || {
        drop_identity(&place.charter.identity).unwrap();
        let base = File::open(&place.base).unwrap();
        let prepared = prepare_with(&place.charter, Access::Execute, base.as_fd(), &ceiling(5)).unwrap();
        let around = Surroundings { namespaces: Namespaces { pid: true, ..Namespaces::default() }, ..Surroundings::default() };
        let report = report::assess_with(&place.charter, &probe::glance(), &around, 5);
        let state = report.state(Protection::Signals).cloned();
        let tried = canaries(&[&prepared], base.as_fd(), &place.charter, rooms::Vantage::default()).unwrap();
        (state, report.with_canaries(tried).map(drop).map_err(|fault| fault.message().to_string()))
    })
    .unwrap();
    assert!(matches!(state, Some(State::Partly { ref open, .. }) if open.contains("of their session")), "{state:?}");
    assert_eq!(taken, Ok(()));
}

#[test]
fn a_kernel_without_landlock_is_one_sentence_that_says_what_to_do() {
    for (errno, remedy) in [(Errno::ENOSYS, "CONFIG_SECURITY_LANDLOCK"), (Errno::EOPNOTSUPP, "`lsm=` boot parameter")] {
        let place = place(identities()[0]);
        let (code, sentence) = errand::run(LONG, || {
            let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];
            let rules: BTreeMap<_, _> = calls.into_iter().map(|call| (call, Vec::new())).collect();
            let target = TargetArch::try_from(std::env::consts::ARCH).unwrap();
            let outer = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), target).unwrap();
            seccompiler::apply_filter(&seccompiler::BpfProgram::try_from(outer).unwrap()).unwrap();
            let base = File::open(&place.base).unwrap();
            let fault = prepare(&place.charter, Access::Execute, base.as_fd()).unwrap_err();
            assert_eq!(probe::glance().landlock_abi(), 0);
            (fault.code(), fault.message().to_string())
        })
        .unwrap();
        assert_eq!(code, FaultCode::CannotConfine);
        assert!(sentence.contains(remedy) && !sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn an_identity_is_left_for_good() {
    for identity in identities() {
        let (capabilities, bounding, back, groups) = errand::run(LONG, || {
            drop_identity(&identity).unwrap();
            let back = nix::unistd::setresuid(7.into(), 7.into(), 7.into()).is_err();
            let groups = nix::unistd::getgroups().unwrap().len();
            (crate::sys::capabilities().unwrap(), identity::bounding_is_empty(), back, groups)
        })
        .unwrap();
        assert_eq!(capabilities, [0; 3]);
        assert!(back);
        if nix::unistd::getuid().is_root() {
            assert!(bounding);
            assert_eq!(groups, 0);
        }
    }
}

#[test]
fn look_reads_and_does_nothing_else() {
    for identity in identities() {
        let place = place(identity);
        let answers = place.confined(Access::Look, &Options::default(), || {
            [
                number(fs::read(place.base.join("sub/file"))),
                number(fs::write(place.base.join("sub/file"), "x")),
                number(fs::create_dir(place.base.join("new"))),
                number(fs::remove_file(place.base.join("sub/file"))),
                number(fs::read(place.outside.join("secret"))),
                number(fs::read("/etc/shadow")),
                number(Command::new("/bin/true").spawn()),
                number(std::os::unix::net::UnixStream::pair()),
                number(std::thread::Builder::new().spawn(|| {}).map(|thread| thread.join().unwrap())),
            ]
        });
        assert_eq!(answers[0], 0);
        assert_eq!(answers[8], 0, "threads work");
        assert!(answers[1..8].iter().all(|errno| [libc::EACCES, libc::EPERM].contains(errno)), "{answers:?}");
    }
}

#[test]
fn change_changes_the_workspace_and_nothing_else() {
    for identity in identities() {
        let place = place(identity);
        let (allowed, refused) = place.confined(Access::Change, &Options::default(), || {
            let path = |name: &str| place.base.join(name);
            let dir = File::open(&place.base).unwrap();
            let flags = nix::fcntl::RenameFlags::empty();
            let io = |result: nix::Result<()>| number(result.map_err(std::io::Error::from));
            let allowed = [
                number(fs::write(path("sub/file"), "x")),
                number(File::create_new(path("new")).map(|file| file.set_permissions(fs::Permissions::from_mode(0o755)))),
                io(nix::sys::stat::mkdirat(&dir, "folder", nix::sys::stat::Mode::S_IRWXU)),
                io(nix::fcntl::renameat2(&dir, "sub/file", &dir, "other/file", flags)),
                io(nix::unistd::symlinkat("new", &dir, "link")),
                io(nix::unistd::unlinkat(&dir, "link", nix::unistd::UnlinkatFlags::NoRemoveDir)),
            ];
            let refused = [
                number(fs::read(place.outside.join("secret"))),
                number(fs::write(place.outside.join("secret"), "x")),
                number(fs::hard_link(place.outside.join("secret"), path("hard"))),
                number(Command::new("/bin/true").spawn()),
                number(std::net::UdpSocket::bind("127.0.0.1:0")),
                io(nix::sys::stat::mknod(&path("device"), nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::S_IRUSR, 0)),
            ];
            (allowed, refused)
        });
        assert_eq!(allowed, [0; 6]);
        assert!(refused.iter().all(|errno| [libc::EACCES, libc::EPERM, libc::EXDEV].contains(errno)), "{refused:?}");
        assert_eq!(fs::read_to_string(place.outside.join("secret")).unwrap(), "text");
    }
}

#[test]
fn renames_across_granted_folders_work() {
    for identity in identities() {
        for abi in [2, ruleset::ABI_KNOWN] {
            let place = place(identity);
            let tmp = place.charter.session_dir.join("tmp");
            let answers = place.confined(Access::Execute, &ceiling(abi), || {
                [
                    number(fs::rename(place.base.join("sub/file"), place.base.join("other/file"))),
                    number(fs::rename(place.base.join("sub"), place.base.join("other/sub"))),
                    number(fs::rename(place.base.join("other/file"), tmp.join("file"))),
                    number(fs::hard_link(tmp.join("file"), place.base.join("linked"))),
                    number(fs::rename(tmp.join("file"), place.outside.join("file"))),
                ]
            });
            assert_eq!(answers[..4], [0; 4], "ABI {abi}");
            assert!([libc::EACCES, libc::EXDEV].contains(&answers[4]), "{answers:?}");
        }
    }
}

#[test]
fn without_truncation_in_landlock_the_filter_closes_it() {
    for identity in identities() {
        let place = place(identity);
        let secret = place.base.parent().unwrap().join("readable");
        fs::write(&secret, "text").unwrap();
        chown(&secret, Some(identity.uid), Some(identity.gid)).unwrap();
        let mut charter = place.charter.clone();
        let grant = Grant { path: secret.clone(), rights: Rights::READ, reason: "test".into(), origin: "test".into() };
        charter.execute.as_mut().unwrap().0.push(grant);
        let place = Place { charter, ..place };
        let answers = place.confined(Access::Execute, &ceiling(2), || {
            let how = nix::fcntl::OpenHow::new().flags(nix::fcntl::OFlag::O_TRUNC);
            let openat2 = nix::fcntl::openat2(File::open("/usr").unwrap(), &secret, how).map_err(std::io::Error::from);
            let open = |flags| nix::fcntl::open(&secret, flags, nix::sys::stat::Mode::empty()).map_err(std::io::Error::from);
            [
                number(fs::read(&secret)),
                number(nix::unistd::truncate(&secret, 0).map_err(std::io::Error::from)),
                number(open(nix::fcntl::OFlag::O_TRUNC)),
                number(open(nix::fcntl::OFlag::O_TRUNC | nix::fcntl::OFlag::O_ACCMODE)),
                number(openat2),
                number(OpenOptions::new().write(true).truncate(true).open(place.base.join("sub/file"))),
            ]
        });
        assert_eq!(answers, [0, libc::EPERM, libc::EPERM, libc::EPERM, libc::ENOSYS, 0]);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "text");
    }
}

#[test]
fn grants_that_are_not_there_are_skipped_and_recorded() {
    let mut place = place(identities()[0]);
    symlink("/etc", place.base.join("out")).unwrap();
    symlink("sub", place.base.join("within")).unwrap();
    let grant = |path: PathBuf| Grant { path, rights: Rights::ALL, reason: "test".into(), origin: "test".into() };
    let planted = [place.base.join("out"), place.base.join("within"), place.base.join("within/file"), place.base.join("out/passwd")];
    place.charter.own.0.extend(planted.iter().cloned().map(grant));
    place.charter.own.0.push(grant(place.base.join("sub")));
    let base = File::open(&place.base).unwrap();
    let report = prepare(&place.charter, Access::Own, base.as_fd()).unwrap().report();
    let skipped: Vec<&Path> = report.skipped.iter().map(|skipped| skipped.path.as_path()).collect();
    assert!(skipped.contains(&Path::new("/no/such/path")));
    for path in &planted {
        assert!(skipped.contains(&path.as_path()), "{skipped:?}");
    }
    assert!(!skipped.contains(&place.base.join("sub").as_path()));
}

#[test]
fn the_policy_that_requires_what_is_missing_does_not_start() {
    let mut place = place(identities()[0]);
    place.charter.require = vec![Protection::Orphans];
    let (code, sentence) = place.prove(&Options::default()).unwrap_err();
    assert_eq!(code, FaultCode::CannotConfine);
    assert!(sentence.contains("requires orphans"), "{sentence}");
    place.charter.allow_degraded = vec![Protection::Orphans];
    place.prove(&Options::default()).unwrap();
}

#[test]
fn the_probe_leaves_no_trace_and_knows_landlock() {
    let kernel = probe();
    assert_eq!(kernel.landlock_abi(), crate::sys::landlock_abi().unwrap_or(0));
    assert!(kernel.seccomp.works(), "{kernel:?}");
    assert!(kernel.openat2.works(), "{kernel:?}");
    assert!(kernel.namespaces.is_some());
}

/// What must keep working in a command; what must not.
const WORK: &[(&str, &str)] = &[
    ("sh", "echo a >/dev/null && head -c4 /dev/zero | wc -c && head -c4 /dev/urandom | wc -c"),
    ("sh", "cat /proc/self/status >/dev/null && test -r /proc/self/maps"),
    ("sh", "cat <<E | grep -q here\nhere\nE"),
    ("bash", "sleep 9 & kill $! && ! wait $!"),
    ("bash", "ulimit -n >/dev/null; diff <(echo a) <(echo a); mkfifo f; cat f & echo x > f; wait"),
    ("sh", "f=$(mktemp) && echo x > $f && mv $f other/ && rm other/*"),
    (
        "git",
        "git init -q . && git add . && git -c user.name=n -c user.email=e@x commit -qm m && git stash list && git status -s && git gc -q",
    ),
    ("git", "git init -q . && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m && git worktree add -q w"),
    ("python3", "python3 -c 'import socket; a,b=socket.socketpair(); a.send(b\"x\"); assert b.recv(1)==b\"x\"'"),
    ("python3", "python3 -c 'import multiprocessing as m; assert m.Pool(2).map(abs,[-1,2])==[1,2]'"),
    ("python3", "python3 -c 'import asyncio; p=asyncio.run(asyncio.create_subprocess_exec(\"true\"))'"),
    ("python3", "python3 -c 'import pty; assert pty.spawn([\"true\"])==0'"),
    ("python3", "python3 -c 'import sqlite3; c=sqlite3.connect(\"d\"); c.execute(\"create table t(a)\"); c.commit()'"),
    ("python3", "python3 -c 'import fcntl; f=open(\"l\",\"w\"); fcntl.flock(f,2); import mmap; mmap.mmap(-1,99)'"),
    ("python3", "python3 -c 'import os; os.memfd_create(\"m\"); os.eventfd(0); os.pidfd_open(os.getpid()); os.sched_getaffinity(0)'"),
    ("python3", "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'"),
    ("node", "node -e 'new (require(\"worker_threads\").Worker)(\"\",{eval:true}); require(\"fs\").watch(\".\").close()'"),
    ("node", "node -e 'require(\"child_process\").execSync(\"true\"); require(\"dns\").lookup(\"x.test\",e=>process.exit(e?0:1))'"),
    ("gcc", "echo 'int main(void){return 0;}' > t.c && gcc -pthread t.c -o t && ./t"),
    ("make", "printf 'a b c:\\n\\ttouch $@\\nall: a b c\\n' > Makefile && make -s -j3 all && test -f c"),
    ("strace", "strace -f -o trace sh -c 'true' && grep -q execve trace"),
    ("gdb", "gdb -q -batch -ex run --args true | grep 'exited normally'"),
    ("script", "script -qec 'tty' /dev/null"),
    (
        "tar",
        "mkdir d && echo x > d/f && tar cf t.tar d && rm -r d && tar xf t.tar --no-same-owner && cp -a d e && chmod 600 d/f && touch -d 2001-01-01 d/f",
    ),
    ("perl", "perl -MIO::Socket::UNIX -e '$s=socket($x,1,1,0); exit($s?1:0)'"),
    ("npm", "printf '{\"name\":\"p\",\"scripts\":{\"test\":\"echo ok\"}}' > package.json && npm test --silent --offline"),
    ("cargo", "cargo init -q --vcs none --name p p && cd p && cargo build -q --offline && cargo test -q --offline"),
    ("taskset", "taskset -c 0 true && nice true && ionice -c3 true && nproc"),
];

#[test]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
fn offline_development_works_in_a_command() {
    let (mut ran, mut failed) = (0, Vec::new());
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().map(|out| out.stdout).unwrap_or_default();
    let toolchain = PathBuf::from(String::from_utf8(sysroot).unwrap().trim());
    for identity in identities() {
        for (program, script) in WORK {
            let path = format!("{}/bin:/usr/local/bin:/usr/bin:/bin", toolchain.display());
            let mut place = place(identity);
            let grant = Grant { path: toolchain.clone(), rights: Rights::RUN, reason: "test".into(), origin: "test".into() };
            place.charter.execute.as_mut().unwrap().0.push(grant);
            // As the identity: a person's toolchain may lie where nobody else can go.
            let found = place.confined(Access::Execute, &Options::default(), || {
                let find = Command::new("/bin/sh").args(["-c", &format!("command -v {program}")]).env("PATH", &path).output();
                find.is_ok_and(|out| out.status.success())
            });
            if !found {
                println!("SKIP {program}: not there for {identity:?}");
                continue;
            }
            ran += 1;
            let run = |confine: bool| {
                let start = || {
                    Command::new(if *program == "bash" { "/bin/bash" } else { "/bin/sh" })
                        .args(["-c", script])
                        .current_dir(&place.base)
                        .env_clear()
                        .env("PATH", &path)
                        .env("HOME", place.charter.session_dir.join("home"))
                        .env("TMPDIR", place.charter.session_dir.join("tmp"))
                        .env("GIT_CONFIG_NOSYSTEM", "1")
                        .stdin(Stdio::null())
                        .output()
                        .map(|out| (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned()))
                        .map_err(|error| error.to_string())
                };
                if confine { place.confined(Access::Execute, &Options::default(), start) } else { start() }
            };
            let confined = run(true).unwrap();
            if confined.0 != Some(0) {
                failed.push(format!("as {identity:?}: {script}\n{}", confined.1));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(ran > 5, "only {ran} of the programs are here");
}

/// Calls by other machines' numbers: each program answers 42 where the kernel took the call.
const FOREIGN: &[(&str, &str)] = &[
    ("int80", "int main(void){int r; __asm__ volatile(\"int $0x80\":\"=a\"(r):\"a\"(20)); return r>0?42:1;}"),
    (
        "x32",
        "#include <unistd.h>\n#include <errno.h>\n#include <sys/syscall.h>\nint main(void){long r=syscall(0x40000000|39); \
         return r>0?42:errno==EPERM?2:3;}",
    ),
];

#[cfg(target_arch = "x86_64")]
#[test]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
fn numbers_of_other_machines_are_refused_by_the_kernel() {
    use std::os::unix::process::ExitStatusExt;
    for identity in identities() {
        let place = place(identity);
        for (name, source) in FOREIGN {
            let program = place.base.join(name);
            fs::write(program.with_extension("c"), source).unwrap();
            let compiled = Command::new("cc").arg("-o").arg(&program).arg(program.with_extension("c")).status();
            if !compiled.is_ok_and(|status| status.success()) {
                println!("SKIP {name}: no C compiler");
                continue;
            }
            if Command::new(&program).status().unwrap().code() != Some(42) {
                println!("SKIP {name}: this kernel has no such calls");
            }
            let (code, signal) = place.confined(Access::Execute, &Options::default(), || {
                let status = Command::new(&program).status().unwrap();
                (status.code(), status.signal())
            });
            match *name {
                "int80" => assert!(signal.is_some(), "{code:?}"),
                _ => assert_eq!(code, Some(2)),
            }
        }
    }
}

#[test]
fn requests_that_go_round_landlock_are_refused_and_plain_ones_are_not() {
    // FS_IOC_SETFLAGS, BTRFS_IOC_SUBVOL_CREATE, BTRFS_IOC_SNAP_DESTROY, FS_IOC_GETFLAGS, FIEMAP, TCGETS.
    let script = "use strict; open(my $f, '<', 'sub/file') or die; my $b = \"\\0\" x 4096;\n\
                  print join(',', map { ioctl($f, $_, $b) ? 0 : 0 + $! } 0x40086602, 0x5000940e, 0x5000940f, 0x80086601, 0xc020660b, 0x5401);";
    for identity in identities() {
        let place = place(identity);
        let run = || {
            let perl = Command::new("/usr/bin/perl").args(["-e", script]).current_dir(&place.base).output();
            perl.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default()
        };
        let open = run();
        if open.is_empty() {
            continue;
        }
        assert!(open.split(',').take(3).all(|errno| errno != "1"), "{open}");
        let confined = place.confined(Access::Execute, &Options::default(), run);
        let errors: Vec<&str> = confined.split(',').collect();
        assert_eq!(errors[..3], ["1", "1", "1"], "{confined}");
        assert!(errors[3..].iter().all(|errno| *errno != "1"), "{confined}");
    }
}

#[test]
fn a_policy_that_grants_reading_everywhere_starts() {
    let mut place = place(identities()[0]);
    let everywhere = Grant { path: "/".into(), rights: Rights::RUN, reason: "test".into(), origin: "test".into() };
    place.charter.execute.as_mut().unwrap().0.push(everywhere);
    let report = place.prove(&Options::default()).unwrap();
    let write = report.canaries.iter().filter(|canary| canary.protection == Some(Protection::FsWrite));
    assert!(write.clone().count() > 0);
    assert!(write.into_iter().all(|canary| matches!(canary.outcome, Outcome::Refused { .. })));
}

/// Prints what the confinement costs. Not a check: `cargo test -- --ignored --nocapture costs`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement")]
fn costs() {
    let place = place(identities()[0]);
    let base = File::open(&place.base).unwrap();
    let timed = |what: &str, rounds: u32, run: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        (0..rounds).for_each(|_| run());
        println!("{what}: {:.3} ms", start.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds));
    };
    timed("prepare Execute", 50, &mut || drop(prepare(&place.charter, Access::Execute, base.as_fd()).unwrap()));
    let prepared: HashMap<_, _> =
        CLASSES.into_iter().map(|access| (access, prepare(&place.charter, access, base.as_fd()).unwrap())).collect();
    timed("empty errand", 50, &mut || errand::run(LONG, || ()).unwrap());
    for class in prepared.values() {
        let inside: Vec<f64> = (0..20)
            .map(|_| {
                errand::run(LONG, || {
                    let start = std::time::Instant::now();
                    let _confined = class.apply().unwrap();
                    start.elapsed().as_secs_f64() * 1000.0
                })
                .unwrap()
            })
            .collect();
        let report = class.report();
        let least = inside.iter().copied().fold(f64::MAX, f64::min);
        println!(
            "apply {:?}: {least:.3} ms at best; filter {} instructions, {} deep",
            class.access(),
            report.filter_instructions,
            report.filter_depth
        );
    }
    timed("prove all classes", 10, &mut || drop(proved(&place.charter, &prepared, base.as_fd()).unwrap()));
    timed("probe", 5, &mut || drop(probe()));
    println!("{}", proved(&place.charter, &prepared, base.as_fd()).unwrap());
    println!("{:?}", probe());
}
