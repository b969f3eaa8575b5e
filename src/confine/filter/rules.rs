//! Calls that are judged by their arguments.
//!
//! Every argument that is compared here is one of which the kernel itself uses only the low 32 bits, so the filter compares
//! those and no others. What lies in memory cannot be compared, and is never relied on.

use super::calls::REFUSED;
use super::{Clause, Decision, Profile, Sockets, Test, Verdict, Verdict::Allow, Verdict::Errno};
use crate::policy::Access;

/// `CLONE_NEW*` of linux/sched.h.
const CLONE_NEW: u32 = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
const CLONE_THREAD: u32 = libc::CLONE_VM as u32 | libc::CLONE_THREAD as u32;
/// `MSG_FASTOPEN`: a connect in disguise, which passes Landlock's TCP rule on some kernels.
const MSG_FASTOPEN: u32 = 0x2000_0000;
const O_ACCMODE: u32 = libc::O_ACCMODE as u32;
const O_TRUNC: u32 = libc::O_TRUNC as u32;
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const O_TMPFILE: u32 = libc::O_TMPFILE as u32 & !(libc::O_DIRECTORY as u32);
const IPPROTO_MPTCP: u32 = 262;
const SOCK_TYPE: u32 = 0xf;

const EACCES: Verdict = Errno(libc::EACCES as u16);
const EINVAL: Verdict = Errno(libc::EINVAL as u16);
const EAFNOSUPPORT: Verdict = Errno(libc::EAFNOSUPPORT as u16);
const EPROTONOSUPPORT: Verdict = Errno(libc::EPROTONOSUPPORT as u16);

/// Control requests that a process needs for descriptors of its own: `TCGETS`, `FIONREAD`, `FIONBIO`, `FIONCLEX`, `FIOCLEX`.
const IOCTL_PLAIN: &[u32] = &[0x5401, 0x541b, 0x5421, 0x5450, 0x5451];
/// `FICLONE`, `FICLONERANGE`.
const IOCTL_CLONE: &[u32] = &[0x4004_9409, 0x4020_940d];
/// `TIOCLINUX`, `TIOCSTI`, `TIOCCONS`, `TIOCSETD`: typing into a terminal, and loading line disciplines; `FS_IOC_SETVERSION`,
/// `FAT_IOCTL_SET_ATTRIBUTES`: metadata of files that are open for reading only.
const IOCTL_REFUSED: &[u32] = &[0x541c, 0x5412, 0x541d, 0x5423, 0x4008_7602, 0x4004_7211];
/// The type of a request, and those of file systems. Some make, snapshot or remove names beneath a folder that is open for
/// reading only (btrfs, bcachefs, OCFS2), others change attributes of such files (`f`, `X`, F2FS); Landlock sees none of it.
const IOCTL_TYPE: u32 = 0xff00;
const IOCTL_FILE_SYSTEMS: &[u32] = &[0x9400, 0xbc00, 0x6f00, 0x6600, 0x5800, 0xf500];
/// Of those types: `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`, `FS_IOC_GETFLAGS`, `FS_IOC_FIEMAP`, `FS_IOC_FSGETXATTR`.
const IOCTL_FILES: &[u32] = &[0x4004_9409, 0x4020_940d, 0xc018_9436, 0x8008_6601, 0xc020_660b, 0x801c_581f];

/// Requests of `fcntl` without those that make the kernel send signals.
const FCNTL_PLAIN: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1025, 1030, 1031, 1032, 1034];

/// `prctl` options that concern only the caller. Left out, and refused: `PR_SET_MM`, `PR_SCHED_CORE` (other processes),
/// `PR_TASK_PERF_EVENTS_*`, `PR_SET_SYSCALL_USER_DISPATCH`.
const PRCTL_ALLOWED: &[u32] = &[
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    19,
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
    29,
    30,
    33,
    34,
    36,
    37,
    38,
    39,
    40,
    41,
    42,
    43,
    44,
    45,
    46,
    47,
    50,
    51,
    52,
    53,
    54,
    55,
    56,
    57,
    58,
    60,
    61,
    63,
    64,
    65,
    66,
    67,
    68,
    71,
    72,
    73,
    74,
    75,
    76,
    77,
    78,
    0x5356_4d41,
    0x4155_5856,
    0x5961_6d61,
];
const PRCTL_REFUSED: &[u32] = &[31, 32, 35, 59, 62];
/// `PR_SET_PDEATHSIG`, `PR_GET_PDEATHSIG`, `PR_GET_DUMPABLE`, `PR_SET_NAME`, `PR_GET_NAME`, `PR_GET_NO_NEW_PRIVS`, `PR_SET_VMA`.
const PRCTL_PLAIN: &[u32] = &[1, 2, 3, 15, 16, 39, 0x5356_4d41];

