//! Canaries: forbidden acts, tried for real inside the finished confinement, and judged from outside.
//!
//! Every act is first done by an unconfined child, because an act that fails there as well proves nothing. Then a confined
//! child does the same. What got through is looked for from outside too: the bait's bytes, mode and neighbours, and the
//! listeners.

use super::rooms::{Ears, Vantage};
use super::{Prepared, errand};
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter, Grant, Protection};
use crate::sys::{self, InvalidCall};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one round of acts may take.
const ROUND: Duration = Duration::from_secs(5);
const SECRET: &[u8] = b"nothing that was granted\n";

/// What became of one act in one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// In which class of jail.
    pub access: Access,
    /// The protection that it tries; `None`: an act that must work.
    pub protection: Option<Protection>,
    /// What was tried.
    pub act: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It was refused; the kernel's error.
    Refused {
        /// The error, in words.
        error: String,
    },
    /// It was done.
    Done,
    /// It fails without confinement as well, so it says nothing.
    Inconclusive {
        /// Why it fails there.
        why: String,
    },
}

/// An act: `Ok` where it had its effect.
struct Act {
    protection: Option<Protection>,
    name: &'static str,
    run: fn(&Ground) -> Result<(), Errno>,
}

/// What the acts are tried on: a folder outside all grants, listeners of the host, another process.
struct Ground<'a> {
    base: BorrowedFd<'a>,
    /// By which name the acts reach the bait.
    folder: PathBuf,
    /// By which name it is laid and judged.
    hand: PathBuf,
    /// By which name a jail reaches it.
    seen_as: PathBuf,
    /// Distinguishes what the two rounds make.
    round: &'static str,
    tcp: TcpListener,
    udp: UdpSocket,
    /// The two above are in the network of the host, and this is another one: they were heard before it was left.
    far: bool,
    stream: UnixListener,
    datagram: UnixDatagram,
    hidden: UnixListener,
    hidden_name: String,
    victim: Victim,
}

