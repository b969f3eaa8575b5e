/* Acts that a jail must refuse, by raw system calls. `attack ACT [ARGS]` exits 0 when the act succeeded, 1 when it was refused, 2 on a
   usage error. What was done is judged from outside wherever there is an outside to look at. Two acts are a kernel that has less than this
   one has, for the program that they start. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int said(const char *what, long result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        return 1;
    }
    printf("%s: done (%ld)\n", what, result);
    return 0;
}

static socklen_t address(int family, int port, struct sockaddr_storage *to) {
    memset(to, 0, sizeof *to);
    if (family == 6) {
        struct sockaddr_in6 *six = (void *)to;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        six->sin6_addr = in6addr_loopback;
        return sizeof *six;
    }
    struct sockaddr_in *four = (void *)to;
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *four;
}

static int network(const char *act, int family, int port) {
    struct sockaddr_storage to;
    socklen_t size = address(family, port, &to);
    int domain = family == 6 ? AF_INET6 : AF_INET;
    int udp = !strncmp(act, "udp", 3);
    int fd = socket(domain, udp ? SOCK_DGRAM : SOCK_STREAM, !strcmp(act, "mptcp") ? 262 : 0);
    if (fd < 0) return said("socket", fd);
    if (!strcmp(act, "fastopen")) return said("sendto", sendto(fd, "x", 1, MSG_FASTOPEN, (void *)&to, size));
    if (!strcmp(act, "udp-sendto")) return said("sendto", sendto(fd, "x", 1, 0, (void *)&to, size));
    if (!strcmp(act, "udp-sendmsg")) {
        struct iovec iov = {"x", 1};
        struct msghdr message = {.msg_name = &to, .msg_namelen = size, .msg_iov = &iov, .msg_iovlen = 1};
        return said("sendmsg", sendmsg(fd, &message, 0));
    }
    if (connect(fd, (void *)&to, size)) return said("connect", -1);
    return said("write", write(fd, "x", 1));
}

static int unix_socket(const char *name, int abstract, int type) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + abstract, name, sizeof to.sun_path - 2);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + !abstract;
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0) return said("socket", fd);
    if (type == SOCK_DGRAM) return said("sendto", sendto(fd, "x", 1, 0, (void *)&to, size));
    if (connect(fd, (void *)&to, size)) return said("connect", -1);
    return said("write", write(fd, "x", 1));
}

static int in_child_of_userns(void) { return said("unshare", unshare(CLONE_NEWUSER)); }

static int int80(void) {
#ifdef __x86_64__
    /* getpid by the 32-bit entry: harmless, and proof that the entry is open. */
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    if (result > 0) return said("int 0x80", result);
    errno = -result;
    return said("int 0x80", -1);
#else
    return 1;
#endif
}

/* Without privileges to lose, a filter may be installed by anybody; root keeps what it has. */
static long filter(struct sock_filter *steps, size_t count, unsigned flags) {
    struct sock_fprog program = {count, steps};
    if (geteuid()) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* answer CALLS CMD…: becomes CMD, in a kernel that does not do these system calls and answers with an errno, or 0: "done". CALLS are
   NUMBER=ERRNO, NUMBER:VALUE=ERRNO where the first argument is VALUE, NUMBER&MASK=ERRNO where it has a bit of MASK; NUMBER@INDEX for
   another argument than the first; commas between. */
static int answer(char *calls, char **command) {
    struct sock_filter steps[256], number = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    size_t count = 0;
    steps[count++] = number;
    for (char *call = strtok(calls, ","); call; call = strtok(0, ",")) {
        char *rest;
        unsigned nr = strtoul(call, &rest, 0), index = *rest == '@' ? strtoul(rest + 1, &rest, 0) : 0;
        unsigned test = *rest == ':' ? BPF_JEQ : *rest == '&' ? BPF_JSET : 0;
        unsigned value = test ? strtoul(rest + 1, &rest, 0) : 0;
        if (*rest != '=' || index > 5 || count > 240) return 2;
        struct sock_filter answer = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | strtoul(rest + 1, 0, 0));
        steps[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, test ? 4 : 1);
        if (test) {
            steps[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 8 * index);
            steps[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, 1);
        }
        steps[count++] = answer;
        if (test) steps[count++] = number;
    }
    steps[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (filter(steps, count, 0)) return said("seccomp", -1);
    execvp(*command, command);
    return said(*command, -1);
}

/* abi N CMD…: runs CMD, to which the kernel says that its Landlock is of ABI N. */
static int abi(unsigned version, char **command) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 444 /* landlock_create_ruleset */, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1 /* LANDLOCK_CREATE_RULESET_VERSION */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    int tell[2], listener = -1, status;
    if (pipe2(tell, O_CLOEXEC)) return said("pipe", -1);
    /* One table of descriptors until the exec: the child's listener is ours too. */
    long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        listener = filter(steps, 6, SECCOMP_FILTER_FLAG_NEW_LISTENER);
        if (write(tell[1], &listener, sizeof listener) < 0 || listener < 0) _exit(said("seccomp", -1));
        execvp(*command, command);
        _exit(said(*command, -1));
    }
    if (child < 0 || read(tell[0], &listener, sizeof listener) < 0) return said("clone", -1);
    while (waitpid(child, &status, WNOHANG) == 0) {
        struct pollfd ready = {listener, POLLIN};
        if (poll(&ready, 1, 20) <= 0 || !(ready.revents & POLLIN)) continue;
        struct seccomp_notif asked = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked)) continue;
        struct seccomp_notif_resp says = {.id = asked.id, .val = version};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &says);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint64_t hash(uint64_t seed, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) seed = (seed ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ul;
    return seed;
}