/// What a program may make by `mknod`: files, FIFOs and sockets, and none that starts as its owner.
const PLAIN_NODES: &[u32] = &[0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK];
/// The flag of a file without a name, without the one for folders that belongs to it.
const TMPFILE: u32 = O_TMPFILE & !(libc::O_DIRECTORY as u32);

/// How an allowed call is narrowed by its arguments; `None`: it is not.
pub(super) fn narrowed(name: &str, profile: &Profile) -> Option<Decision> {
    let run = matches!(profile.access, Access::Execute | Access::Own);
    let rule = match name {
        "clone" if run => only_if(REFUSED, vec![masked(0, CLONE_NEW, &[0])]),
        "clone" => only_if(REFUSED, vec![masked(0, CLONE_NEW | CLONE_THREAD, &[CLONE_THREAD])]),
        "open" => return opening(1, profile),
        "openat" => return opening(2, profile),
        "truncate" if !profile.truncate_is_judged => Decision::Always(REFUSED),
        // What root makes is root's: a program that everybody may start as its owner would outlive the session.
        "chmod" | "fchmod" | "creat" if run => only_if(REFUSED, vec![masked(1, libc::S_ISUID, &[0])]),
        "fchmodat" | "fchmodat2" if run => only_if(REFUSED, vec![masked(2, libc::S_ISUID, &[0])]),
        "mknod" if run => only_if(REFUSED, vec![masked(1, libc::S_IFMT | libc::S_ISUID, PLAIN_NODES)]),
        "mknodat" if run => only_if(REFUSED, vec![masked(2, libc::S_IFMT | libc::S_ISUID, PLAIN_NODES)]),
        // Devices are never made, a whiteout (device 0:0) neither.
        "mknod" => unless(REFUSED, masked(1, libc::S_IFMT, &[libc::S_IFCHR, libc::S_IFBLK])),
        "mknodat" => unless(REFUSED, masked(2, libc::S_IFMT, &[libc::S_IFCHR, libc::S_IFBLK])),
        "ioctl" => match profile.access {
            Access::Look => only_if(REFUSED, vec![exactly(1, IOCTL_PLAIN)]),
            Access::Change => Decision::ByArguments {
                clauses: vec![when(vec![exactly(1, IOCTL_PLAIN)], Allow), when(vec![exactly(1, IOCTL_CLONE)], Allow)],
                otherwise: REFUSED,
            },
            Access::Execute | Access::Own => Decision::ByArguments {
                clauses: vec![
                    when(vec![exactly(1, IOCTL_FILES)], Allow),
                    when(vec![exactly(1, IOCTL_REFUSED)], REFUSED),
                    when(vec![masked(1, IOCTL_TYPE, IOCTL_FILE_SYSTEMS)], REFUSED),
                ],
                otherwise: Allow,
            },
        },
        // F_SETLEASE: whoever opens the file elsewhere would wait for the lease's end.
        "fcntl" if run => unless(REFUSED, exactly(1, &[1024])),
        "fcntl" => only_if(EINVAL, vec![exactly(1, FCNTL_PLAIN)]),
        "prctl" if run => Decision::ByArguments {
            clauses: vec![when(vec![exactly(0, PRCTL_ALLOWED)], Allow), when(vec![exactly(0, PRCTL_REFUSED)], REFUSED)],
            otherwise: EINVAL,
        },
        "prctl" => only_if(REFUSED, vec![exactly(0, PRCTL_PLAIN)]),
        // PER_LINUX, ADDR_NO_RANDOMIZE (debuggers), and reading.
        "personality" => only_if(REFUSED, vec![exactly(0, &[0, 0x0004_0000, 0xffff_ffff])]),
        "prlimit64" | "sched_setaffinity" | "sched_setparam" | "sched_setscheduler" | "sched_setattr" => {
            only_if(REFUSED, vec![exactly(0, &[0])])
        }
        // PRIO_PROCESS and PRIO_PGRP of oneself; never PRIO_USER, which is every process of the user.
        "setpriority" => only_if(REFUSED, vec![exactly(0, &[0, 1]), exactly(1, &[0])]),
        // IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP of oneself.
        "ioprio_set" => only_if(REFUSED, vec![exactly(0, &[1, 2]), exactly(1, &[0])]),
        "sendto" | "sendmmsg" => only_if(REFUSED, vec![masked(3, MSG_FASTOPEN, &[0])]),
        "sendmsg" => only_if(REFUSED, vec![masked(2, MSG_FASTOPEN, &[0])]),
        "socket" => socket(profile),
        "socketpair" => {
            let pair = match profile.unix_any {
                true => vec![exactly(0, &[libc::AF_UNIX as u32])],
                // A datagram socket of a pair can be sent elsewhere by address, and SOCK_RAW is one in disguise.
                false => vec![
                    exactly(0, &[libc::AF_UNIX as u32]),
                    masked(1, SOCK_TYPE, &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32]),
                ],
            };
            Decision::ByArguments {
                clauses: vec![when(pair, Allow), when(vec![exactly(0, &[libc::AF_UNIX as u32])], REFUSED)],
                otherwise: EAFNOSUPPORT,
            }
        }
        _ => return None,
    };
    Some(rule)
}