const ACTS: &[Act] = &[
    forbidden(Protection::FsRead, "read a file outside the grants", |ground| {
        let mut text = Vec::new();
        done(File::open(ground.secret()).and_then(|mut file| file.read_to_end(&mut text)))
    }),
    forbidden(Protection::FsWrite, "create a file outside the grants", |ground| done(File::create_new(ground.made("file")))),
    forbidden(Protection::FsWrite, "append to a file outside the grants", |ground| {
        done(OpenOptions::new().append(true).open(ground.secret()).and_then(|mut file| file.write(b"")))
    }),
    forbidden(Protection::FsWrite, "make a folder outside the grants", |ground| done(fs::create_dir(ground.made("folder")))),
    forbidden(Protection::FsTruncate, "truncate a file outside the grants by its path", |ground| {
        nix::unistd::truncate(&ground.secret(), SECRET.len() as i64)
    }),
    forbidden(Protection::FsTruncate, "truncate a file outside the grants that is opened for reading", |ground| {
        nix::fcntl::open(&ground.spare(), nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_TRUNC, Mode::empty()).map(drop)
    }),
    forbidden(Protection::FsMetadata, "change the mode of a file outside the grants", |ground| {
        let mode = if ground.round == UNCONFINED { 0o600 } else { 0o640 };
        done(fs::set_permissions(ground.spare(), fs::Permissions::from_mode(mode)))
    }),
    forbidden(Protection::FsWrite, "rename a file outside the grants", |ground| done(fs::rename(ground.spare(), ground.made("moved")))),
    forbidden(Protection::FsSpecial, "make a FIFO outside the grants", |ground| {
        mknod(&ground.made("fifo"), SFlag::S_IFIFO, Mode::S_IRUSR, 0)
    }),
    forbidden(Protection::FsSpecial, "open a FIFO outside the grants", |ground| {
        let mut options = OpenOptions::new();
        done(options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(ground.folder.join("fifo")))
    }),
    forbidden(Protection::Exec, "execute a file outside the grants", |ground| {
        let path =
            std::ffi::CString::new(ground.folder.join("program").into_os_string().into_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
        let Err(errno) = nix::unistd::execve(&path, &[&path], &[] as &[&std::ffi::CStr]);
        // The file is empty: the kernel opened it for execution, which is the act, and found no program in it.
        if errno == Errno::ENOEXEC { Ok(()) } else { Err(errno) }
    }),
    forbidden(Protection::Proc, "read another process's environment", |ground| {
        let mut text = Vec::new();
        done(File::open(format!("/proc/{}/environ", ground.victim.0)).and_then(|mut file| file.read_to_end(&mut text)))
    }),
    forbidden(Protection::Proc, "read another process's memory through the kernel", |_| reached(InvalidCall::ProcessVmReadv)),
    forbidden(Protection::Ptrace, "trace another process", |ground| {
        nix::sys::ptrace::seize(ground.victim.0, nix::sys::ptrace::Options::empty())
    }),
    forbidden(Protection::Signals, SIGNAL, |ground| kill(ground.victim.0, None)),
    forbidden(Protection::Signals, "reschedule another process", |ground| {
        let cpus = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
        nix::sched::sched_setaffinity(ground.victim.0, &cpus)
    }),
    forbidden(Protection::Ipc, "make a System V segment", |_| reached(InvalidCall::Shmget)),
    forbidden(Protection::Ipc, "open a message queue", |_| reached(InvalidCall::MqOpen)),
    forbidden(Protection::Ipc, "use a keyring", |_| reached(InvalidCall::Keyctl)),
    forbidden(Protection::UnixPath, "connect to a unix socket by its path", |ground| {
        done(UnixStream::connect(ground.folder.join("stream")))
    }),
    forbidden(Protection::UnixPath, "send from a pair to a unix socket by its path", |ground| {
        let (one, _other) = UnixDatagram::pair().map_err(errno)?;
        done(one.send_to(b"canary", ground.folder.join("datagram")))
    }),
    forbidden(Protection::UnixAbstract, "connect to an abstract unix socket", |ground| {
        done(SocketAddr::from_abstract_name(&ground.hidden_name).and_then(|address| UnixStream::connect_addr(&address)))
    }),
    forbidden(Protection::NetTcp, "connect to the host by TCP", |ground| {
        done(ground.tcp.local_addr().and_then(|address| TcpStream::connect_timeout(&address, Duration::from_millis(500))))
    }),
    forbidden(Protection::NetTcp, "listen on a TCP port of the host", |_| done(TcpListener::bind(("127.0.0.1", 0)))),
    forbidden(Protection::NetUdp, "send to the host by UDP", |ground| {
        let send = |socket: UdpSocket| socket.send_to(b"canary", ground.udp.local_addr()?);
        done(UdpSocket::bind(("127.0.0.1", 0)).and_then(send))
    }),
    forbidden(Protection::NetOther, "open an MPTCP socket", |_| sys::open_socket(libc::AF_INET, libc::SOCK_STREAM, 262).map(drop)),
    forbidden(Protection::NetOther, "open a socket of the kernel's cryptography", |_| {
        sys::open_socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(drop)
    }),
    forbidden(Protection::NetOther, "open an audit socket", |_| {
        sys::open_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT).map(drop)
    }),
    forbidden(Protection::NetOther, "open a vsock", |_| sys::open_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0).map(drop)),
    forbidden(Protection::Kernel, "set an extended attribute by a path", |_| reached(InvalidCall::Setxattr)),
    forbidden(Protection::Tty, "type into a terminal", |_| reached(InvalidCall::TypeIntoTerminal)),
    forbidden(Protection::Kernel, "set up io_uring", |_| reached(InvalidCall::IoUringSetup)),
    forbidden(Protection::Kernel, "use bpf", |_| reached(InvalidCall::Bpf)),
    forbidden(Protection::Kernel, "open a performance counter", |_| reached(InvalidCall::PerfEventOpen)),
    forbidden(Protection::Kernel, "use userfaultfd", |_| reached(InvalidCall::Userfaultfd)),
    forbidden(Protection::Kernel, "make a namespace", |_| reached(InvalidCall::Unshare)),
    forbidden(Protection::Kernel, "mount", |_| reached(InvalidCall::Mount)),
    forbidden(Protection::Kernel, "make a call of the x32 table", |_| reached(InvalidCall::X32)),
    forbidden(Protection::Limits, "raise a limit again", |_| {
        let core = nix::sys::resource::Resource::RLIMIT_CORE;
        nix::sys::resource::setrlimit(core, 1, 1)
    }),
    Act {
        protection: None,
        name: "list the base directory",
        run: |ground| {
            let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
            let folder = nix::fcntl::openat(ground.base, ".", flags, Mode::empty())?;
            nix::dir::Dir::from_fd(folder)?.iter().next().map_or(Ok(()), |entry| entry.map(drop))
        },
    },
];