/* One act on one or two names: 0 or the errno; what was read is in `told`. */
static int act_on(const char *act, const char *one, const char *two, uint64_t *told) {
    char buffer[4096];
    *told = 0xcbf29ce484222325ul;
    if (!strcmp(act, "read")) {
        int fd = open(one, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        ssize_t got = fd < 0 ? -1 : read(fd, buffer, sizeof buffer);
        if (got < 0) return errno;
        *told = hash(*told, buffer, got);
        close(fd);
        return 0;
    }
    if (!strcmp(act, "list")) {
        DIR *dir = opendir(one);
        if (!dir) return errno;
        uint64_t sum = 0;
        for (struct dirent *entry; (entry = readdir(dir));) sum += hash(*told, entry->d_name, strlen(entry->d_name));
        *told = sum;
        closedir(dir);
        return 0;
    }
    if (!strcmp(act, "append") || !strcmp(act, "open-write")) {
        int fd = open(one, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || (*act == 'a' && write(fd, "x", 1) != 1)) return errno;
        close(fd);
        return 0;
    }
    if (!strcmp(act, "truncate")) return truncate(one, 1) ? errno : 0;
    if (!strcmp(act, "make")) {
        int fd = open(one, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0) return errno;
        close(fd);
        return 0;
    }
    if (!strcmp(act, "mkdir")) return mkdir(one, 0755) ? errno : 0;
    if (!strcmp(act, "symlink")) return symlink("x", one) ? errno : 0;
    if (!strcmp(act, "fifo")) return mknod(one, S_IFIFO | 0644, 0) ? errno : 0;
    if (!strcmp(act, "unlink")) return unlink(one) ? errno : 0;
    if (!strcmp(act, "rmdir")) return rmdir(one) ? errno : 0;
    if (!strcmp(act, "rename")) return rename(one, two) ? errno : 0;
    if (!strcmp(act, "link")) return link(one, two) ? errno : 0;
    if (!strcmp(act, "chmod")) return chmod(one, 0705) ? errno : 0;
    if (!strcmp(act, "exec")) {
        /* What is no program is refused as one only after the rights have been looked at. */
        pid_t child = fork();
        if (!child) {
            char *argv[] = {(char *)one, "--version", 0}, *envp[] = {0};
            for (int fd = 0; fd < 3; fd++) close(fd), open("/dev/null", O_RDWR);
            execve(one, argv, envp);
            _exit(errno == ENOEXEC ? 0 : errno);
        }
        int status;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    }
    return 255;
}

/* acts FILE: does what the file says, in triples of act, name and name, each with a NUL behind it. Says of each the errno and a hash of what
   was read. Without any capability, as a jail is. acts FILE UID GID: as that user. */
static int acts(const char *file, const char *uid, const char *gid) {
    char *text = malloc(1 << 22);
    int fd = open(file, O_RDONLY);
    ssize_t size = fd < 0 || !text ? -1 : read(fd, text, 1 << 22);
    if (size < 0) return said(file, -1);
    close(fd);
    if (*uid && (setgroups(0, 0) || setgid(atoi(gid)) || setuid(atoi(uid)))) return said("setuid", -1);
    unsigned head[2] = {0x20080522, 0}, none[6] = {0};
    if (syscall(SYS_capset, head, none)) return said("capset", -1);
    umask(022);
    for (char *at = text; at < text + size;) {
        char *act = at, *one = act + strlen(act) + 1, *two = one + strlen(one) + 1;
        at = two + strlen(two) + 1;
        uint64_t told;
        int failed = act_on(act, one, two, &told);
        printf("%d %llx\n", failed, (unsigned long long)told);
        fflush(stdout);
    }
    return 0;
}

int main(int count, char **args) {
    if (count < 2) return 2;
    if (!strcmp(args[1], "answer") && count > 3) return answer(args[2], args + 3);
    if (!strcmp(args[1], "acts") && count > 2) return acts(args[2], count > 4 ? args[3] : "", count > 4 ? args[4] : "");
    if (!strcmp(args[1], "abi") && count > 3) return abi(atoi(args[2]), args + 3);
    const char *act = args[1];
    const char *one = count > 2 ? args[2] : "", *two = count > 3 ? args[3] : "";
    int number = atoi(one);
#define ACT(name) if (!strcmp(act, name))
    ACT("tcp") return network(act, atoi(two), number);
    ACT("mptcp") return network(act, atoi(two), number);
    ACT("fastopen") return network(act, atoi(two), number);
    ACT("udp") return network(act, atoi(two), number);
    ACT("udp-sendto") return network(act, atoi(two), number);
    ACT("udp-sendmsg") return network(act, atoi(two), number);
    ACT("abstract") return unix_socket(one, 1, SOCK_STREAM);
    ACT("abstract-datagram") return unix_socket(one, 1, SOCK_DGRAM);
    ACT("unix") return unix_socket(one, 0, SOCK_STREAM);
    ACT("ptrace") return said("ptrace", ptrace(PTRACE_ATTACH, number, 0, 0));
    ACT("seize") return said("ptrace", ptrace(PTRACE_SEIZE, number, 0, 0));
    ACT("vm-read") {
        char buffer[8];
        struct iovec here = {buffer, 8}, there = {(void *)strtoull(two, 0, 16), 8};
        return said("process_vm_readv", process_vm_readv(number, &here, 1, &there, 1, 0));
    }
    ACT("kill") return said("kill", kill(number, atoi(two)));
    ACT("tgkill") return said("tgkill", syscall(SYS_tgkill, number, number, atoi(two)));
    ACT("sigqueue") {
        union sigval value = {0};
        return said("sigqueue", sigqueue(number, atoi(two), value));
    }
    ACT("pidfd-kill") {
        int fd = syscall(SYS_pidfd_open, number, 0);
        if (fd < 0) return said("pidfd_open", fd);
        return said("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, atoi(two), 0, 0));
    }
    ACT("pidfd-getfd") {
        int fd = syscall(SYS_pidfd_open, number, 0);
        if (fd < 0) return said("pidfd_open", fd);
        return said("pidfd_getfd", syscall(SYS_pidfd_getfd, fd, 0, 0));
    }
    ACT("prlimit") {
        struct rlimit limit = {77, 77};
        return said("prlimit", prlimit(number, RLIMIT_NOFILE, &limit, 0));
    }
    ACT("setpriority") return said("setpriority", setpriority(PRIO_PROCESS, number, 19));
    ACT("affinity") {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(0, &set);
        return said("sched_setaffinity", sched_setaffinity(number, sizeof set, &set));
    }
    /* call NUMBER [ARGS…]: any call whose arguments are numbers. */
    ACT("call") {
        long numbers[6] = {0};
        for (int i = 3; i < count && i < 9; i++) numbers[i - 3] = strtol(args[i], 0, 0);
        return said("call", syscall(number, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]));
    }
    ACT("lease") {
        int fd = open(one, O_RDONLY);
        if (fd < 0) return said("open", fd);
        return said("fcntl", fcntl(fd, F_SETLEASE, F_RDLCK));
    }
    ACT("setxattr") return said("setxattr", setxattr(one, "user.bailiwick", "x", 1, 0));
    ACT("fsetxattr") {
        int fd = open(one, O_PATH);
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        return said("setxattr", setxattr(self, "user.bailiwick", "x", 1, 0));
    }
    ACT("setns") {
        int fd = syscall(SYS_pidfd_open, number, 0);
        if (fd < 0) return said("pidfd_open", fd);
        return said("setns", setns(fd, CLONE_NEWNET));
    }
    ACT("userns") return in_child_of_userns();
    ACT("clone-userns") {
        long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) _exit(0);
        return said("clone", child);
    }
    ACT("clone3-userns") {
        struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } how = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
        long child = syscall(SYS_clone3, &how, sizeof how);
        if (child == 0) _exit(0);
        return said("clone3", child);
    }
    ACT("mountns") return said("unshare", unshare(CLONE_NEWNS));
    ACT("mount") return said("mount", mount("none", one, "tmpfs", 0, 0));
    ACT("bind") return said("mount", mount(one, two, 0, MS_BIND, 0));
    ACT("open-tree") return said("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */));
    ACT("fsopen") return said("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    ACT("chroot") return said("chroot", chroot(one));
    ACT("pivot-root") return said("pivot_root", syscall(SYS_pivot_root, one, one));
    ACT("io-uring") {
        struct io_uring_params params = {0};
        return said("io_uring_setup", syscall(SYS_io_uring_setup, 4, &params));
    }
    ACT("bpf") {
        union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
        return said("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr));
    }
    ACT("perf") {
        struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_CPU_CLOCK, .exclude_kernel = 1};
        return said("perf_event_open", syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
    }
    ACT("userfaultfd") return said("userfaultfd", syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY));
    ACT("keyctl") return said("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1));
    ACT("add-key") return said("add_key", syscall(SYS_add_key, "user", "bailiwick-test", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    ACT("shmget") return said("shmget", syscall(SYS_shmget, 0x6277, 4096, 01600));
    ACT("msgget") return said("msgget", syscall(SYS_msgget, 0x6277, 01600));
    ACT("semget") return said("semget", syscall(SYS_semget, 0x6277, 1, 01600));
    ACT("mq") return said("mq_open", syscall(SYS_mq_open, "bailiwick-test", O_CREAT | O_RDWR, 0600, 0));
    ACT("handle") {
        char space[sizeof(struct file_handle) + 128];
        struct file_handle *handle = (void *)space;
        handle->handle_bytes = 128;
        int mount_id;
        if (name_to_handle_at(AT_FDCWD, one, handle, &mount_id, 0)) return said("name_to_handle_at", -1);
        int where = open("/", O_RDONLY | O_DIRECTORY);
        return said("open_by_handle_at", open_by_handle_at(where, handle, O_RDONLY));
    }
    ACT("x32") return said("x32 getpid", syscall(0x40000000 | SYS_getpid));
    ACT("int80") return int80();
    ACT("tiocsti") {
        char letter = 'x';
        return said("ioctl", ioctl(number, TIOCSTI, &letter));
    }
    ACT("tiocsti-high") {
        char letter = 'x';
        return said("ioctl", syscall(SYS_ioctl, number, 0xffffffff00000000ul | TIOCSTI, &letter));
    }
    ACT("raw") return said("socket", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    ACT("ping") return said("socket", socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
    ACT("packet") return said("socket", socket(AF_PACKET, SOCK_RAW, 0));
    ACT("netlink-netfilter") return said("socket", socket(AF_NETLINK, SOCK_RAW, 12));
    ACT("vsock") return said("socket", socket(AF_VSOCK, SOCK_STREAM, 0));
    ACT("alg") return said("socket", socket(AF_ALG, SOCK_SEQPACKET, 0));
    ACT("tmpfile") {
        int fd = open(one, O_TMPFILE | O_RDWR, 0600);
        if (fd < 0) return said("open", fd);
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        return said("linkat", linkat(AT_FDCWD, self, AT_FDCWD, two, AT_SYMLINK_FOLLOW));
    }
    ACT("tmpfile-here") {
        int fd = open(".", O_TMPFILE | O_RDWR, 0600);
        if (fd < 0) return said("open", fd);
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        return said("linkat", linkat(AT_FDCWD, self, AT_FDCWD, one, AT_SYMLINK_FOLLOW));
    }
    ACT("truncate") return said("truncate", truncate(one, 0));
    ACT("open-for-nothing") {
        // Access mode 3 asks for neither reading nor writing.
        struct { unsigned long long flags, mode, resolve; } how = {3, 0, 0};
        int fd = syscall(SYS_openat2, AT_FDCWD, one, &how, sizeof how);
        return said("openat2", fd);
    }
    ACT("trunc-read") return said("open", open(one, O_RDONLY | O_TRUNC));
    ACT("creat") return said("creat", creat(one, 0600));
    ACT("mknod") return said("mknod", mknod(one, S_IFIFO | 0600, 0));
    ACT("mknod-device") return said("mknod", mknod(one, S_IFBLK | 0600, atoi(two)));
    ACT("exchange") return said("renameat2", syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, two, 2 /* RENAME_EXCHANGE */));
    ACT("link") return said("link", link(one, two));
    ACT("memfd-exec") {
        int from = open(one, O_RDONLY), to = syscall(SYS_memfd_create, "x", 0);
        if (from < 0) return said("open", from);
        char buffer[65536];
        ssize_t got;
        while ((got = read(from, buffer, sizeof buffer)) > 0) if (write(to, buffer, got) != got) return 1;
        char *argv[] = {"true", 0}, *envp[] = {0};
        return said("execveat", syscall(SYS_execveat, to, "", argv, envp, AT_EMPTY_PATH));
    }
    ACT("fd-read") {
        char buffer[64];
        return said("read", read(number, buffer, sizeof buffer));
    }
    ACT("fd-openat") return said("openat", openat(number, one[1] ? two : "secret", O_RDONLY));
    fprintf(stderr, "no such act: %s\n", act);
    return 2;
}
