/* Acts that a jail must refuse, by raw system calls. `attack ACT [ARGS]` exits 0 when the act succeeded, 1 when it was refused, 2 on a
   usage error. What was done is judged from outside wherever there is an outside to look at. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
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

int main(int count, char **args) {
    if (count < 2) return 2;
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