const UNCONFINED: &str = "unconfined";

/// The act against `signals` that the report can admit in part.
pub(super) const SIGNAL: &str = "signal another process";

/// What the folder of a trial is called, before what makes it unique.
const BAIT: &str = "bailiwick-canary-";

/// A bait of this age was left by a warden that was killed.
const STALE: Duration = Duration::from_secs(60);

/// Where the bait is laid without mounts of our own: in memory, where that is outside of all grants, for a file there costs a tenth of one
/// on a disk.
fn in_memory(charter: &Charter) -> Option<PathBuf> {
    let shm = Path::new("/dev/shm");
    let all = [Access::Look, Access::Change, Access::Execute, Access::Own];
    let granted = all.iter().filter_map(|access| charter.grants(*access)).flat_map(|grants| &grants.0);
    let overlaps = |path: &Path| path.starts_with(shm) || shm.starts_with(path);
    let free = !overlaps(&charter.base) && !granted.into_iter().any(|grant| overlaps(&grant.path));
    let usable = || {
        nix::sys::statfs::statfs(shm).is_ok_and(|stat| {
            stat.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC && !stat.flags().intersects(nix::sys::statvfs::FsFlags::ST_NOEXEC)
        }) && nix::unistd::access(shm, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).is_ok()
    };
    if free && usable() {
        clear_stale(shm);
        return Some(shm.to_path_buf());
    }
    None
}

/// Removes what killed wardens of this user left.
fn clear_stale(folder: &Path) {
    let me = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(BAIT.as_bytes()) {
            continue;
        }
        let stale = entry.metadata().is_ok_and(|meta| {
            use std::os::unix::fs::MetadataExt;
            meta.is_dir() && meta.uid() == me && meta.modified().is_ok_and(|made| made.elapsed().is_ok_and(|age| age > STALE))
        });
        if stale {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// What the bait of a class is called.
const fn round(access: Access) -> &'static str {
    match access {
        Access::Look => "look",
        Access::Change => "change",
        Access::Execute => "execute",
        Access::Own => "own",
    }
}

/// Tries every act in every class. The bait is laid in the session's folder, which is outside all grants but those of a policy
/// that grants nearly everything, and removed again.
///
/// # Errors
/// `internal` where the bait cannot be laid or a child is lost; `cannot_confine` where the confinement cannot be applied.
#[cfg(test)]
pub(super) fn canaries(prepared: &[&Prepared], base: BorrowedFd<'_>, charter: &Charter, vantage: Vantage) -> Result<Vec<Canary>, Fault> {
    let classes: Vec<Access> = prepared.iter().map(|class| class.access()).collect();
    let trial = Trial::begin(base, charter, vantage, &classes)?;
    Ok(trial.launch(prepared)?.judge(charter)?.0)
}

/// What the acts answered: `None` where one had its effect, else the error's number.
type Answers = Vec<Option<i32>>;

/// The bait is laid, and an unconfined child does every act.
pub struct Trial<'a> {
    ground: Ground<'a>,
    left: Left,
    classes: Vec<Access>,
    control: errand::Errand<Answers>,
}

/// Each class does every act, all at the same time.
pub struct Launched<'a> {
    ground: Ground<'a>,
    left: Left,
    control: Answers,
    tried: Vec<(Access, errand::Errand<Result<Answers, String>>)>,
}

/// What is left of a trial: the bait, which is removed when this is dropped, and the vantage for the next one.
pub struct Left {
    bait: tempfile::TempDir,
    hand: Option<OwnedFd>,
    ears: Option<Ears>,
}