/// The flags of an open.
fn opening(flags: u8, profile: &Profile) -> Option<Decision> {
    let mut clauses = Vec::new();
    // Access mode 3 (neither reading nor writing, only controlling) asks Landlock for no right at all.
    clauses.push(when(vec![masked(flags, O_ACCMODE, &[3])], REFUSED));
    if profile.access == Access::Look {
        let change = O_ACCMODE | O_TRUNC | O_TMPFILE | libc::O_CREAT as u32;
        return Some(only_if(REFUSED, vec![masked(flags, change, &[0])]));
    }
    if matches!(profile.access, Access::Execute | Access::Own) {
        for makes in [&[libc::O_CREAT as u32], &[TMPFILE]] {
            clauses.push(when(vec![masked(flags, makes[0], makes), masked(flags + 1, libc::S_ISUID, &[libc::S_ISUID])], REFUSED));
        }
    }
    if !profile.truncate_is_judged {
        clauses.push(when(vec![masked(flags, O_ACCMODE | O_TRUNC, &[O_TRUNC])], REFUSED));
    }
    Some(Decision::ByArguments { clauses, otherwise: Allow })
}

fn socket(profile: &Profile) -> Decision {
    const INET: &[u32] = &[libc::AF_INET as u32, libc::AF_INET6 as u32];
    const UNIX: &[u32] = &[libc::AF_UNIX as u32];
    let mut clauses = vec![when(vec![exactly(0, UNIX)], if profile.unix_any { Allow } else { REFUSED })];
    // ROUTE only: the C library asks it for the addresses of the machine.
    clauses.push(when(vec![exactly(0, &[libc::AF_NETLINK as u32]), exactly(2, &[libc::NETLINK_ROUTE as u32])], Allow));
    match profile.sockets {
        Sockets::None => {
            // With this answer Go falls back to TCP, which then gets the plain refusal.
            clauses.push(when(vec![exactly(0, INET), exactly(2, &[IPPROTO_MPTCP])], EPROTONOSUPPORT));
            clauses.push(when(vec![exactly(0, INET)], EACCES));
        }
        Sockets::Inet => {
            let tcp = &[0, libc::IPPROTO_TCP as u32];
            let udp = &[0, libc::IPPROTO_UDP as u32, libc::IPPROTO_ICMP as u32, libc::IPPROTO_ICMPV6 as u32];
            clauses.push(when(vec![exactly(0, INET), masked(1, SOCK_TYPE, &[libc::SOCK_STREAM as u32]), exactly(2, tcp)], Allow));
            clauses.push(when(vec![exactly(0, INET), masked(1, SOCK_TYPE, &[libc::SOCK_DGRAM as u32]), exactly(2, udp)], Allow));
            clauses.push(when(vec![exactly(0, INET), masked(1, SOCK_TYPE, &[libc::SOCK_RAW as u32])], REFUSED));
            clauses.push(when(vec![exactly(0, INET)], EPROTONOSUPPORT));
        }
    }
    Decision::ByArguments { clauses, otherwise: EAFNOSUPPORT }
}

fn masked(arg: u8, mask: u32, any_of: &'static [u32]) -> Test {
    Test { arg, mask, any_of }
}

fn exactly(arg: u8, any_of: &'static [u32]) -> Test {
    masked(arg, u32::MAX, any_of)
}

fn when(tests: Vec<Test>, verdict: Verdict) -> Clause {
    Clause { tests, verdict }
}

fn only_if(otherwise: Verdict, tests: Vec<Test>) -> Decision {
    Decision::ByArguments { clauses: vec![when(tests, Allow)], otherwise }
}

fn unless(verdict: Verdict, test: Test) -> Decision {
    Decision::ByArguments { clauses: vec![when(vec![test], verdict)], otherwise: Allow }
}