impl Left {
    /// Removes the bait.
    pub fn clear(self) -> Vantage {
        drop(self.bait);
        Vantage { ears: self.ears, hand: self.hand }
    }
}

impl<'a> Trial<'a> {
    /// Lays the bait for these classes and sends the child that shows what can be done without confinement.
    ///
    /// # Errors
    /// `internal` where the bait cannot be laid or there is no child to be had.
    pub fn begin(base: BorrowedFd<'a>, charter: &Charter, vantage: Vantage, classes: &[Access]) -> Result<Self, Fault> {
        let Vantage { ears, hand } = vantage;
        let in_session = || {
            let bait = charter.session_dir.join("bait");
            if bait.is_dir() { bait } else { charter.session_dir.clone() }
        };
        let place = if hand.is_some() { in_session() } else { in_memory(charter).unwrap_or_else(in_session) };
        // Where everything but the grants is read-only, the bait is laid, and looked at, through a descriptor from before that.
        let way = hand.as_ref().map_or_else(|| place.clone(), |hand| PathBuf::from(format!("/proc/self/fd/{}", hand.as_raw_fd())));
        let lay = |way: &Path, place: &Path, ears: Option<Ears>| {
            let broken = |error: io::Error| {
                Fault::new(FaultCode::Internal, format!("the canaries' bait cannot be laid in {}: {error}", place.display()))
            };
            let bait = tempfile::Builder::new().prefix(BAIT).tempdir_in(way).map_err(broken)?;
            let seen_as = place.join(bait.path().file_name().unwrap_or_default());
            let ground = Ground::lay(bait.path(), seen_as, base, ears, classes).map_err(broken)?;
            Ok::<_, Fault>((bait, ground))
        };
        let (bait, mut ground) = match lay(&way, &place, ears) {
            // The memory is everybody's, and somebody may have filled it.
            Err(_) if hand.is_none() && place != in_session() => lay(&in_session(), &in_session(), None)?,
            other => other?,
        };
        let control = errand::begin(ROUND, || do_all(&ground))?;
        ground.folder.clone_from(&ground.seen_as);
        Ok(Self { ground, left: Left { bait, hand, ears: None }, classes: classes.to_vec(), control })
    }

    /// Sends a child of each class.
    ///
    /// # Errors
    /// `internal` where there is no child to be had.
    pub fn launch(mut self, prepared: &[&Prepared]) -> Result<Launched<'a>, Fault> {
        let control = self.control.finish()?;
        // What the unconfined child reached is no news.
        self.ground.heard();
        let mut tried = Vec::new();
        for class in prepared {
            if !self.classes.contains(&class.access()) {
                return Err(Fault::new(FaultCode::Internal, "a class has no bait"));
            }
            self.ground.round = round(class.access());
            let ground = &self.ground;
            let child = errand::begin(ROUND, || match class.apply() {
                Ok(_confined) => Ok(do_all(ground)),
                Err(fault) => Err(fault.message().to_string()),
            });
            tried.push((class.access(), child?));
        }
        Ok(Launched { ground: self.ground, left: self.left, control, tried })
    }
}

impl Launched<'_> {
    /// Waits for the children, and judges from outside what became of each act.
    ///
    /// # Errors
    /// `internal` where a child is lost; `cannot_confine` where the confinement could not be applied.
    pub fn judge(mut self, charter: &Charter) -> Result<(Vec<Canary>, Left), Fault> {
        let all = self.judged(charter);
        let Ground { tcp, udp, far, .. } = self.ground;
        self.left.ears = far.then_some(Ears { tcp, udp });
        Ok((all?, self.left))
    }

    fn judged(&mut self, charter: &Charter) -> Result<Vec<Canary>, Fault> {
        let mut all_tried = Vec::new();
        for (access, child) in self.tried.drain(..) {
            all_tried.push((access, child.finish()?.map_err(|sentence| Fault::new(FaultCode::CannotConfine, sentence))?));
        }
        // The listeners are those of all classes: what one of them reached counts against each.
        let heard = self.ground.heard();
        let mut all = Vec::new();
        for (access, tried) in all_tried {
            if tried.len() != ACTS.len() || self.control.len() != ACTS.len() {
                return Err(Fault::new(FaultCode::Internal, "a canary did not come back"));
            }
            let mut seen = self.ground.seen(round(access));
            seen.extend_from_slice(&heard);
            let granted = granted(charter, access, &self.ground.folder);
            for ((act, control), tried) in ACTS.iter().zip(&self.control).zip(&tried) {
                let words = |number: &i32| Errno::from_raw(*number).desc().to_string();
                let outcome = match (control, tried) {
                    _ if act.protection.is_some_and(|protection| granted.contains(&protection)) => {
                        Outcome::Inconclusive { why: "the policy grants it".into() }
                    }
                    // In a network of the session's own the act itself goes well: it counts what the host hears, which heard before.
                    (_, tried) if self.ground.far && matches!(act.protection, Some(Protection::NetTcp | Protection::NetUdp)) => {
                        if act.protection.is_some_and(|protection| seen.contains(&protection)) {
                            Outcome::Done
                        } else {
                            Outcome::Refused { error: tried.as_ref().map_or_else(|| "the host heard nothing".into(), words) }
                        }
                    }
                    (_, None) => Outcome::Done,
                    _ if act.protection.is_some_and(|protection| seen.contains(&protection)) => Outcome::Done,
                    (Some(errno), Some(_)) if act.protection.is_some() => Outcome::Inconclusive { why: words(errno) },
                    (_, Some(errno)) => Outcome::Refused { error: words(errno) },
                };
                all.push(Canary { access, protection: act.protection, act: act.name.into(), outcome });
            }
        }
        Ok(all)
    }
}

/// The protections that say nothing about a folder, because a class is granted it.
fn granted(charter: &Charter, access: Access, folder: &Path) -> Vec<Protection> {
    let Some(grants) = charter.grants(access) else { return Vec::new() };
    // Both are resolved. Were a grant to lead elsewhere by now, an act that gets through there would count, and end the session.
    let covers = |grant: &&Grant| folder.starts_with(&grant.path);
    let mut granted = Vec::new();
    for grant in grants.0.iter().filter(covers) {
        if grant.rights.read {
            granted.push(Protection::FsRead);
        }
        if grant.rights.exec {
            granted.push(Protection::Exec);
        }
        if grant.rights.write || grant.rights.device {
            granted.extend([Protection::FsWrite, Protection::FsTruncate, Protection::FsSpecial, Protection::FsMetadata]);
        }
    }
    granted
}

/// Does every act; `None` where it had its effect, else the error's number.
fn do_all(ground: &Ground<'_>) -> Answers {
    ACTS.iter().map(|act| (act.run)(ground).err().map(|errno| errno as i32)).collect()
}

impl<'a> Ground<'a> {
    fn lay(hand: &Path, seen_as: PathBuf, base: BorrowedFd<'a>, ears: Option<Ears>, classes: &[Access]) -> io::Result<Self> {
        let far = ears.is_some();
        let Ears { tcp, udp } = match ears {
            Some(ears) => ears,
            None => Ears { tcp: TcpListener::bind(("127.0.0.1", 0))?, udp: UdpSocket::bind(("127.0.0.1", 0))? },
        };
        let folder = hand.to_path_buf();
        mknod(&folder.join("fifo"), SFlag::S_IFIFO, Mode::S_IRUSR | Mode::S_IWUSR, 0)?;
        OpenOptions::new().write(true).create_new(true).mode(0o700).open(folder.join("program"))?;
        // Abstract names are shared by the whole machine: the folder's name is unique.
        let hidden_name = format!("bailiwick-{}", folder.display());
        let ground = Self {
            base,
            round: UNCONFINED,
            tcp,
            udp,
            far,
            stream: UnixListener::bind(folder.join("stream"))?,
            datagram: UnixDatagram::bind(folder.join("datagram"))?,
            hidden: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&hidden_name)?)?,
            hidden_name,
            victim: park()?,
            hand: folder.clone(),
            folder,
            seen_as,
        };
        ground.tcp.set_nonblocking(true)?;
        ground.udp.set_nonblocking(true)?;
        ground.stream.set_nonblocking(true)?;
        ground.datagram.set_nonblocking(true)?;
        ground.hidden.set_nonblocking(true)?;
        let mut secret = OpenOptions::new().write(true).create_new(true).mode(0o600).open(ground.folder.join("secret"))?;
        secret.write_all(SECRET)?;
        for round in std::iter::once(UNCONFINED).chain(classes.iter().map(|access| round(*access))) {
            let path = folder_file(&ground.folder, "spare", round);
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(SECRET)?;
        }
        Ok(ground)
    }

    /// The protections that a class has broken, as the bait shows it.
    fn seen(&self, round: &str) -> Vec<Protection> {
        let mut broken = Vec::new();
        let mut check = |protection, is_broken: bool| {
            if is_broken {
                broken.push(protection);
            }
        };
        let made = |name| fs::symlink_metadata(folder_file(&self.hand, name, round)).is_ok();
        check(Protection::FsWrite, made("file") || made("folder") || made("moved"));
        check(Protection::FsSpecial, made("fifo"));
        check(Protection::FsTruncate, !whole(&self.hand.join("secret")) || !whole(&folder_file(&self.hand, "spare", round)));
        let mode = fs::metadata(folder_file(&self.hand, "spare", round)).map(|meta| meta.permissions().mode() & 0o777);
        check(Protection::FsMetadata, !matches!(mode, Ok(0o600)));
        broken
    }

    /// The protections that somebody has broken, as the listeners show it. Empties them.
    fn heard(&self) -> Vec<Protection> {
        let mut broken = Vec::new();
        let mut check = |protection, is_broken: bool| {
            if is_broken {
                broken.push(protection);
            }
        };
        let mut byte = [0];
        check(Protection::NetTcp, drain(|| self.tcp.accept().map(drop)));
        check(Protection::NetUdp, drain(|| self.udp.recv(&mut byte).map(drop)));
        check(Protection::UnixPath, drain(|| self.stream.accept().map(drop)) | drain(|| self.datagram.recv(&mut byte).map(drop)));
        check(Protection::UnixAbstract, drain(|| self.hidden.accept().map(drop)));
        broken
    }

    fn secret(&self) -> PathBuf {
        self.folder.join("secret")
    }

    /// A file for this round alone.
    fn spare(&self) -> PathBuf {
        folder_file(&self.folder, "spare", self.round)
    }

    fn made(&self, name: &str) -> PathBuf {
        folder_file(&self.folder, name, self.round)
    }
}

fn folder_file(folder: &Path, name: &str, round: &str) -> PathBuf {
    folder.join(format!("{name}-{round}"))
}

fn whole(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes == SECRET)
}

/// Whether there was anything.
fn drain(mut next: impl FnMut() -> io::Result<()>) -> bool {
    let mut any = false;
    while next().is_ok() {
        any = true;
    }
    any
}

/// A process outside the confinement that does nothing, for the acts against processes. It ends when this is dropped.
struct Victim(Pid);

impl Drop for Victim {
    fn drop(&mut self) {
        errand::end(self.0);
    }
}

fn park() -> io::Result<Victim> {
    let parent = Pid::this();
    // It must be as open as any process of the user from its first moment, else the acts prove nothing.
    let closed = !nix::sys::prctl::get_dumpable()?;
    nix::sys::prctl::set_dumpable(true)?;
    let child = sys::fork_errand();
    if let Ok(None) = child {
        // It ends with us.
        let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        while nix::unistd::getppid() == parent {
            nix::unistd::pause();
        }
        sys::exit_now(0)
    }
    if closed {
        nix::sys::prctl::set_dumpable(false)?;
    }
    child?.map(Victim).ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

const fn forbidden(protection: Protection, name: &'static str, run: fn(&Ground) -> Result<(), Errno>) -> Act {
    Act { protection: Some(protection), name, run }
}

/// Whether an invalid call got as far as the kernel, which would name its argument; a filter refuses the call itself.
fn reached(call: InvalidCall) -> Result<(), Errno> {
    match sys::invalid_call(call) {
        Err(errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS)) => Err(errno),
        Err(Errno::EOPNOTSUPP) if call == InvalidCall::Setxattr => Err(Errno::EOPNOTSUPP),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn done<T>(result: io::Result<T>) -> Result<(), Errno> {
    result.map(drop).map_err(errno)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
